"""Runs a graph in eager for the calls whose arguments it was not traced for."""

from collections.abc import Callable, Sequence
from typing import Any

from torch.fx import GraphModule

from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.torch_compat.dynamo.eager_regions import eager_forward


def in_eager_unless(
    suits: Callable[[Sequence[Any]], bool], run: Callable, gm: GraphModule, why: str, tell: Callable[[Exception], None]
) -> Callable:
    """`run` where the arguments suit it; the graph in eager for others. `tell` hears of the first such call."""
    told: list[None] = []

    def call(*args: Any) -> Any:
        if suits(args):
            return run(*args)
        if not told:
            told.append(None)
            tell(UnsupportedGraph(why))
        return eager_forward(gm)(*args)

    return call

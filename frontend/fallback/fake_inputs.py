"""Runs a graph in eager for fake tensors, which have sizes and no memory, and within the mode that makes them.

A program sizes a model that way: within `FakeTensorMode` its parameters, results and gradients cost nothing. Dynamo compiles anew for inputs
of that class. Nothing guards the mode itself, in which a graph without fake inputs has fake results.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch.fx import GraphModule

from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.torch_compat.dynamo.lazy_graph import forward_of
from mlirc.frontend.torch_compat.fake_mode import fake_mode_question
from mlirc.frontend.torch_compat.fake_tensors import FakeTensor

FAKE = "an input is a fake tensor, which has no memory"
IN_MODE = "the graph is called within a FakeTensorMode"


def refuse_fake(inputs: Sequence[Any]) -> None:
    """Raises UnsupportedGraph for fake tensors."""
    if any(isinstance(x, FakeTensor) for x in inputs):
        raise UnsupportedGraph(FAKE)


def with_modes(run: Callable, gm: GraphModule, tell: Callable[[Exception], None]) -> Callable:
    """`run`; the graph in eager within a FakeTensorMode. `tell` hears of the first such call."""
    mode = fake_mode_question()
    if mode is None:
        return run
    told: list[None] = []

    def call(*args: Any) -> Any:
        if mode() is None:
            return run(*args)
        if not told:
            told.append(None)
            tell(UnsupportedGraph(IN_MODE))
        return forward_of(gm)(*args)

    return call

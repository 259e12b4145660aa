"""Runs Dynamo's graphs in eager."""

from collections.abc import Callable, Sequence
from typing import Any

from torch.fx import GraphModule

from mlirc.codegen.abi.reach import reach
from mlirc.frontend.torch_compat.dynamo.eager_regions import eager_forward


def in_eager(gm: GraphModule, inputs: Sequence[Any]) -> Callable:
    """The graph under `aot_eager`."""
    backend = aot_eager()
    return eager_forward(gm) if backend is None else backend(gm, list(inputs))


@reach("aot-eager", instead="graphs that go to eager run as Dynamo has them")
def aot_eager() -> Callable:
    """The backend of that name."""
    from torch._dynamo.backends.registry import lookup_backend

    return lookup_backend("aot_eager")

"""Checks the parameters of a compiled graph at each call, under torch 2.11, whose guards miss some changes.

Its Dynamo skips the guards of a module's tensors while the module's dicts are unchanged. `module.half()` and `parameter.data = ...`
do not change the dicts, so a graph would read the new memory by the old dtype and strides. Later versions check the tensors."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule
from torch.torch_version import TorchVersion

from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.torch_compat.dynamo.eager_regions import eager_forward

CHANGED = (
    "a parameter or buffer has changed its dtype, shape, strides or device, and torch 2.11 did not compile anew: call "
    "torch._dynamo.reset() after the change"
)


CHECKS_ALL = TorchVersion(torch.__version__) >= "2.12"


def with_checks(run: Callable, gm: GraphModule, inputs: Sequence[Any], tell: Callable[[Exception], None]) -> Callable:
    """`run`, with these checks where Dynamo skips its own."""
    return run if CHECKS_ALL else checked(run, gm, inputs, tell)


def checked(run: Callable, gm: GraphModule, inputs: Sequence[Any], tell: Callable[[Exception], None]) -> Callable:
    """`run`; or, where a tensor's dtype, shape, strides or device is not what the graph was compiled for, the graph in eager.
    `tell` is called with the reason at the first such call."""
    traced = [node.meta.get("example_value") for node in gm.graph.find_nodes(op="placeholder")]
    expected = [
        (k, *of(x)) for k, x in enumerate(inputs) if is_static(x) and (traced[k] is None or is_static(traced[k]))
    ]
    told: list[None] = []

    def call(*args: Any) -> Any:
        for k, dtype, device, shape, strides in expected:
            x = args[k]
            if x.dtype is not dtype or x.shape != shape or x.device != device or x.stride() != strides:
                if not told:
                    told.append(None)
                    tell(UnsupportedGraph(CHANGED))
                return eager_forward(gm)(*args)
        return run(*args)

    return call


def of(x: torch.Tensor) -> tuple[torch.dtype, torch.device, torch.Size, tuple[int, ...]]:
    return x.dtype, x.device, x.shape, x.stride()


def is_static(x: Any) -> bool:
    """Whether nothing of its sizes is a symbol, as of parameters. An input may be given as it is, and traced with symbols."""
    return (
        isinstance(x, torch.Tensor)
        and x.layout is torch.strided
        and all(type(n) is int for n in (*x.shape, *x.stride()))
    )

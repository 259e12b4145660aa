"""Runs a graph in eager within a level of forward-mode AD: a dual tensor has a tangent, which operators of eager's carry on."""

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.fx import GraphModule

from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.torch_compat.dynamo.dual_level import dual_level
from mlirc.frontend.torch_compat.dynamo.eager_regions import eager_forward

REASON = "the graph is called within torch.autograd.forward_ad.dual_level"


def level_entered() -> str | None:
    """The reason, where a graph is compiled within such a level. Dynamo compiles anew where one is entered or left."""
    level = dual_level()
    if level is None:
        return None
    level.guard()
    return REASON if level.entered() else None


def eager(gm: GraphModule, tell: Callable[[Exception], None], why: str) -> Callable:
    """The graph in eager; `tell` gets the reason. AOTAutograd's own way in eager has no tangents where something requires gradients."""
    tell(UnsupportedGraph(why))
    return eager_forward(gm)


def with_tangents(run: Callable, gm: GraphModule, tell: Callable[[Exception], None]) -> Callable:
    """`run`; where nothing tells Dynamo of levels, the graph in eager for inputs with tangents. `tell` gets the reason at the first
    such call."""
    return run if dual_level() is not None else looked_at(run, gm, tell)


def looked_at(run: Callable, gm: GraphModule, tell: Callable[[Exception], None]) -> Callable:
    told: list[None] = []

    def call(*args: Any) -> Any:
        tensors = (x for x in args if isinstance(x, torch.Tensor))
        if all(forward_ad.unpack_dual(x).tangent is None for x in tensors):
            return run(*args)
        if not told:
            told.append(None)
            tell(UnsupportedGraph(REASON))
        return eager_forward(gm)(*args)

    return call

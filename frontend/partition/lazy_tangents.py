"""Materializes gradients whose values are not in their memory, before a backward graph.

Autograd gives them as the operators behind a compiled function make them: a conjugated or negated view, or zeros without
memory, as `sgn` does. Of a forward graph's inputs Dynamo's guards know; of these nobody does.
"""

import functools
from collections.abc import Callable

import torch
from torch.fx import GraphModule

from mlirc.codegen.abi.lazy_tensors import in_memory, is_lazy


def with_values(gm: GraphModule, run: Callable[[list], list]) -> Callable[[list], list]:
    """The boxed callable of a backward graph, for gradients of any kind."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    positions = [k for k, node in enumerate(placeholders) if str(node.target).startswith("tangents")]

    @functools.wraps(run)
    def call(args: list) -> list:
        for k in positions:
            x = args[k]
            if isinstance(x, torch.Tensor) and x.layout is torch.strided and is_lazy(x):
                args[k] = in_memory(x)
        return run(args)

    return call

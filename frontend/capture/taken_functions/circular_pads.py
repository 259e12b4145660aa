"""Circular padding as concatenations, which are one kernel. PyTorch's own form writes the image and each of its borders into an empty tensor,
and so does its gradient.

before:  y = pad(x, (1, 2), "circular")
after:   y = cat((x[..., -1:], x, x[..., :2]), -1)      once for each dimension that is padded
"""

from collections.abc import Sequence
from types import BuiltinFunctionType
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.nn import functional


def write_out_circular_pads(gm: GraphModule) -> None:
    """Rewrites a graph of Dynamo's in place, and the functions that its operators take."""
    for module in gm.modules():
        pads = [x for x in module.graph.nodes if is_pad(x)] if isinstance(module, GraphModule) else []
        for node in pads:
            node.target = pad
        if pads:
            module.recompile()  # type: ignore[reportCallIssue]


def is_pad(node: Node) -> bool:
    """Whether it pads: `functional.pad`, or what that calls, a function in C++, of which Dynamo traces PyTorch's alone."""
    target = node.target
    return target is functional.pad or (isinstance(target, BuiltinFunctionType) and target.__name__ == "pad")


def pad(input: Tensor, pad: Sequence[Any], mode: str = "constant", value: float | None = None) -> Tensor:
    """torch.nn.functional.pad."""
    if mode != "circular" or not all(isinstance(n, int) and n >= 0 for n in pad) or not any(pad):
        return functional.pad(input, pad, mode, value)
    for k in range(len(pad) // 2):
        dim = input.dim() - 1 - k
        low, high = pad[2 * k : 2 * k + 2]
        borders = input.narrow(dim, input.shape[dim] - low, low), input.narrow(dim, 0, high)
        input = torch.cat([x for x in (borders[0], input, borders[1]) if x.shape[dim] != 0], dim)
    return input.contiguous()

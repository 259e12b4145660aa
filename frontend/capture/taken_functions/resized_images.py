"""Resizing with eager's backward operators. PyTorch's decompositions, which AOTAutograd takes, read each image by an index of each element:
its gradient would be a scatter for each corner that an element is interpolated of. A graph of Dynamo's calls `interpolate` of this file.

The forward pass is still decomposed, and so fused with what is around it.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import GraphModule
from torch.nn import functional

from mlirc.frontend.strides import dimension_order as order
from mlirc.frontend.torch_compat.dynamo.trees import tree_leaves
from mlirc.frontend.torch_compat.fake_tensors import transform_unwrapper
from mlirc.frontend.torch_compat.python_kernels import decompositions_of, without_python_kernels

aten = torch.ops.aten
DECOMPOSED = (
    aten.upsample_linear1d.default,
    aten.upsample_bilinear2d.default,
    aten.upsample_trilinear3d.default,
    aten.upsample_bicubic2d.default,
)


def write_out_resizes(gm: GraphModule) -> None:
    """Rewrites a graph of Dynamo's in place, and the functions that its operators take."""
    for module in gm.modules():
        resizes = (
            module.graph.find_nodes(op="call_function", target=functional.interpolate)
            if isinstance(module, GraphModule)
            else []
        )
        for node in resizes:
            node.target = interpolate
        if resizes:
            module.recompile()  # type: ignore[reportCallIssue]


def interpolate(input: Tensor, *args: Any, **options: Any) -> Tensor:
    """torch.nn.functional.interpolate. Gradients are those of PyTorch's decomposition for sizes that are symbols, which its backward operators do not
    take, and on a GPU, where they add in no fixed order."""
    return as_eager_lies(input, resized(input, *args, **options), *arguments_of_layout(*args, **options))


def resized(input: Tensor, *args: Any, **options: Any) -> Tensor:
    without = without_python_kernels() if is_differentiated(input) and has_known_sizes(input, args, options) else None
    if without is None or input.device.type != "cpu":
        return functional.interpolate(input, *args, **options)
    with without():
        return functional.interpolate(input, *args, **options)


def arguments_of_layout(
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: Any = None,
    recompute_scale_factor: Any = None,
    antialias: bool = False,
) -> tuple[str, bool]:
    return mode, antialias


def as_eager_lies(input: Tensor, result: Tensor, mode: str = "nearest", antialias: bool = False) -> Tensor:
    """The result with eager's strides: channels-last where the image is, else row-major. In the decomposition they follow the input's."""
    shape = result.shape
    nearest = mode in ("nearest", "nearest-exact")
    if antialias or not (nearest or mode in ("bilinear", "bicubic", "trilinear")):
        return result
    last = len(shape) > 3 and order.lies_channels_last(input.shape, input.stride())
    if order.all_same(result.stride(), (order.channels_last if last else order.row_major)(shape)):
        return result
    if not last:
        return result.clone(memory_format=torch.contiguous_format)
    unwrap = transform_unwrapper()
    if unwrap is None or unwrap(result) is not result:  # torch.vmap copies to row-major memory alone
        return result
    images = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    return result.clone(memory_format=images)


def is_differentiated(x: Tensor) -> bool:
    return x.requires_grad and torch.is_grad_enabled()


def has_known_sizes(input: Tensor, *how: Any) -> bool:
    return not any(isinstance(n, torch.SymInt | torch.SymFloat) for n in tree_leaves((tuple(input.shape), how)))


def resize_decompositions() -> dict[OpOverload, Callable]:
    """What the forward pass is traced as."""
    return decompositions_of(DECOMPOSED)

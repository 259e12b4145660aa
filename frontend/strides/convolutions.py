"""The strides of convolutions and of their gradients, where ATen's own kernels compute them and fake tensors promise others."""

from typing import Any

import torch

from mlirc.frontend.strides import dimension_order as order
from mlirc.frontend.strides.dimension_order import Layout
from mlirc.frontend.torch_compat.convolution_backends import choose_convolution_backend

SLOW_2D = (".Slow2d", ".SlowDilated2d", ".SlowTranspose2d")  # ATen's own kernels of images, which know no groups


def forward(result: torch.Tensor, args: tuple) -> tuple | None:
    """Strides of a convolution that is computed group by group, whose results are joined; each group has a memory format of its own.

    Of no elements they are those of the input times a number where the result has its sizes, else row-major. Others are as promised."""
    x, weight, groups = args[0], args[1], args[8]
    choose = choose_convolution_backend()
    if choose is None or (order.same(groups, 1) and all(order.hint(n) != 0 for n in x.shape[:2])):
        return None
    chosen = str(choose(*args[:9], None))
    if chosen.endswith(".Empty"):
        if order.hint(x.shape[1]) == 0 or not all(n == m for n, m in zip(x.shape, result.shape, strict=True)):
            return order.row_major(result.shape)
        return order.result_strides(x.shape, [(x.shape, x.stride()), ((), ())])
    if not chosen.endswith(SLOW_2D):
        return None
    images, filters = (x.shape, x.stride()), (weight.shape, weight.stride())
    if result.dim() == 3:
        images = images if order.is_row_major(*images) else (x.shape, order.row_major(x.shape))
        images, filters = (_with_rows(layout) for layout in (images, filters))
    last = order.lies_channels_last(*images) or order.lies_channels_last(*filters)
    parts = [_part_of_groups(_in_format(last, layout), dim, groups) for layout, dim in ((images, 1), (filters, 0))]
    batch, channels, *rest = result.shape
    rest = rest if result.dim() == 4 else [1, *rest]
    of_group = [batch, channels // groups, *rest]
    made = (order.channels_last if any(order.lies_channels_last(*part) for part in parts) else order.row_major)(
        of_group
    )
    joined = order.channels_last if order.lies_channels_last(of_group, made) else order.row_major
    strides = joined([batch, channels, *rest])
    return strides if result.dim() == 4 else (*strides[:2], strides[3])


def _with_rows(layout: Layout) -> Layout:
    """Sequences as images of one row."""
    shape, strides = layout
    return (*shape[:2], 1, shape[2]), (*strides[:2], shape[2] * strides[2], strides[2])


def _in_format(last: bool, layout: Layout) -> Layout:
    """What contiguous() gives: the same where it lies so, but for the strides of dimensions of size 1."""
    shape, strides = layout
    wanted = (order.channels_last if last else order.row_major)(shape)
    return layout if order.equal_where_walked(shape, strides, wanted) else (shape, wanted)


def _part_of_groups(layout: Layout, dim: int, groups: Any) -> Layout:
    """One of `groups` equal parts along a dimension, in the format of the whole."""
    shape, strides = layout
    part = [n // groups if d == dim else n for d, n in enumerate(shape)]
    return _in_format(order.lies_channels_last(shape, strides), (part, strides))


def backward(result: torch.Tensor, args: tuple) -> tuple | None:
    """The weight's strides, for its gradient: where they are channels-last but for dimensions of size 1, as they are promised in full.

    oneDNN's gradients lie as promised. The gradient of an input with the weight's sizes does, too."""
    x, weight = args[1:3]
    choose = choose_convolution_backend()
    if choose is None or result.dim() not in (4, 5) or not order.all_same(result.shape, weight.shape):
        return None
    last = order.channels_last(weight.shape)
    if not order.equal_where_walked(weight.shape, weight.stride(), last):
        return None
    if not order.all_same(result.stride(), last) or order.all_same(x.shape, weight.shape):
        return None
    chosen = str(choose(x, weight, None, *args[4:10], args[3]))
    return weight.stride() if ".Slow" in chosen else None

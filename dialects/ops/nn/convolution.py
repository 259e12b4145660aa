"""Convolutions of images in channels-last order that kernels of our own compute, and their gradients.

Text attributes, one number each for height and width:
  stride    from one window to the next        padding   before the first row or column
  dilation  from one of a window's rows to the next
"""

from collections.abc import Sequence
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ext, ir
from mlirc.dialects.core.dialect import Op, attribute_value
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.ops.nn.pooling import both

aten = torch.ops.aten
SETTINGS = ("stride", "padding", "dilation")


class Convolution(Op, name="convolution", traits=[ext.Pure]):
    """relu(scale * conv(x, w) + shift) for x [N, C, H, W] and w [O, C, KH, KW]; of what follows the convolution only what `after`
    lists: "scale, shift, relu". scale and shift [O] are `factors` in that order.
    """

    x: ext.Operand[Any]
    w: ext.Operand[Any]
    factors: Sequence[ext.Operand[Any]]
    stride: ir.StringAttr
    padding: ir.StringAttr
    dilation: ir.StringAttr
    after: ir.StringAttr
    out: ext.Result[Any]

    @staticmethod
    def reference(
        x: torch.Tensor, w: torch.Tensor, *factors: torch.Tensor, stride: str, padding: str, dilation: str, after: str
    ) -> torch.Tensor:
        windows = (symbols.parse_numbers(text) for text in (stride, padding, dilation))
        return followed(aten.convolution(x, w, None, *windows, False, [0, 0], 1), list(factors), after)


class ConvolutionAdd(Op, name="convolution_add", traits=[ext.Pure]):
    """relu(scale * conv(x, w) + shift + other), as `convolution`; `other` is like the result."""

    x: ext.Operand[Any]
    w: ext.Operand[Any]
    other: ext.Operand[Any]
    factors: Sequence[ext.Operand[Any]]
    stride: ir.StringAttr
    padding: ir.StringAttr
    dilation: ir.StringAttr
    after: ir.StringAttr
    out: ext.Result[Any]

    @staticmethod
    def reference(
        x: torch.Tensor, w: torch.Tensor, other: torch.Tensor, *factors: torch.Tensor, after: str, **windows: str
    ) -> torch.Tensor:
        steps = ", ".join(step for step in epilogue_steps(after) if step != "relu")
        made = Convolution.reference(x, w, *factors, after=steps, **windows) + other
        return made.relu() if "relu" in epilogue_steps(after) else made


class TransposedConvolution(Op, name="transposed_convolution", traits=[ext.Pure]):
    """The gradient of images [N, C, H, W], where convolving them by w [O, C, KH, KW] has the gradient x [N, O, P, Q]; what
    `after` lists follows, as for `convolution`. `more`: how many of the last rows and columns no window starts to reach
    (torch calls it output_padding).
    """

    x: ext.Operand[Any]
    w: ext.Operand[Any]
    factors: Sequence[ext.Operand[Any]]
    stride: ir.StringAttr
    padding: ir.StringAttr
    dilation: ir.StringAttr
    more: ir.StringAttr
    after: ir.StringAttr
    out: ext.Result[Any]

    @staticmethod
    def reference(
        x: torch.Tensor,
        w: torch.Tensor,
        *factors: torch.Tensor,
        stride: str,
        padding: str,
        dilation: str,
        more: str,
        after: str,
    ) -> torch.Tensor:
        steps, pads, gaps, ends = (symbols.parse_numbers(text) for text in (stride, padding, dilation, more))
        axes = zip(x.shape[2:], w.shape[2:], steps, pads, gaps, ends, strict=True)
        sizes = [(n - 1) * step - 2 * pad + gap * (taps - 1) + 1 + end for n, taps, step, pad, gap, end in axes]
        images = x.new_empty(x.shape[0], w.shape[1], *sizes)
        windows = list(steps), list(pads), list(gaps)
        made = aten.convolution_backward(x, images, w, [0], *windows, False, [0, 0], 1, [True, False, False])[0]
        return followed(made, list(factors), after)


class ConvolutionWeightGradient(Op, name="convolution_weight_gradient", traits=[ext.Pure]):
    """The gradient of w [O, C, KH, KW], where conv(x, w) has the gradient dy [N, O, P, Q]. `window` is "KH, KW"."""

    x: ext.Operand[Any]
    dy: ext.Operand[Any]
    window: ir.StringAttr
    stride: ir.StringAttr
    padding: ir.StringAttr
    dilation: ir.StringAttr
    out: ext.Result[Any]

    @staticmethod
    def reference(
        x: torch.Tensor, dy: torch.Tensor, *, window: str, stride: str, padding: str, dilation: str
    ) -> torch.Tensor:
        sizes = symbols.parse_numbers(window)
        windows = [list(symbols.parse_numbers(text)) for text in (stride, padding, dilation)]
        w = x.new_zeros(dy.shape[1], x.shape[1], *sizes)
        mask = [False, True, False]
        return aten.convolution_backward(dy, x, w, [0], *windows, False, [0, 0], 1, mask)[1]


class FusedConvolution(Op, name="fused_convolution", traits=[ext.Pure]):
    """The convolution of x [N, C, H, W] by w [O, C, KH, KW], or by w [C, 1, KH, KW], each channel by its own filter; as a kernel, with
    which what follows fuses. lowering/cpu/convolution/windows.py recognises it.

    after:  sum over the taps inside the image of x[n, c, p * stride + kh * dilation - padding, ...] * w[o, c, kh, kw]
    """

    x: ext.Operand[Any]
    w: ext.Operand[Any]
    stride: ir.StringAttr
    padding: ir.StringAttr
    dilation: ir.StringAttr
    out: ext.Result[Any]

    @staticmethod
    def kernel(make, op):
        (x, w), info = op.operands, info_of(op.results[0])
        _, channels, *taps = info_of(w).shape
        depthwise = channels != info_of(x).shape[1]
        k = make(info.shape, taps if depthwise else (channels, *taps), label="convolution")
        (n, filter_, *windows), (*channel, down, along) = k.parallel_dims, k.inner_dims
        c, factor = (filter_, 0) if depthwise else (channel[0], channel[0])
        at, mask = places(k, op, windows, (down, along), taps)
        # neither is read outside: an infinite weight would make NaN of the padding's zeros
        product = k.mul(k.read(x, (n, c, *at), mask=mask), k.read(w, (filter_, factor, down, along), mask=mask))
        return k.finish([(k.reduce("sum", product), k.parallel_dims, info)])


class GroupedConvolution(Op, name="grouped_convolution", traits=[ext.Pure]):
    """The convolution of x [N, C, H, W] in `groups`, as a kernel, with which what follows fuses: filters o of a group read the channels of
    this group alone. w [tiles, KH, C / groups, KW, lanes] has filter o at w[o // lanes, :, :, :, o % lanes]; those past the last are not
    read. lowering/cpu/convolution/grouped.py writes its code.

    after:  sum over the taps inside the image of x[n, o // (O / groups) * (C / groups) + c, ...] * w[o // lanes, kh, c, kw, o % lanes]
    """

    x: ext.Operand[Any]
    w: ext.Operand[Any]
    groups: ir.StringAttr
    stride: ir.StringAttr
    padding: ir.StringAttr
    dilation: ir.StringAttr
    out: ext.Result[Any]

    @staticmethod
    def kernel(make, op):
        (x, w), info = op.operands, info_of(op.results[0])
        _, high, channels, wide, lanes = info_of(w).shape
        (groups,) = symbols.parse_numbers(attribute_value(op.attributes["groups"]))
        filters, every = info.shape[1], info_of(x).shape[1]
        if groups < 1 or every != channels * groups or filters % groups:
            raise ValueError(f"{every} channels and {filters} filters are no {groups} groups of {channels} channels")
        k = make(info.shape, (high, channels, wide), label="convolution")
        (n, filter_, *windows), (down, channel, along) = k.parallel_dims, k.inner_dims
        at, mask = places(k, op, windows, (down, along), (high, wide))
        c = symbols.floordiv(filter_, filters // groups) * channels + channel
        tile, lane = symbols.floordiv(filter_, lanes), symbols.mod(filter_, lanes)
        # neither is read outside: an infinite weight would make NaN of the padding's zeros
        product = k.mul(k.read(x, (n, c, *at), mask=mask), k.read(w, (tile, down, channel, along, lane), mask=mask))
        return k.finish([(k.reduce("sum", product), k.parallel_dims, info)])


def places(k: Any, op: Any, windows: Sequence[Int], along: Sequence[Int], taps: Sequence[Int]) -> tuple[list[Int], Any]:
    """Where in an image the taps `along` of `windows` are, down and along; and whether they are inside, None where all are."""
    at, mask = [], None
    settings = (symbols.parse_numbers(attribute_value(op.attributes[name])) for name in SETTINGS)
    image, counts = info_of(op.operands[0]).shape[2:], info_of(op.results[0]).shape[2:]
    for window, tap, size, here, count, stride, padding, dilation in zip(
        windows, along, image, taps, counts, *settings, strict=True
    ):
        place = window * stride + tap * dilation - padding
        at.append(place)
        if padding:
            mask = both(k, mask, k.ge(k.size(place), 0))
        last = (count - 1) * stride + (here - 1) * dilation - padding
        if not symbols.known_nonnegative(size - 1 - last):
            mask = both(k, mask, k.lt(k.size(place), k.size(size)))
    return at, mask


class DepthwiseWeightGradient(Op, name="depthwise_weight_gradient", traits=[ext.Pure]):
    """The gradient of w [C, 1, KH, KW], where conv(x, w), each channel by its own filter, has the gradient dy [N, C, P, Q]: sums
    [parts, KH, KW, C], which are to be added up over the parts. What part adds up what is up to the kernel. `window` is "KH, KW".
    """

    x: ext.Operand[Any]
    dy: ext.Operand[Any]
    parts: ir.StringAttr
    window: ir.StringAttr
    stride: ir.StringAttr
    padding: ir.StringAttr
    dilation: ir.StringAttr
    out: ext.Result[Any]

    @staticmethod
    def reference(
        x: torch.Tensor, dy: torch.Tensor, *, parts: str, window: str, stride: str, padding: str, dilation: str
    ) -> torch.Tensor:
        sizes = symbols.parse_numbers(window)
        windows = [list(symbols.parse_numbers(text)) for text in (stride, padding, dilation)]
        channels = x.shape[1]
        w = x.new_zeros(channels, 1, *sizes)
        mask = [False, True, False]
        plain = dy.contiguous(), x.contiguous()  # oneDNN's code for images that lie channels last is less exact
        made = aten.convolution_backward(*plain, w, [0], *windows, False, [0, 0], channels, mask)[1]
        sums = x.new_zeros(int(parts), *sizes, channels)
        sums[0] = made[:, 0].permute(1, 2, 0)
        return sums


def followed(made: torch.Tensor, factors: list[torch.Tensor], after: str) -> torch.Tensor:
    """A convolution with what `after` lists."""
    if "scale" in epilogue_steps(after):
        made = made * factors.pop(0).view(-1, 1, 1)
    if "shift" in epilogue_steps(after):
        made = made + factors.pop(0).view(-1, 1, 1)
    return made.relu() if "relu" in epilogue_steps(after) else made


def epilogue_steps(after: str) -> list[str]:
    return after.split(", ") if after else []

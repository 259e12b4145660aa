"""The weight gradient of a depthwise convolution as ops of a graph: a call that gives a partial sum for each part of the images
(depthwise_call.py), and the sum of these.
"""

from dataclasses import replace

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import create
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.dialects.core.symbols import floordiv, mod, symbol
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, type_of
from mlirc.dialects.ops.rows.reduction import sum_over
from mlirc.lowering.layout.channels_last import channels_last, relaid

A, B, C, D, E = (symbol(f"d{k}") for k in range(5))


def depthwise_weight_gradient(
    x: ir.Value, dy: ir.Value, windows: dict[str, str], parts: int, info: TensorInfo
) -> ir.Value:
    """The gradient of weights like `info` [O, C / groups, KH, KW], contiguous float32.

    `x` and `dy` are channels-last images. One may have several channels for each of the other's, which is then repeated.
    `windows` are the call's attributes stride, padding and dilation; `parts` is the number of partial sums.
    """
    filters, _, *taps = info.shape
    channels = max(info_of(v).shape[1] for v in (x, dy))  # type: ignore[type-var]  # numbers, as images have them here
    x, dy = (repeated(v, channels // info_of(v).shape[1]) for v in (x, dy))  # type: ignore[operator]
    sums = TensorInfo(info.dtype, (parts, *taps, channels), device=info.device)
    attributes = windows | {"parts": str(parts), "window": ", ".join(map(str, taps))}
    made = create("depthwise_weight_gradient", [x, dy], [type_of(sums)], attributes).out
    g = GraphBuilder(info)
    total = sum_over(g, made, [0])
    down, along, _ = info_of(total).stride
    transposed = g.view(total, info.shape, (channels // filters, 1, down, along), (C, D, A * (channels // filters) + B))
    return relaid(transposed, TensorInfo(info.dtype, info.shape, device=info.device))


def repeated(x: ir.Value, times: int) -> ir.Value:
    """Images [N, C * times, H, W], channels last: each channel of `x` [N, C, H, W] `times` times, next to each other."""
    if times == 1:
        return x
    info = info_of(x)
    n, channels, *image = info.shape
    a, b, *inner = info.stride
    g = GraphBuilder(info)
    made = channels_last(replace(info, shape=(n, channels * times, *image), stride=None))
    far, near, *across = made.stride
    wide = replace(info, shape=(n, channels, times, *image), stride=(a, b, 0, *inner))
    copied = g.copy(g.view(x, wide.shape, wide.stride, (A, B, D, E)), replace(wide, stride=(far, times, near, *across)))
    return g.view(copied, made.shape, made.stride, (A, floordiv(B, times), mod(B, times), C, D))

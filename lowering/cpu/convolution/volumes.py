"""Convolutions of volumes [N, C, D, H, W] by image kernels: one depth of the filter after the other, over all slices.

    out[n, :, d] = sum over k of conv(x[n, :, d * stride + k * dilation - padding], w[:, :, k])

Volumes lie with their channels innermost, so that slices, [N * D, C, H, W], are images in channels-last order.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import create
from mlirc.dialects.core.graph_builder import GraphBuilder, constant_text
from mlirc.dialects.core.symbols import Int, floordiv, mod, symbol
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, type_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.dialects.ops.movement.concat_pad import concatenate, zeros
from mlirc.lowering.layout.channels_last import channels_last, relaid

A, B, C, D, E = (symbol(f"d{k}") for k in range(5))


@dataclass(frozen=True)
class Depth:
    """Along the depth: slices of `size`, of which those at i * stride + k * dilation - padding make slice i of `count`."""

    size: Int
    count: Int
    taps: int
    stride: int
    padding: int
    dilation: int

    @property
    def padded(self) -> Int:
        return self.size + 2 * self.padding


def volume_result(
    x: ir.Value, w: ir.Value, bias: Sequence[ir.Value], depth: Depth, windows: dict, info: TensorInfo
) -> Any:
    """The convolution of `x`, channels last, as `info` but channels last."""
    made: ir.Value | None = None
    parts = slices_met(x, depth)
    _, filters, _, *sizes = info.shape
    images = channels_last(replace(info, shape=(info_of(parts[0]).shape[0], filters, *sizes), stride=None))
    for k, part in enumerate(parts):
        given = [part, weights_at(w, k)]
        if made is None:
            after = "shift" if bias else ""
            made = create("convolution", [*given, *bias], [type_of(images)], windows | {"after": after}).out
        else:
            made = create("convolution_add", [*given, made], [type_of(images)], windows | {"after": ""}).out
    return as_volumes(made, depth.count)


def volume_gradient(dy: ir.Value, w: ir.Value, depth: Depth, windows: dict, more: str, info: TensorInfo) -> ir.Value:
    """The gradient of the input volumes, like `info` [N, C, D, H, W], channels last. `dy` is the results' gradient, channels last."""
    g = GraphBuilder(info)
    n, channels, _, *sizes = info.shape
    given = as_images(dy)
    images = channels_last(replace(info, shape=(info_of(given).shape[0], channels, *sizes), stride=None))
    padded = channels_last(replace(info, shape=(n, channels, depth.padded, *sizes), stride=None))
    total: ir.Value | None = None
    for k in range(depth.taps):
        attributes = windows | {"more": more, "after": ""}
        part = create("transposed_convolution", [given, weights_at(w, k)], [type_of(images)], attributes).out
        place = {"dim": 2, "start": str(k * depth.dilation), "step": str(depth.stride)}
        spread = create(
            "slice_scatter", [zeros(g, dy, padded.shape), as_volumes(part, depth.count)], [type_of(padded)], place
        ).out
        total = spread if total is None else create("add", [total, spread], [type_of(padded)]).out
    shape = (n, channels, depth.size, *sizes)
    inner = padded.stride[2]
    return g.view(total, shape, padded.stride, (A, B, C + depth.padding, D, E), depth.padding * inner)


def volume_weight_gradient(x: ir.Value, dy: ir.Value, depth: Depth, windows: dict, info: TensorInfo) -> ir.Value:
    """The gradient of the weights, like `info` [O, C, KD, KH, KW], contiguous."""
    filters, channels, _, *taps = info.shape
    plain = TensorInfo(info.dtype, (filters, channels, *taps))
    attributes = windows | {"window": ", ".join(map(str, taps))}
    g, dy = GraphBuilder(info), as_images(dy)
    made = []
    for part in slices_met(x, depth):
        one = create("convolution_weight_gradient", [part, dy], [type_of(plain)], attributes).out
        a, b, c, d = plain.stride
        made.append(g.view(one, (filters, channels, 1, *taps), (a, b, b, c, d), (A, B, D, E)))
    while len(made) > 1:
        made = [concatenate(g, made[k : k + 4], 2) for k in range(0, len(made), 4)]
    return made[0]


def slices_met(x: ir.Value, depth: Depth) -> list[ir.Value]:
    """For each of a filter's depths, the slices that it meets: [N * count, C, H, W], channels last."""
    info = info_of(x)
    n, channels, _, *sizes = info.shape
    g = GraphBuilder(info)
    if depth.padding:
        info = channels_last(replace(info, shape=(n, channels, depth.padded, *sizes), stride=None))
        attributes = {"low": f"0, 0, {depth.padding}, 0, 0", "value": constant_text(0, info.dtype)}
        x = create("pad", [x], [type_of(info)], attributes).out
    made = []
    a, b, inner, d, e = info.stride
    for k in range(depth.taps):
        start = k * depth.dilation
        map_ = (A, B, C * depth.stride + start, D, E)
        stride = (a, b, inner * depth.stride, d, e)
        met = g.view(x, (n, channels, depth.count, *sizes), stride, map_, inner * start)
        made.append(as_images(relaid(met, channels_last(info_of(met)))))
    return made


def as_images(x: ir.Value) -> ir.Value:
    """Volumes that lie channels last, as [N * D, C, H, W]."""
    info = info_of(x)
    n, channels, size, *image = info.shape
    map_ = (floordiv(A, size), B, mod(A, size), C, D)
    _, *stride = info.stride
    return GraphBuilder(info).view(x, (n * size, channels, *image), (stride[1], stride[0], *stride[2:]), map_)


def as_volumes(x: ir.Value, size: Int) -> ir.Value:
    """Images [N * D, C, H, W] that lie channels last, as volumes of D = `size`."""
    info = info_of(x)
    count, channels, *image = info.shape
    volumes = replace(info, shape=(floordiv(count, size), channels, size, *image), stride=None)
    return GraphBuilder(info).view(x, volumes.shape, channels_last(volumes).stride, (A * size + C, B, D, E))


def weights_at(w: ir.Value, k: int) -> ir.Value:
    """w[:, :, k], contiguous."""
    info = info_of(w)
    filters, channels, _, *taps = info.shape
    a, b, c, d, e = info.stride
    part = GraphBuilder(info).view(w, (filters, channels, *taps), (a, b, d, e), (A, B, k, C, D), c * k)
    return relaid(part, TensorInfo(info.dtype, info_of(part).shape, device=info.device))

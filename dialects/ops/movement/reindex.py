"""Copies whose index map depends on sizes and positions alone: flip, roll, repeat, reflection and replication pads, nearest upsampling,
pixel shuffle.
"""

from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ext, ir
from mlirc.dialects.core.dialect import Op, attribute_value, create, imports
from mlirc.dialects.core.graph_builder import NotOurs
from mlirc.dialects.core.import_arguments import dimension, need_kernel_dtypes
from mlirc.dialects.core.symbols import maximum, minimum
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, type_of

aten = torch.ops.aten


class Reindex(Op, name="reindex", traits=[ext.Pure]):
    """The result's element at (d0, d1, ...) is x's at `map`, expressions in d0, d1, ... and the symbols of sizes.

    This flips dimension 1:  %1 = "mlirc.reindex"(%0) {map = "d0, -d1 + 7"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    """

    x: ext.Operand[Any]
    map: ir.StringAttr
    out: ext.Result[Any]

    @staticmethod
    def kernel(make, op):
        info = info_of(op.results[0])
        k = make(info.shape, label="reindex")
        map_ = symbols.parse_list(attribute_value(op.attributes["map"]))
        return k.finish([(k.read(op.operands[0], map_, widen=False), k.dims, info)])


def reindex(x, shape, map_):
    need_kernel_dtypes(x)
    info = info_of(x)
    result = type_of(TensorInfo(info.dtype, tuple(shape), device=info.device))
    return create("reindex", [x], [result], {"map": symbols.print_list(map_)}).out


def places(rank):
    """The result's index, d0, d1, ..."""
    return [symbols.symbol(f"d{d}") for d in range(rank)]


@imports(aten.flip.default)
def flip(g, x, dims):
    shape = info_of(x).shape
    flipped = {dimension(d, len(shape)) for d in dims}
    map_ = [n - 1 - d if k in flipped else d for k, (n, d) in enumerate(zip(shape, places(len(shape)), strict=True))]
    return reindex(x, shape, map_)


@imports(aten.roll.default)
def roll(g, x, shifts, dims=()):
    shape = info_of(x).shape
    if not dims and len(shape) != 1:
        raise NotOurs("a roll of all dimensions as one")
    map_: list = places(len(shape))
    for shift, dim in zip(shifts, dims or (0,), strict=True):
        dim = dimension(dim, len(shape))
        if shape and shape[dim] != 0:
            map_[dim] = symbols.mod(map_[dim] - shift, shape[dim])
    return reindex(x, shape, map_)


@imports(aten.repeat.default)
def repeat(g, x, repeats):
    shape = info_of(x).shape
    lead = len(repeats) - len(shape)
    result = [*repeats[:lead], *(n * times for n, times in zip(shape, repeats[lead:], strict=True))]
    index = places(len(result))[lead:]
    map_ = [
        0 if n == 1 else d if times == 1 or n == 0 else symbols.mod(d, n)
        for n, d, times in zip(shape, index, repeats[lead:], strict=True)
    ]
    return reindex(x, result, map_)


REFLECTION = (aten.reflection_pad1d.default, aten.reflection_pad2d.default, aten.reflection_pad3d.default)
REPLICATION = (aten.replication_pad1d.default, aten.replication_pad2d.default, aten.replication_pad3d.default)


@imports(*REFLECTION)
def reflection_pad(g, x, padding):
    def mirrored(d, n):
        """Distance from the start, then from the end."""
        d = maximum(d, d * -1)
        d = n - 1 - maximum(n - 1 - d, d - (n - 1))
        # PyTorch's guards hold a pad below the size, which no form says
        return d if all(isinstance(k, int) for k in (n, *padding)) else minimum(maximum(d, 0), n - 1)

    return padded(x, padding, mirrored)


@imports(*REPLICATION)
def replication_pad(g, x, padding):
    return padded(x, padding, lambda d, n: minimum(maximum(d, 0), n - 1))


def padded(x, padding, place):
    """`padding` is before and after the last dimension, before and after the one before it, and so on."""
    shape = list(info_of(x).shape)
    map_: list = places(len(shape))
    for k in range(len(padding) // 2):
        low, high = padding[2 * k : 2 * k + 2]
        dim = len(shape) - 1 - k
        map_[dim] = place(map_[dim] - low, shape[dim])
        shape[dim] = shape[dim] + low + high
    return reindex(x, shape, map_)


@imports(aten.upsample_nearest1d.default, aten.upsample_nearest2d.default, aten.upsample_nearest3d.default)
def upsample_nearest(g, x, output_size, *scales):
    """Nearest upsampling by whole factors of which eager takes each element as often. Other factors go to ATen."""
    shape = info_of(x).shape
    map_: list = places(len(shape))
    for k, size in enumerate(output_size):
        dim = 2 + k
        times = symbols.floordiv(size, shape[dim]) if shape[dim] != 0 else 0
        if times * shape[dim] != size or not isinstance(times, int) or scales[k : k + 1] not in ((), (None,), (times,)):
            raise NotOurs(f"nearest upsampling from {shape[dim]} to {size}")
        if not repeats_evenly(times, size):
            raise NotOurs(f"nearest upsampling by {times}, whose positions eager's float32 rounds")
        map_[dim] = symbols.floordiv(map_[dim], times)
    return reindex(x, (*shape[:2], *output_size), map_)


def repeats_evenly(times, size):
    """Whether eager's positions, floor(d * float32(1 / times)), are d // times at each d below `size`.

    By 41, 47 or 55, float32 gives less than 1 at d = times. Where it gives 1 there, the error of a position is less than a step of d, as long as
    there are fewer than 2^23 positions. A size that is a symbol is taken to be smaller.
    """
    if isinstance(size, int) and size >= 2**23:
        return False
    return times == 0 or bool(torch.tensor(1.0 / times) * times >= 1)


@imports(aten.pixel_shuffle.default)
def pixel_shuffle(g, x, r):
    *lead, channels, height, width = info_of(x).shape
    *d, c, h, w = places(len(lead) + 3)
    map_ = [*d, c * (r * r) + symbols.mod(h, r) * r + symbols.mod(w, r), h // r, w // r]
    return reindex(x, (*lead, channels // (r * r), height * r, width * r), map_)


@imports(aten.pixel_unshuffle.default)
def pixel_unshuffle(g, x, r):
    """A tensor without elements is copied, as ATen's kernel for CPUs does."""
    *lead, channels, height, width = info_of(x).shape
    if 0 in info_of(x).shape and info_of(x).device == "cpu":
        return g.copy(x)
    *d, c, h, w = places(len(lead) + 3)
    map_ = [*d, c // (r * r), h * r + symbols.mod(c, r * r) // r, w * r + symbols.mod(c, r)]
    return reindex(x, (*lead, channels * (r * r), height // r, width // r), map_)


@imports(aten.channel_shuffle.default)
def channel_shuffle(g, x, groups):
    shape = info_of(x).shape
    each = shape[1] // groups
    map_: list = places(len(shape))
    map_[1] = symbols.mod(map_[1], groups) * each + map_[1] // groups
    return reindex(x, shape, map_)

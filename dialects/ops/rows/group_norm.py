"""Group norm and its gradient: x [N, C, ...] is normalised within each of `groups` groups of channels."""

from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ext
from mlirc.dialects.core.composites import composite
from mlirc.dialects.core.dialect import Composite, imports
from mlirc.dialects.core.graph_builder import NotOurs
from mlirc.dialects.core.import_arguments import need_floats, need_shape
from mlirc.dialects.core.tensor_types import TensorInfo, contiguous, info_of, opmath
from mlirc.dialects.ops.rows.layer_norm import affine, masked, moments
from mlirc.dialects.ops.rows.reduction import squeeze

aten = torch.ops.aten
SHORT_RUN = 64  # channels of a group: so many are read well pixel by pixel


class GroupNorm(Composite, name="group_norm"):
    """(x - mean) * rstd * weight + bias; the mean and 1/deviation are [N, groups], weight and bias [C] or constants."""

    x: ext.Operand[Any]
    weight: ext.Operand[Any]
    bias: ext.Operand[Any]
    groups: Any
    eps: Any
    out: ext.Result[Any]
    mean: ext.Result[Any]
    rstd: ext.Result[Any]

    @staticmethod
    def expand(g, x, weight, bias, groups, eps):
        given, shape = info_of(x), info_of(x).shape
        x, weight, bias = (g.cast(v, opmath(given.dtype)) for v in (x, weight, bias))
        if are_short_runs(given, groups):
            middle, rstd, centre = moments_by_channels(g, x, groups, eps)
            weight, bias = (across(g, v, x) for v in (weight, bias))
            centre, scale = (append_ones(g, join(g, v, shape[:2]), len(shape) - 2) for v in (centre, rstd))
            out = g.add(g.mul(g.mul(g.sub(x, centre), scale), weight), bias)
            return out, first_of_group(g, middle), first_of_group(g, rstd)
        x = split(g, x, 1, groups)
        dims = tuple(range(2, info_of(x).rank))
        middle, rstd, centre = moments(g, x, dims, eps)
        weight, bias = (per_channel(g, v, groups, len(shape) - 2) for v in (weight, bias))
        out = g.add(g.mul(g.mul(g.sub(x, centre), rstd), weight), bias)
        return join(g, out, shape), squeeze(g, middle, dims), squeeze(g, rstd, dims)


class GroupNormBackward(Composite, name="group_norm_backward"):
    """The gradients by x, weight and bias."""

    grad: ext.Operand[Any]
    x: ext.Operand[Any]
    mean: ext.Operand[Any]
    rstd: ext.Operand[Any]
    weight: ext.Operand[Any]
    groups: Any
    dx: ext.Result[Any]
    dweight: ext.Result[Any]
    dbias: ext.Result[Any]

    @staticmethod
    def expand(g, grad, x, middle, rstd, weight, groups):
        shape = info_of(x).shape
        dtype = opmath(info_of(x).dtype)
        grad, x, middle, rstd, weight = (g.cast(v, dtype) for v in (grad, x, middle, rstd, weight))
        grad, x = split(g, grad, 1, groups), split(g, x, 1, groups)
        rank = info_of(x).rank
        middle, rstd = (append_ones(g, v, rank - 2) for v in (middle, rstd))
        normal = g.mul(g.sub(x, middle), rstd)
        # sums of each image's channels first: all three gradients are made of them, so x and grad are read twice in all
        along, bare = (sum_kept(g, v, tuple(range(3, rank))) for v in (g.mul(grad, normal), grad))
        weight = per_channel(g, weight, groups, rank - 3)
        points = tuple(info_of(x).shape[2:])
        slope, level = (mean_of_sums(g, g.mul(v, weight), 2, points) for v in (along, bare))
        rest = g.sub(g.sub(g.mul(grad, weight), g.mul(normal, slope)), level)
        dx = join(g, g.mul(rstd, rest), shape)
        others = (0, *range(3, rank))
        dweight, dbias = (squeeze(g, sum_kept(g, v, (0,)), others) for v in (along, bare))
        return dx, join(g, dweight, shape[1:2], 0), join(g, dbias, shape[1:2], 0)


def are_short_runs(info, groups):
    """Whether a group's channels lie side by side in each pixel, and are few: a row that goes over them and the pixels is 8 elements here and 8
    there. Of numbers that float64 has the digits for, and where each channel has a first element."""
    each, points = info.shape[1] // groups, symbols.product(info.shape[2:])
    few = info.stride[1] == 1 and 1 < each < SHORT_RUN and info.rank > 2
    return few and info.device == "cpu" and opmath(info.dtype) != torch.float64 and symbols.known_positive(points)


def moments_by_channels(g, x, groups, eps):
    """Like `moments` (layer_norm.py), [N, groups, C/groups], equal for a group's channels, so that who reads them goes over all channels at once.

    Sums of each channel come first, which read x once and in its order: of its elements, and of the squares of their differences from the
    first one, in float64 (squares_in_one_pass in reduction.py says why these have the digits). A group's squares are those of its channels
    and what the channels' means differ by.
    """
    info = info_of(x)
    dims, each = tuple(range(2, info.rank)), info.shape[1] // groups
    points = g.size(symbols.product(info.shape[2:]), torch.float64)
    wide, first = g.cast(x, torch.float64), g.cast(first_elements(g, x), torch.float64)
    rest = g.sub(wide, first)
    sums, squares = g.reduce("sum", wide, dims, True), g.reduce("sum", g.mul(rest, rest), dims, True)
    means = g.div(sums, points)
    apart = g.sub(means, first)
    squares = g.maximum(g.sub(squares, g.mul(g.mul(apart, apart), points)), 0.0)
    means, squares = (for_each_channel(g, v, groups) for v in (means, squares))
    middle = g.div(g.reduce("sum", means, (3,), True), float(each))
    apart = g.sub(means, middle)
    total = g.reduce("sum", g.add(squares, g.mul(g.mul(apart, apart), points)), (3,), True)
    variance = g.cast(g.div(total, g.mul(points, float(each))), info.dtype)
    rstd, middle = g.rsqrt(g.add(variance, eps)), g.cast(middle, info.dtype)
    rstd, middle = (squeeze(g, v, (3,)) for v in (rstd, middle))
    return middle, rstd, g.select(g.eq(rstd, 0.0), 0.0, middle)


def first_elements(g, x):
    """The first element of each channel, [N, C, 1, ...]."""
    info = info_of(x)
    ones = (1,) * (info.rank - 2)
    return g.view(
        x,
        (*info.shape[:2], *ones),
        info.stride,
        [symbols.symbol("d0"), symbols.symbol("d1"), *map(int, "0" * len(ones))],
    )


def for_each_channel(g, x, groups):
    """A number for each channel, [N, C, 1, ...] in its order, as rows [N, groups, C/groups, C/groups]: that of a group for each of its channels."""
    info = info_of(x)
    each = info.shape[1] // groups
    d = [symbols.symbol(f"d{k}") for k in range(4)]
    index = [d[0], d[1] * each + d[3], *[0] * (info.rank - 2)]
    return g.view(
        x, (info.shape[0], groups, each, each), (info.stride[0], info.stride[1] * each, 0, info.stride[1]), index
    )


def first_of_group(g, x):
    """What is equal for a group's channels, [N, groups, C/groups], for each group."""
    info = info_of(x)
    return g.view(x, info.shape[:2], info.stride[:2], [symbols.symbol("d0"), symbols.symbol("d1"), 0])


def across(g, v, x):
    """A value for each channel, [C], as [C, 1, ...] to broadcast with `x`; a constant as it is."""
    return append_ones(g, v, info_of(x).rank - 2) if info_of(v).rank else v


def split(g, x, dim, groups):
    """`x` with dimension `dim` of size C seen as two of sizes groups and C/groups."""
    info = info_of(x)
    each = info.shape[dim] // groups
    d = [symbols.symbol(f"d{k}") for k in range(info.rank + 1)]
    shape = (*info.shape[:dim], groups, each, *info.shape[dim + 1 :])
    stride = (*info.stride[:dim], info.stride[dim] * each, *info.stride[dim:])
    return g.view(x, shape, stride, [*d[:dim], d[dim] * each + d[dim + 1], *d[dim + 2 :]])


def join(g, x, shape, dim=1):
    """A row-major `x` with dimensions `dim` and the next seen as one; `shape` is what comes out."""
    each = info_of(x).shape[dim + 1]
    d = [symbols.symbol(f"d{k}") for k in range(len(shape))]
    return g.view(x, shape, contiguous(shape), [*d[:dim], d[dim] // each, d[dim] % each, *d[dim + 1 :]])


def sum_kept(g, x, dims):
    """The sum over `dims`, which may be none; they stay, of size 1."""
    return g.reduce("sum", x, dims, True) if dims else x


def mean_of_sums(g, sums, dim, sizes):
    """The mean of elements of which there are the product of `sizes`, given their sums over all dimensions but `dim`."""
    count = g.size(symbols.product(sizes), info_of(sums).dtype)
    return g.div(g.reduce("sum", sums, (dim,), True), count)


def append_ones(g, x, times):
    """`x` with dimensions of size 1 behind its own."""
    info = info_of(x)
    d = [symbols.symbol(f"d{k}") for k in range(info.rank)]
    return g.view(x, (*info.shape, *(1,) * times), (*info.stride, *(1,) * times), d)


def per_channel(g, x, groups, times):
    """A parameter [C] as [groups, C/groups, 1, ...]; a constant as it is."""
    return append_ones(g, split(g, x, 0, groups), times) if info_of(x).rank else x


def need_known_channels(x):
    if not isinstance(info_of(x).shape[1], int):
        raise NotOurs(f"groups of {info_of(x).shape[1]} channels: PyTorch does not say that the groups divide them")
    if not info_of(x).shape[1]:
        raise NotOurs("a group norm of no channels")


@imports(aten.native_group_norm.default)
def group_norm(g, x, weight, bias, n, c, hxw, groups, eps):
    """Without weight and bias eager adds nothing, so that -0.0 stays -0.0. Adding -0.0 has the same effect."""
    need_known_channels(x)
    for parameter in (weight, bias):
        need_shape(parameter, info_of(x).shape[1:2], "a parameter")
    bias_is_absent = weight is None and bias is None
    weight, bias = affine(g, x, weight, bias)
    if bias_is_absent:
        bias = g.constant(-0.0, opmath(info_of(x).dtype))
    return tuple(composite("group_norm", [x, weight, bias], g.outs, groups=groups, eps=float(eps)))


@imports(aten.native_group_norm_backward.default)
def group_norm_backward(g, grad, x, middle, rstd, weight, n, c, hxw, groups, mask):
    need_known_channels(x)
    need_floats(grad, middle, rstd)
    return channel_gradients("group_norm_backward", g, grad, x, middle, rstd, weight, mask, groups=groups)


def channel_gradients(name, g, grad, x, middle, rstd, weight, mask, **attributes):
    """The gradients of x [N, C, ...], weight [C] and bias [C] that `mask` asks for, by the composite `name`."""
    parameter = TensorInfo(
        info_of(x if weight is None else weight).dtype, info_of(x).shape[1:2], device=info_of(x).device
    )
    operands = [grad, x, middle, rstd, affine(g, x, weight)[0]]
    return masked(composite(name, operands, [info_of(x), parameter, parameter], **attributes), mask)

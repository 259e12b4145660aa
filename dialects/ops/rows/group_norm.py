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
        shape = info_of(x).shape
        x, weight, bias = (g.cast(v, opmath(info_of(x).dtype)) for v in (x, weight, bias))
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

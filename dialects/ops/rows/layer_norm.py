"""Normalisation over the last dimensions: layer norm, RMS norm, and their gradients. Half types compute in float32.

Composites take every operand: an absent weight is the constant 1, an absent bias the constant 0.
"""

from typing import Any

import torch

from mlirc.dialects.core.bindings import ext
from mlirc.dialects.core.composites import composite
from mlirc.dialects.core.dialect import Composite, imports
from mlirc.dialects.core.graph_builder import NotOurs
from mlirc.dialects.core.import_arguments import need_floats
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, opmath
from mlirc.dialects.ops.rows.reduction import mean, steady_mean, sum_over

aten = torch.ops.aten


class LayerNorm(Composite, name="layer_norm"):
    """(x - mean) * rstd * weight + bias over the last `axes` dimensions; also gives the mean and rstd = 1/deviation."""

    x: ext.Operand[Any]
    weight: ext.Operand[Any]
    bias: ext.Operand[Any]
    axes: Any
    eps: Any
    out: ext.Result[Any]
    mean: ext.Result[Any]
    rstd: ext.Result[Any]

    @staticmethod
    def expand(g, x, weight, bias, axes, eps):
        x, weight, bias = (g.cast(v, opmath(info_of(x).dtype)) for v in (x, weight, bias))
        dims = last(x, axes)
        middle, rstd, centre = moments(g, x, dims, eps)
        return g.add(g.mul(g.mul(g.sub(x, centre), rstd), weight), bias), middle, rstd


class LayerNormBackward(Composite, name="layer_norm_backward"):
    """The gradients by x, weight and bias."""

    grad: ext.Operand[Any]
    x: ext.Operand[Any]
    mean: ext.Operand[Any]
    rstd: ext.Operand[Any]
    weight: ext.Operand[Any]
    axes: Any
    dx: ext.Result[Any]
    dweight: ext.Result[Any]
    dbias: ext.Result[Any]

    @staticmethod
    def expand(g, grad, x, middle, rstd, weight, axes):
        dtype = opmath(info_of(x).dtype)
        grad, x, middle, rstd, weight = (g.cast(v, dtype) for v in (grad, x, middle, rstd, weight))
        dims = last(x, axes)
        normal = g.mul(g.sub(x, middle), rstd)
        first = tuple(range(dims[0]))
        dx = from_normal(g, g.mul(grad, weight), normal, rstd, dims, centred=True)
        dx = g.add(dx, 0.0)  # eager's sums begin at 0.0: of gradients that are -0.0 it is 0.0
        return dx, sum_over(g, g.mul(grad, normal), first), sum_over(g, grad, first)


class RmsNorm(Composite, name="rms_norm"):
    """x * rstd * weight over the last `axes` dimensions, where rstd = 1/root of the mean square, the other result."""

    x: ext.Operand[Any]
    weight: ext.Operand[Any]
    axes: Any
    eps: Any
    out: ext.Result[Any]
    rstd: ext.Result[Any]

    @staticmethod
    def expand(g, x, weight, axes, eps):
        x, weight = (g.cast(v, opmath(info_of(x).dtype)) for v in (x, weight))
        rstd = g.rsqrt(g.add(mean(g, g.mul(x, x), last(x, axes), True), eps))
        return g.mul(g.mul(x, rstd), weight), rstd


class RmsNormBackward(Composite, name="rms_norm_backward"):
    """The gradients by x and weight."""

    grad: ext.Operand[Any]
    x: ext.Operand[Any]
    rstd: ext.Operand[Any]
    weight: ext.Operand[Any]
    axes: Any
    dx: ext.Result[Any]
    dweight: ext.Result[Any]

    @staticmethod
    def expand(g, grad, x, rstd, weight, axes):
        grad, x, rstd, weight = (g.cast(v, opmath(info_of(x).dtype)) for v in (grad, x, rstd, weight))
        dims = last(x, axes)
        normal = g.mul(x, rstd)
        dx = from_normal(g, g.mul(grad, weight), normal, rstd, dims, centred=False)
        return dx, sum_over(g, g.mul(grad, normal), tuple(range(dims[0])))


def moments(g, x, dims, eps):
    """The mean of rows, 1/deviation, and what is subtracted from the elements: the mean, or 0 where the deviation is infinite, which no NaN
    comes of."""
    middle = steady_mean(g, x, dims, True)
    rest = g.sub(x, middle)
    rstd = g.rsqrt(g.add(mean(g, g.mul(rest, rest), dims, True), eps))
    return middle, rstd, g.select(g.eq(rstd, 0.0), 0.0, middle)  # an infinite number's rstd is NaN


def last(x, axes):
    """The last `axes` dimensions of x."""
    rank = info_of(x).rank
    return tuple(range(rank - axes, rank))


def from_normal(g, grad, normal, rstd, dims, centred):
    """The gradient by x, given that by its normalised values (x - mean) * rstd; without the mean if not `centred`."""
    rest = g.sub(grad, g.mul(normal, mean(g, g.mul(grad, normal), dims, True)))
    if centred:
        rest = g.sub(rest, mean(g, grad, dims, True))
    return g.mul(rstd, rest)


def affine(g, x, weight, bias=None):
    """Weight and bias for a composite: constants where there is none."""
    dtype = opmath(info_of(x).dtype)
    need_floats(x, weight, bias)
    need_dtypes_of_norms(x, weight, bias)
    return (
        g.constant(1.0, dtype) if weight is None else weight,
        g.constant(0.0, dtype) if bias is None else bias,
    )


def need_dtypes_of_norms(x, *parameters):
    """NotOurs for dtypes that eager refuses on a CPU: parameters have that of x, or are all float32 beside a half type."""
    dtype, others = info_of(x).dtype, {info_of(p).dtype for p in parameters if p is not None}
    if info_of(x).device == "cpu" and others - {dtype} and (others != {torch.float32} or dtype.itemsize != 2):
        raise NotOurs(f"a norm of {dtype} with parameters of {', '.join(sorted(map(str, others)))}")


@imports(aten.native_layer_norm.default)
def layer_norm(g, x, shape, weight, bias, eps):
    return tuple(composite("layer_norm", [x, *affine(g, x, weight, bias)], g.outs, axes=len(shape), eps=float(eps)))


@imports(aten.native_layer_norm_backward.default)
def layer_norm_backward(g, grad, x, shape, middle, rstd, weight, bias, mask):
    need_floats(grad, middle, rstd)
    parameter = TensorInfo(
        info_of(x if weight is None else weight).dtype, info_of(x).shape[-len(shape) :], device=info_of(x).device
    )
    results = [info_of(x), parameter, parameter]
    operands = [grad, x, middle, rstd, affine(g, x, weight)[0]]
    return masked(composite("layer_norm_backward", operands, results, axes=len(shape)), mask)


@imports(aten._fused_rms_norm.default)
def rms_norm(g, x, shape, weight, eps):
    eps = torch.finfo(opmath(info_of(x).dtype)).eps if eps is None else eps
    return tuple(composite("rms_norm", [x, affine(g, x, weight)[0]], g.outs, axes=len(shape), eps=float(eps)))


@imports(aten._fused_rms_norm_backward.default)
def rms_norm_backward(g, grad, x, shape, rstd, weight, mask):
    need_floats(grad, rstd)
    parameter = TensorInfo(
        info_of(x if weight is None else weight).dtype, info_of(x).shape[-len(shape) :], device=info_of(x).device
    )
    operands = [grad, x, rstd, affine(g, x, weight)[0]]
    made = composite("rms_norm_backward", operands, [info_of(x), parameter], axes=len(shape))
    return masked(made, mask)


def masked(results, mask):
    """The results that an ATen output mask asks for, None for the others."""
    return tuple(value if wanted else None for value, wanted in zip(results, mask, strict=True))

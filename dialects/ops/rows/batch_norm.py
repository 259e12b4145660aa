"""Batch norm, as CPU graphs hold it, and its gradient: x [N, C, ...] is normalised within each channel."""

from typing import Any

import torch

from mlirc.dialects.core.bindings import ext
from mlirc.dialects.core.composites import composite
from mlirc.dialects.core.dialect import Composite, imports
from mlirc.dialects.core.graph_builder import NotOurs
from mlirc.dialects.core.import_arguments import count, need_floats, need_shape
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, opmath
from mlirc.dialects.ops.rows.group_norm import across, channel_gradients
from mlirc.dialects.ops.rows.layer_norm import affine, need_dtypes_of_norms
from mlirc.dialects.ops.rows.reduction import mean, squeeze, steady_mean, sum_over

aten = torch.ops.aten


class BatchNormTraining(Composite, name="batch_norm_training"):
    """(x - mean) * rstd * weight + bias by the batch's own statistics, which are results too: [C], variance biased."""

    x: ext.Operand[Any]
    weight: ext.Operand[Any]
    bias: ext.Operand[Any]
    eps: Any
    out: ext.Result[Any]
    mean: ext.Result[Any]
    rstd: ext.Result[Any]
    variance: ext.Result[Any]

    @staticmethod
    def expand(g, x, weight, bias, eps):
        x, weight, bias = (g.cast(v, opmath(info_of(x).dtype)) for v in (x, weight, bias))
        dims = all_but_channels(x)
        middle = g.cast(steady_mean(g, wide(g, x), dims, True), info_of(x).dtype)
        rest = g.sub(x, middle)
        variance = mean(g, g.mul(rest, rest), dims, True)
        rstd = g.rsqrt(g.add(variance, eps))
        weight, bias = (across(g, v, x) for v in (weight, bias))
        centre = g.select(g.eq(rstd, 0.0), 0.0, middle)  # the distance from a mean may overflow
        out = g.add(g.mul(g.sub(x, centre), g.mul(rstd, weight)), bias)
        return out, *(squeeze(g, v, dims) for v in (middle, rstd, variance))


class BatchNormInference(Composite, name="batch_norm_inference"):
    """(x - mean) / sqrt(variance + eps) * weight + bias by the running statistics."""

    x: ext.Operand[Any]
    weight: ext.Operand[Any]
    bias: ext.Operand[Any]
    mean: ext.Operand[Any]
    variance: ext.Operand[Any]
    eps: Any
    out: ext.Result[Any]

    @staticmethod
    def expand(g, x, weight, bias, middle, variance, eps):
        dtype = opmath(info_of(x).dtype)
        x, weight, bias, middle, variance = (g.cast(v, dtype) for v in (x, weight, bias, middle, variance))
        scale = across(g, g.mul(g.rsqrt(g.add(variance, eps)), weight), x)
        return g.add(g.mul(g.sub(x, across(g, middle, x)), scale), across(g, bias, x))


class BatchNormBackward(Composite, name="batch_norm_backward"):
    """The gradients by x, weight and bias; the statistics are constants if not `training`."""

    grad: ext.Operand[Any]
    x: ext.Operand[Any]
    mean: ext.Operand[Any]
    rstd: ext.Operand[Any]
    weight: ext.Operand[Any]
    training: Any
    dx: ext.Result[Any]
    dweight: ext.Result[Any]
    dbias: ext.Result[Any]

    @staticmethod
    def expand(g, grad, x, middle, rstd, weight, training):
        dtype = opmath(info_of(x).dtype)
        grad, x, middle, rstd, weight = (g.cast(v, dtype) for v in (grad, x, middle, rstd, weight))
        dims = all_but_channels(x)
        rstd, weight = across(g, rstd, x), across(g, weight, x)
        normal = g.mul(g.sub(x, across(g, middle, x)), rstd)
        product, given = wide(g, g.mul(grad, normal)), wide(g, grad)
        dweight, dbias = (g.cast(sum_over(g, v, dims), dtype) for v in (product, given))
        if training:  # the same two sums again: the weight, one number a channel, stays out of them
            along, common = (g.cast(mean(g, v, dims, True), dtype) for v in (product, given))
            grad = g.sub(g.sub(grad, g.mul(normal, along)), common)
        return g.mul(g.mul(rstd, weight), grad), dweight, dbias


def wide(g, x):
    """What a sum goes over: on a CPU eager adds up in double, and a convolution before it has a gradient that nearly cancels."""
    return g.cast(x, torch.float64) if info_of(x).device == "cpu" else x


def all_but_channels(x):
    return tuple(d for d in range(info_of(x).rank) if d != 1)


@imports(aten._native_batch_norm_legit_functional.default)
def batch_norm(g, x, weight, bias, running_mean, running_var, training, momentum, eps):
    if not training:
        raise NotOurs("a functional batch norm that is not training")
    need_floats(running_mean, running_var)
    need_dtypes_of_norms(x, weight, bias, running_mean, running_var)
    need_vectors(x, weight, bias, running_mean, running_var)
    out, middle, rstd, variance = train(g, x, weight, bias, eps)
    elements = count(info_of(x), all_but_channels(x))
    wide = info_of(middle).dtype
    unbiased = g.mul(variance, g.div(g.size(elements, wide), g.size(elements - 1, wide)))
    moved = (
        g.add(g.mul(new, momentum), g.mul(g.cast(old, wide), 1 - momentum))
        for new, old in ((middle, running_mean), (unbiased, running_var))
    )
    return out, middle, rstd, *moved


@imports(aten._native_batch_norm_legit.no_stats)
def batch_norm_no_stats(g, x, weight, bias, training, momentum, eps):
    return train(g, x, weight, bias, eps)[:3]


def need_vectors(x, *parameters):
    """NotOurs unless each has a number for each channel."""
    for parameter in parameters:
        need_shape(parameter, info_of(x).shape[1:2], "a parameter")


def train(g, x, weight, bias, eps):
    statistic = TensorInfo(opmath(info_of(x).dtype), info_of(x).shape[1:2], device=info_of(x).device)
    operands = [x, *affine(g, x, weight, bias)]
    return composite("batch_norm_training", operands, [g.outs[0], *[statistic] * 3], eps=float(eps))


@imports(aten._native_batch_norm_legit_no_training.default)
def batch_norm_inference(g, x, weight, bias, running_mean, running_var, momentum, eps):
    need_floats(running_mean, running_var)
    need_dtypes_of_norms(x, weight, bias, running_mean, running_var)
    need_vectors(x, weight, bias, running_mean, running_var)
    operands = [x, *affine(g, x, weight, bias), running_mean, running_var]
    (out,) = composite("batch_norm_inference", operands, g.outs[:1], eps=float(eps))
    if info_of(x).device == "cpu":
        return out, *(g.iota(info.shape, 0, info.dtype) for info in g.outs[1:])  # of size 0: there are no statistics
    middle, variance = (g.cast(v, opmath(info_of(x).dtype)) for v in (running_mean, running_var))
    return out, middle, g.rsqrt(g.add(variance, float(eps)))


@imports(aten.native_batch_norm_backward.default)
def batch_norm_backward(g, grad, x, weight, running_mean, running_var, middle, rstd, training, eps, mask):
    if not training:
        need_floats(running_var)
        variance = g.cast(running_var, opmath(info_of(x).dtype))
        middle, rstd = running_mean, g.rsqrt(g.add(variance, float(eps)))
    if middle is None or rstd is None:
        raise NotOurs("the gradient of a batch norm without its statistics")
    need_floats(grad, middle, rstd)
    return channel_gradients("batch_norm_backward", g, grad, x, middle, rstd, weight, mask, training=bool(training))

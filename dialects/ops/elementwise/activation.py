"""Activations, as ATen's CPU kernels compute them: in float32 for half types, rounded once at the end."""

import math

import torch
import torch.nn.functional as F

from mlirc.dialects.core.dialect import Unary, imports
from mlirc.dialects.core.graph_builder import NotOurs
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.ops.elementwise.clamp import Clamp

aten = torch.ops.aten


class Activation(Unary):
    computes = "float"
    cheap = False


def sigmoid_scalar(b, x):
    one = b.constant(1.0)
    return b.div(one, b.add(one, b.exp(b.neg(x))))


class Relu(Unary, name="relu", aten=(aten.relu.default,)):
    """max(x, 0), and NaN of NaN. Of -0.0 it is the zero that eager's kernels give: -0.0 on x86, 0.0 on a GPU."""

    reference = staticmethod(torch.relu)
    scalar = staticmethod(lambda b, x: b.maximum(x, b.constant(0)))


class Sigmoid(Activation, name="sigmoid", aten=(aten.sigmoid.default, aten.special_expit.default)):
    reference = staticmethod(torch.sigmoid)
    scalar = staticmethod(sigmoid_scalar)


class Silu(Activation, name="silu", aten=(aten.silu.default,)):
    reference = staticmethod(F.silu)
    scalar = staticmethod(lambda b, x: b.div(x, b.add(b.constant(1.0), b.exp(b.neg(x)))))


class Mish(Activation, name="mish", aten=(aten.mish.default,)):
    """x * tanh(softplus(x))"""

    reference = staticmethod(F.mish)
    scalar = staticmethod(lambda b, x: b.mul(x, b.tanh(b.log1p(b.exp(x)))))


class Gelu(Activation, name="gelu"):
    """x * the normal distribution's cumulative function, by erf."""

    reference = staticmethod(F.gelu)

    @staticmethod
    def scalar(b, x):
        cdf = b.add(b.constant(1.0), b.erf(b.mul(x, b.constant(math.sqrt(0.5)))))
        return b.mul(b.mul(x, b.constant(0.5)), cdf)


class GeluTanh(Activation, name="gelu_tanh"):
    """gelu by its approximation with tanh."""

    reference = staticmethod(lambda x: F.gelu(x, approximate="tanh"))

    @staticmethod
    def scalar(b, x):
        cube = b.mul(b.mul(x, x), x)
        inner = b.mul(b.constant(math.sqrt(2 / math.pi)), b.add(x, b.mul(b.constant(0.044715), cube)))
        return b.mul(b.mul(b.constant(0.5), x), b.add(b.constant(1.0), b.tanh(inner)))


@imports(aten.gelu.default)
def gelu(g, x, *, approximate="none"):
    return g.elementwise(GeluTanh if approximate == "tanh" else Gelu, x)


class Hardswish(Activation, name="hardswish", aten=(aten.hardswish.default,)):
    """x * relu6(x + 3) / 6"""

    cheap = True
    reference = staticmethod(F.hardswish)

    @staticmethod
    def scalar(b, x):
        gate = b.minimum(b.maximum(b.add(x, b.constant(3.0)), b.constant(0.0)), b.constant(6.0))
        return b.div(b.mul(x, gate), b.constant(6.0))


class Hardsigmoid(Activation, name="hardsigmoid", aten=(aten.hardsigmoid.default,)):
    """relu6(x + 3) / 6"""

    cheap = True
    reference = staticmethod(F.hardsigmoid)

    @staticmethod
    def scalar(b, x):
        gate = b.minimum(b.maximum(b.add(x, b.constant(3.0)), b.constant(0.0)), b.constant(6.0))
        return b.div(gate, b.constant(6.0))


class LogSigmoid(Activation, name="log_sigmoid"):
    """log(sigmoid(x)), without overflow."""

    reference = staticmethod(F.logsigmoid)

    @staticmethod
    def scalar(b, x):
        return b.sub(b.minimum(x, b.constant(0.0)), b.log1p(b.exp(b.neg(b.abs(x)))))


@imports(aten.log_sigmoid_forward.default)
def log_sigmoid_forward(g, x):
    """The result, and exp(-|x|), which the backward pass reuses; on a GPU an empty tensor, as in eager."""
    (wide,) = g.widen(x)
    if info_of(x).device != "cpu":
        return g.log_sigmoid(wide), g.fill(0.0, (0,), info_of(x).dtype)
    return g.log_sigmoid(wide), g.exp(g.neg(g.abs(wide)))


@imports(aten.relu6.default)
def relu6(g, x):
    return g.elementwise(Clamp, x, 0, 6)


@imports(aten.leaky_relu.default)
def leaky_relu(g, x, negative_slope=0.01):
    (x,) = g.widen(x)
    return g.select(g.gt(x, 0), x, g.mul(x, negative_slope))


@imports(aten._prelu_kernel.default)
def prelu(g, x, weight):
    x, weight = g.widen(x, weight)
    return g.select(g.gt(x, 0), x, g.mul(x, weight))


@imports(aten.elu.default)
def elu(g, x, alpha=1, scale=1, input_scale=1):
    """scale*x, and below 0 alpha*scale*expm1(input_scale*x)."""
    (x,) = g.widen(x)
    below = g.mul(g.expm1(g.mul(x, input_scale)), g.mul(alpha, scale))
    return g.select(g.lt(x, 0), below, g.mul(x, scale))


@imports(aten.celu.default)
def celu(g, x, alpha=1.0):
    if not isinstance(alpha, int | float) or alpha == 0:
        raise NotOurs("a division by 0, or by what only a call says: eager raises for 0")
    return elu(g, x, alpha, 1, g.reciprocal(alpha))


@imports(aten.selu.default)
def selu(g, x):
    return elu(g, x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


@imports(aten.softplus.default)
def softplus(g, x, beta=1, threshold=20):
    """log(1 + exp(beta*x)) / beta, and x itself beyond the threshold."""
    (x,) = g.widen(x)
    scaled = g.mul(x, beta)
    return g.select(g.gt(scaled, threshold), x, g.div(g.log1p(g.exp(scaled)), beta))


@imports(aten.threshold.default)
def threshold(g, x, threshold, value):
    compared = unrounded(g, x, threshold) if g.info(x).device == "cpu" else x
    return g.select(g.le(compared, threshold), g.cast(value, g.info(x).dtype), x)


def unrounded(g, x, *bounds):
    """x, or x as float32 where its half type would round a bound."""
    info = g.info(x)
    half = info.dtype in (torch.float16, torch.bfloat16)
    kept = all(isinstance(b, int | float) and torch.tensor(b, dtype=info.dtype).item() == b for b in bounds)
    return g.cast(x, torch.float32) if half and not kept else x


@imports(aten.hardshrink.default)
def hardshrink(g, x, lambd=0.5):
    return g.select(g.logical_and(g.ge(x, g.mul(lambd, -1)), g.le(x, lambd)), 0.0, x)


@imports(aten.softshrink.default)
def softshrink(g, x, lambd=0.5):
    """x moved towards 0 by lambd; NaN stays."""
    (x,) = g.widen(x)
    inside = g.select(g.lt(x, g.mul(lambd, -1)), g.add(x, lambd), g.select(g.isnan(x), x, 0.0))
    return g.select(g.gt(x, lambd), g.sub(x, lambd), inside)

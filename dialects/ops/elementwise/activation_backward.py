"""Gradients of activations: from the gradient that comes in, and the activation's input or output.

The formulas are those of ATen's kernels, in float32 for half types. At a kink each takes the side that ATen takes. For NaN as the
activation's input ATen's kernels contradict each other: on a CPU ours give what its vectors give, on a GPU what its GPU kernels give.
"""

import math

import torch

from mlirc.dialects.core.dialect import Binary, imports
from mlirc.dialects.core.graph_builder import NotOurs
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.ops.elementwise.activation import sigmoid_scalar, unrounded
from mlirc.dialects.ops.elementwise.special import logit_bounds

aten = torch.ops.aten

ONE_SIXTH = 0.16666667163372040  # of float32, which ATen uses for float64 too


class Gradient(Binary):
    """x is the gradient of the activation's output, y the activation's input (or, where it says so, output)."""

    cheap = False


def one_minus_square(b, y):
    """1 - y*y, rounded once."""
    return b.fma(b.neg(y), y, b.constant(1.0))


class SigmoidBackward(Gradient, name="sigmoid_backward", aten=(aten.sigmoid_backward.default,)):
    """y is the output."""

    cheap = True
    reference = staticmethod(aten.sigmoid_backward)
    scalar = staticmethod(lambda b, x, y: b.mul(b.mul(x, b.sub(b.constant(1.0), y)), y))


class TanhBackward(Gradient, name="tanh_backward", aten=(aten.tanh_backward.default,)):
    """y is the output."""

    cheap = True
    reference = staticmethod(aten.tanh_backward)
    scalar = staticmethod(lambda b, x, y: b.mul(x, one_minus_square(b, y)))


class SiluBackward(Gradient, name="silu_backward", aten=(aten.silu_backward.default,)):
    reference = staticmethod(aten.silu_backward)

    @staticmethod
    def scalar(b, x, y):
        one, gate = b.constant(1.0), sigmoid_scalar(b, y)
        return b.mul(b.mul(x, gate), b.add(one, b.mul(y, b.sub(one, gate))))


class MishBackward(Gradient, name="mish_backward", aten=(aten.mish_backward.default,)):
    reference = staticmethod(aten.mish_backward)

    @staticmethod
    def scalar(b, x, y):
        gate = sigmoid_scalar(b, y)
        outer = b.tanh(b.log1p(b.exp(y)))
        return b.mul(x, b.add(outer, b.mul(b.mul(y, gate), one_minus_square(b, outer))))


def alike(*tensors):
    """Broadcast, in memory too: oneDNN's kernel, which eager may choose here, takes nothing else."""
    return [x.contiguous() for x in torch.broadcast_tensors(*tensors)]


class GeluBackward(Gradient, name="gelu_backward"):
    reference = staticmethod(lambda x, y: aten.gelu_backward(*alike(x, y)))

    @staticmethod
    def scalar(b, x, y):
        half = b.constant(0.5)
        cdf = b.mul(half, b.add(b.constant(1.0), b.erf(b.mul(y, b.constant(math.sqrt(0.5))))))
        pdf = b.mul(b.constant(1 / math.sqrt(2 * math.pi)), b.exp(b.mul(b.mul(y, y), b.constant(-0.5))))
        return b.mul(x, b.add(cdf, b.mul(y, pdf)))


class GeluTanhBackward(Gradient, name="gelu_tanh_backward"):
    reference = staticmethod(lambda x, y: aten.gelu_backward(*alike(x, y), approximate="tanh"))

    @staticmethod
    def scalar(b, x, y):
        one, half, beta = b.constant(1.0), b.constant(0.5), b.constant(math.sqrt(2 / math.pi))
        square = b.mul(y, y)
        inner = b.mul(beta, b.add(y, b.mul(b.constant(0.044715), b.mul(square, y))))
        outer = b.tanh(inner)
        left = b.mul(half, b.add(one, outer))
        inner_slope = b.mul(beta, b.add(one, b.mul(b.constant(3 * 0.044715), square)))
        right = b.mul(b.mul(b.mul(half, y), one_minus_square(b, outer)), inner_slope)
        return b.mul(x, b.add(left, right))


class HardswishBackward(Gradient, name="hardswish_backward"):
    jumps = True
    cheap = True
    reference = staticmethod(aten.hardswish_backward)

    @staticmethod
    def scalar(b, x, y):
        three = b.constant(3.0)
        slope = b.mul(x, b.add(b.div(y, three), b.constant(0.5)))
        above = b.select(b.ge(y, three), x, slope)
        return b.select(b.le(y, b.constant(-3.0)), b.constant(0.0), above)


class HardsigmoidBackward(Gradient, name="hardsigmoid_backward", aten=(aten.hardsigmoid_backward.default,)):
    jumps = True
    cheap = True
    reference = staticmethod(aten.hardsigmoid_backward)

    @staticmethod
    def scalar(b, x, y):
        inside = b.and_(b.gt(y, b.constant(-3.0)), b.lt(y, b.constant(3.0)))
        return b.select(inside, b.mul(x, b.constant(ONE_SIXTH)), b.constant(0.0))


def on_cpu(x) -> bool:
    return info_of(x).device == "cpu"


@imports(aten.hardswish_backward.default)
def hardswish_backward(g, grad, x):
    made = g.elementwise(HardswishBackward, grad, x)
    return made if on_cpu(x) else g.select(g.ne(x, x), grad, made)


@imports(aten.gelu_backward.default)
def gelu_backward(g, grad, x, *, approximate="none"):
    return g.elementwise(GeluTanhBackward if approximate == "tanh" else GeluBackward, grad, x)


@imports(aten.log_sigmoid_backward.default)
def log_sigmoid_backward(g, grad, x, buffer):
    """grad * sigmoid(-x); `buffer` is exp(-|x|) from the forward pass, or empty, on a GPU."""
    saved = on_cpu(x)
    grad, x = g.widen(grad, x)
    buffer = g.widen(buffer)[0] if saved else g.exp(g.neg(g.abs(x)))
    share = g.div(buffer, g.add(buffer, 1.0))
    return g.mul(g.select(g.lt(x, 0.0), g.sub(1.0, share), share), grad)


@imports(aten.threshold_backward.default)
def threshold_backward(g, grad, x, threshold):
    compared = unrounded(g, x, threshold) if on_cpu(x) else x
    return g.select(g.le(compared, threshold), 0.0, grad)


@imports(aten.hardtanh_backward.default)
def hardtanh_backward(g, grad, x, min_val, max_val):
    in_vectors, x = on_cpu(x), unrounded(g, x, min_val, max_val)
    if in_vectors:
        return g.select(g.logical_and(g.gt(x, min_val), g.lt(x, max_val)), grad, 0.0)
    return g.select(g.logical_or(g.le(x, min_val), g.ge(x, max_val)), 0.0, grad)


@imports(aten.leaky_relu_backward.default)
def leaky_relu_backward(g, grad, x, negative_slope, self_is_result):
    grad, x = g.widen(grad, x)
    return g.select(g.gt(x, 0.0), grad, g.mul(grad, negative_slope))


@imports(aten.rrelu_with_noise_backward.default)
def rrelu_backward(g, grad, x, noise, lower, upper, training, self_is_result):
    if not all(isinstance(n, int | float) for n in (lower, upper)):
        raise NotOurs("slopes that only a call says")
    if training and upper - lower <= 1e-6:
        raise NotOurs("slopes that are one, of which versions of PyTorch disagree")
    if training:
        return g.mul(noise, grad)
    return leaky_relu_backward(g, grad, x, (lower + upper) / 2, self_is_result)


@imports(aten._prelu_kernel_backward.default)
def prelu_backward(g, grad, x, weight):
    grad, x, weight = g.widen(grad, x, weight)
    positive = g.gt(x, 0.0)
    return g.select(positive, grad, g.mul(weight, grad)), g.select(positive, 0.0, g.mul(x, grad))


@imports(aten.elu_backward.default)
def elu_backward(g, grad, alpha, scale, input_scale, is_result, x):
    """x is the input, or the output where `is_result`."""
    in_vectors = on_cpu(x)
    grad, x = g.widen(grad, x)
    factor = g.mul(alpha, scale)
    if is_result:
        below = g.mul(g.mul(grad, input_scale), g.add(x, factor))
    else:
        below = g.mul(g.mul(g.mul(grad, input_scale), factor), g.exp(g.mul(x, input_scale)))
    above = g.mul(grad, scale)
    return g.select(g.gt(x, 0.0), above, below) if in_vectors else g.select(g.le(x, 0.0), below, above)


@imports(aten.softplus_backward.default)
def softplus_backward(g, grad, x, beta, threshold):
    grad, x = g.widen(grad, x)
    scaled = g.mul(x, beta)
    z = g.exp(scaled)
    return g.select(g.gt(scaled, threshold), grad, g.div(g.mul(grad, z), g.add(z, 1.0)))


@imports(aten.hardshrink_backward.default, aten.softshrink_backward.default)
def shrink_backward(g, grad, x, lambd):
    lowest = g.mul(lambd, -1)
    if on_cpu(x):
        return g.select(g.logical_or(g.lt(x, lowest), g.gt(x, lambd)), grad, 0.0)
    return g.select(g.logical_and(g.ge(x, lowest), g.le(x, lambd)), 0.0, grad)


@imports(aten.logit_backward.default)
def logit_backward(g, grad, x, eps=None):
    """grad / (x * (1 - x)) inside [eps, 1 - eps]; outside 0, or NaN without eps. A negative eps is none."""
    eps = None if isinstance(eps, int | float) and eps < 0 else eps
    in_vectors, dtype = on_cpu(x), info_of(x).dtype
    grad, x = g.widen(grad, x)
    lower, upper = (0.0, 1.0) if eps is None else logit_bounds(g, eps, dtype if in_vectors else torch.float32)
    slope = g.div(grad, g.mul(x, g.sub(1.0, x)))
    beyond = math.nan if eps is None else 0.0
    if in_vectors:
        return g.select(g.logical_and(g.ge(x, lower), g.le(x, upper)), slope, beyond)
    return g.select(g.logical_or(g.lt(x, lower), g.gt(x, upper)), beyond, slope)

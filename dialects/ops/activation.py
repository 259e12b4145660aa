"""Activations, as ATen's CPU kernels compute them: in float32 for half types, rounded once at the end."""

import math

import torch
import torch.nn.functional as F

from mlirc.dialects.dialect import Unary, imports

aten = torch.ops.aten


class Activation(Unary):
    computes = "float"
    cheap = False


def sigmoid_scalar(b, x):
    one = b.constant(1.0)
    return b.div(one, b.add(one, b.exp(b.neg(x))))


class Relu(Unary, name="relu", aten=(aten.relu.default,)):
    """max(x, 0), and NaN of NaN; of -0.0 either zero."""

    reference = staticmethod(torch.relu)

    @staticmethod
    def scalar(b, x):
        return b.select(b.lt(x, b.constant(0)), b.constant(0), x)


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

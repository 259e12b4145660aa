"""The logarithm of the gamma function, and its derivative.

Both use the gamma function's recurrence to come to one of two ranges: [0.5, 3), for which a rational function was fitted, or [8, inf) for
Stirling's series. A negative x goes to 1 - x by reflection. Coefficients are for float32 and float64, the highest power first, with
relative errors below the dtype's rounding.
"""

import math

import torch

from mlirc.dialects.core.dialect import imports
from mlirc.dialects.core.graph_builder import NotOurs
from mlirc.dialects.core.symbols import symbol
from mlirc.dialects.ops.elementwise.exponential import FloatUnary
from mlirc.dialects.ops.elementwise.special import polynomial

aten = torch.ops.aten

LARGE = 8.0  # from here on Stirling's series

# lgamma(y) / ((y - 1) * (y - 2)) in y - 0.5, for y in [0.5, 3): numerator, denominator
NEAR_ZEROS = {
    torch.float32: (
        [0.002267586961, 0.2190808674, 1.339150416, 1.960068229, 0.7631532507],
        [0.08271451521, 1.092141708, 3.359528791, 3.332233959, 1.0],
    ),
    torch.float64: (
        [0.00038965728239399183, 0.026840529369528323, 0.4436256817444039, 2.850227100354232, 8.656003529473006,
         13.593959959456642, 11.290058335811908, 4.686813802092723, 0.7631532572329335],
        [7.792232757649192e-05, 0.00915244786120975, 0.22820649202578164, 2.1328547743549393, 9.354858985794998,
         21.516527426550006, 27.302325731378772, 19.12794385294338, 6.905233997961779, 1.0],
    ),
}  # fmt: skip
# (lgamma(x) - (x - 1/2) * (log(x) - 1) - log(2 * pi) / 2 + 1/2) * x in 1 / x**2, for x >= 8
LOG_TAIL = {
    torch.float32: [0.0007800535416936804, -0.002777698809444405, 0.08333333326498422],
    torch.float64: [0.005068954879276948, -0.0018905259500827624, 0.0008414725985143036, -0.0005952366048744345,
                    0.0007936507898270707, -0.002777777777774088, 0.08333333333333333],
}  # fmt: skip
# (log(x) - 1 / (2 * x) - digamma(x)) * x**2 in 1 / x**2, for x >= 8
DERIVATIVE_TAIL = {
    torch.float32: [0.003873747808286528, -0.008332785829117584, 0.08333333286013482],
    torch.float64: [0.06367007791612952, -0.02070026513558956, 0.00757172968190034, -0.004166645147899297,
                    0.0039682539131452605, -0.008333333333280233, 0.08333333333333333],
}  # fmt: skip


def distance_to_integer(b, x):
    """x less the nearest integer, exact."""
    return b.sub(x, b.round(x))


class Lgamma(FloatUnary, name="lgamma"):
    """log(|gamma(x)|): infinite at 0, -1, -2, ..., inf and -inf."""

    jumps = True
    reference = staticmethod(torch.lgamma)

    @staticmethod
    def scalar(b, x):
        zero, half, one, large = (b.constant(c) for c in (0.0, 0.5, 1.0, LARGE))
        size, negative = b.abs(x), b.lt(x, zero)
        regular = b.ge(x, half)
        z = b.select(regular, x, b.add(one, size))
        # lgamma(y + n) = lgamma(y) + log(product), product = y * (y + 1) * ... * (y + n - 1), to y in [2, 3)
        y, product = z, one
        for _ in range(5):
            above = b.ge(y, b.constant(3.0))
            less = b.sub(y, one)
            y, product = b.select(above, less, y), b.select(above, b.mul(product, less), product)
        in_series = b.ge(z, large)
        log = b.log(b.select(in_series, z, product))
        over, under = (polynomial(b, b.sub(y, half), c) for c in NEAR_ZEROS[b.dtype])
        near = b.mul(b.mul(b.sub(y, one), b.sub(y, b.constant(2.0))), b.div(over, under))
        inverse = b.div(one, z)
        tail = b.mul(inverse, polynomial(b, b.mul(inverse, inverse), LOG_TAIL[b.dtype]))
        tail = b.add(b.constant(0.5 * math.log(2 * math.pi) - 0.5), tail)
        series = b.fma(b.sub(z, half), b.sub(log, one), tail)
        of_z = b.select(in_series, series, b.add(near, log))
        # below 0.5 z is x + 1, or 1 - x: gamma(x) = gamma(x + 1) / x, or pi / (sin(pi * x) * gamma(1 - x))
        sine = b.sin(b.mul(b.constant(math.pi), b.abs(distance_to_integer(b, size))))
        log = b.log(b.select(negative, b.mul(sine, b.constant(1 / math.pi)), size))
        result = b.select(regular, of_z, b.sub(b.select(negative, b.neg(of_z), of_z), log))
        infinity = b.constant(math.inf)
        pole = b.and_(negative, b.eq(sine, zero))
        return b.select(b.or_(pole, b.eq(size, infinity)), infinity, result)


class Digamma(FloatUnary, name="digamma"):
    """The derivative of lgamma: -inf at 0, inf at -0.0, NaN at -1, -2, ... and -inf."""

    jumps = True
    reference = staticmethod(torch.digamma)

    @staticmethod
    def scalar(b, x):
        zero, one, large = (b.constant(c) for c in (0.0, 1.0, LARGE))
        size, negative = b.abs(x), b.lt(x, zero)
        z = b.select(negative, b.add(one, size), x)
        # digamma(z) = digamma(z + 8) - 1/z - 1/(z + 1) - ... - 1/(z + 7): the sum of the fractions is one, over / under
        over, under = one, z
        for k in range(1, int(LARGE)):
            factor = b.add(z, b.constant(float(k)))
            over, under = b.fma(over, factor, under), b.mul(under, factor)
        in_series = b.ge(z, large)
        inverse = b.div(one, b.select(in_series, z, b.add(z, large)))
        square = b.mul(inverse, inverse)
        tail = b.fma(b.constant(0.5), inverse, b.mul(square, polynomial(b, square, DERIVATIVE_TAIL[b.dtype])))
        of_z = b.sub(b.log(b.select(in_series, z, b.add(z, large))), tail)
        of_z = b.select(in_series, of_z, b.sub(of_z, b.div(over, under)))
        # pi / tan(pi * d) = pi * tan(pi * (0.5 - d)), which is exact at d = 0.5, where the former loses all digits
        distance = distance_to_integer(b, x)
        d = b.abs(distance)
        steep = b.lt(d, b.constant(0.25))
        tangent = b.tan(b.mul(b.constant(math.pi), b.select(steep, d, b.sub(b.constant(0.5), d))))
        cotangent = b.mul(b.constant(math.pi), b.select(steep, b.div(one, tangent), tangent))
        reflected = b.sub(of_z, b.copysign(cotangent, distance))
        nan = b.constant(math.nan)
        result = b.select(negative, b.select(b.eq(d, zero), nan, reflected), of_z)
        return b.select(b.eq(x, zero), b.copysign(b.constant(math.inf), b.neg(x)), result)


@imports(aten.lgamma.default, aten.special_gammaln.default)
def lgamma(g, x):
    return in_float64(g, g.lgamma, x)


@imports(aten.digamma.default, aten.special_psi.default, aten.special_digamma.default)
def digamma(g, x):
    return in_float64(g, g.digamma, x)


def in_float64(g, function, x):
    """The function of x, in float64 on a CPU: near its negative zeros the terms of the reflection cancel, and eager's kernels have the digits."""
    (x,) = g.widen(g.cast(x, g.out.dtype))
    info = g.info(x)
    return g.cast(function(g.cast(x, torch.float64)), info.dtype) if info.device == "cpu" else function(x)


@imports(aten.mvlgamma.default, aten.special_multigammaln.default)
def mvlgamma(g, x, p):
    """The logarithm of the gamma function of p dimensions: the sum of lgamma(x - i / 2) for i < p, and a constant."""
    if not (isinstance(p, int) and p >= 1):
        raise NotOurs("eager refuses a p below 1, which the meta function takes")
    (x,) = g.widen(g.cast(x, g.out.dtype))
    dtype = g.info(x).dtype
    halves = g.div(g.iota((p,), symbol("d0"), dtype), 2.0)
    terms = in_float64(g, g.lgamma, g.sub(g.unsqueeze(x, -1), halves))
    return g.add(g.reduce("sum", terms, (-1,)), p * (p - 1) * math.log(math.pi) / 4)

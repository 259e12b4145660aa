"""Special functions, and repairs of special values."""

import math

import torch

from mlirc.dialects.core.dialect import Binary, imports
from mlirc.dialects.core.graph_builder import NotOurs
from mlirc.dialects.core.import_arguments import need_kernel_dtypes
from mlirc.dialects.core.scalar_builder import is_nan
from mlirc.dialects.ops.elementwise.exponential import FloatBinary, FloatUnary

aten = torch.ops.aten


class Erf(FloatUnary, name="erf", aten=(aten.erf.default, aten.special_erf.default)):
    reference = staticmethod(torch.erf)
    scalar = staticmethod(lambda b, x: b.erf(x))


class Erfc(FloatUnary, name="erfc", aten=(aten.erfc.default, aten.special_erfc.default)):
    reference = staticmethod(torch.erfc)
    scalar = staticmethod(lambda b, x: b.erfc(x))


def polynomial(b, x, coefficients):
    """A polynomial by Horner's rule; coefficients begin with the highest power."""
    result = b.constant(coefficients[0])
    for c in coefficients[1:]:
        result = b.fma(result, x, b.constant(c))
    return result


# Rational approximations of erfinv, good to 4e-4 next to 1. Each of Halley's steps triples the digits: float32 needs one, float64 two.
ERFINV_CENTRE = ([-0.140543331, 0.914624893, -1.645349621, 0.886226899],
                 [0.012229801, -0.329097515, 1.442710462, -2.118377725, 1.0])  # fmt: skip
ERFINV_TAIL = ([1.641345311, 3.429567803, -1.624906493, -1.970840454], [1.637067800, 3.543889200, 1.0])


class Erfinv(FloatUnary, name="erfinv"):
    """The x with erf(x) equal to the operand: infinite at 1 and -1, NaN beyond."""

    jumps = True
    reference = staticmethod(torch.erfinv)

    @staticmethod
    def scalar(b, x):
        one, size = b.constant(1.0), b.abs(x)
        rest, in_centre = b.sub(one, size), b.le(size, b.constant(0.7))
        above, below = (polynomial(b, b.mul(x, x), c) for c in ERFINV_CENTRE)
        centre = b.div(b.mul(size, above), below)
        root = b.sqrt(b.neg(b.log(b.div(rest, b.constant(2.0)))))
        above, below = (polynomial(b, root, c) for c in ERFINV_TAIL)
        result = b.select(in_centre, centre, b.div(above, below))
        for _ in range(1 if b.dtype == torch.float32 else 2):
            slope = b.mul(b.constant(2 / math.sqrt(math.pi)), b.exp(b.neg(b.mul(result, result))))
            # in the tail erf is nearly 1, and only 1 - erf tells one value from the next
            error = b.select(in_centre, b.sub(b.erf(result), size), b.sub(rest, b.erfc(result)))
            newton = b.div(error, slope)
            result = b.sub(result, b.div(newton, b.fma(result, newton, one)))
        result = b.select(b.eq(size, one), b.constant(math.inf), result)
        return b.copysign(b.select(b.gt(size, one), b.constant(math.nan), result), x)


@imports(aten.erfinv.default, aten.special_erfinv.default)
def erfinv(g, x):
    if g.out.device == "cpu" and g.out.dtype == torch.float32:
        raise NotOurs("in float32 PyTorch's kernel has more digits, and is as fast")
    (x,) = g.widen(g.cast(x, g.out.dtype))
    return g.erfinv(x)


# (x + 1/2) * erfcx(x) for x >= 0, in 1 - 6 / (x + 3), the highest power first; relative errors are below the dtype's rounding
ERFCX = {
    torch.float32: [
        -4.627258343e-05, -0.0002569252564, 0.0009375395619, 0.001143256852, -0.01188178822, 0.03420479083, -0.05963763764,
        0.06481375236, -0.02378107846, -0.06781011946, 0.6265040282
    ],
    torch.float64: [
        4.1570091943686416e-10, 4.900142440437921e-10, -4.086710107633558e-09, -6.6394424233407476e-09,
        2.0478941604775918e-08, 5.087788889215833e-08, -7.01657755718735e-08, -3.082467555872058e-07, 1.7781833841345207e-07,
        1.73614056671421e-06, -3.6537939288979765e-07, -1.0050246888606774e-05, 2.4745855911568704e-06, 6.254966271737697e-05,
        -5.257985676564294e-05, -0.0003899161329246093, 0.0009443451720524278, 0.0012646959075895573, -0.011885257458547597,
        0.034154013672024114, -0.05963683170769482, 0.06482257935137904, -0.02378114717672457, -0.06781055306229057,
        0.6265040291348648
    ],
}  # fmt: skip


class Erfcx(FloatUnary, name="erfcx", aten=(aten.special_erfcx.default,)):
    """exp(x * x) * erfc(x), without overflow for positive x; 2 * exp(x * x) - erfcx(-x) for negative."""

    jumps = True
    reference = staticmethod(torch.special.erfcx)

    @staticmethod
    def scalar(b, x):
        size, three = b.abs(x), b.constant(3.0)
        t = b.sub(b.constant(1.0), b.div(b.constant(6.0), b.add(size, three)))
        positive = b.div(polynomial(b, t, ERFCX[b.dtype]), b.add(size, b.constant(0.5)))
        # x * x is high * high, which is exact, and a rest: rounded, it would lose some x * x units
        bounded = b.minimum(size, b.constant(30.0))
        high = b.mul(b.trunc(b.mul(bounded, b.constant(16.0))), b.constant(1 / 16))
        rest = b.mul(b.sub(bounded, high), b.add(bounded, high))
        twice = b.mul(b.mul(b.constant(2.0), b.exp(rest)), b.exp(b.mul(high, high)))
        return b.select(b.lt(x, b.constant(0.0)), b.sub(twice, positive), positive)


@imports(aten.special_log_ndtr.default)
def log_ndtr(g, x):
    """The logarithm of the normal distribution function: from erfcx in the lower tail, where 1 - erfc would be 0."""
    (x,) = g.widen(g.cast(x, g.out.dtype))
    scaled = g.mul(x, math.sqrt(0.5))
    tail = g.sub(g.log(g.div(g.erfcx(g.neg(scaled)), 2.0)), g.mul(g.mul(x, 0.5), x))  # x * x may overflow
    return g.select(g.lt(x, -1.0), tail, g.log1p(g.div(g.neg(g.erfc(scaled)), 2.0)))


class Entr(FloatUnary, name="entr", aten=(aten.special_entr.default,)):
    """-x * log(x), and 0 at 0; -inf of negative numbers."""

    jumps = True
    reference = staticmethod(torch.special.entr)

    @staticmethod
    def scalar(b, x):
        zero = b.constant(0.0)
        rest = b.select(b.eq(x, zero), zero, b.constant(-math.inf))
        result = b.select(b.gt(x, zero), b.mul(b.neg(x), b.log(x)), rest)
        return b.select(is_nan(b, x), x, result)


class Logit(FloatUnary, name="logit"):
    """log(x / (1 - x))"""

    jumps = True
    reference = staticmethod(torch.logit)
    scalar = staticmethod(lambda b, x: b.log(b.div(x, b.sub(b.constant(1.0), x))))


@imports(aten.logit.default, aten.special_logit.default)
def logit(g, x, eps=None):
    """Below eps and above 1 - eps, x is taken to be there."""
    if eps is None:
        return g.elementwise(Logit, x)
    (x,) = g.widen(g.cast(x, g.out.dtype) if g.out else x)
    dtype = g.out.dtype if g.out else g.info(x).dtype
    lower, upper = logit_bounds(g, eps, dtype)
    x = g.select(g.lt(x, lower), lower, g.select(g.gt(x, upper), upper, x))
    return g.logit(x)


def logit_bounds(g, eps, dtype: torch.dtype):
    """eps and 1 - eps; both are rounded to a half type, as in eager."""
    if isinstance(eps, float) and dtype in (torch.float16, torch.bfloat16):
        eps = torch.tensor(eps, dtype=dtype).item()
        return eps, (1 - torch.tensor(eps, dtype=dtype)).item()
    return eps, g.sub(1.0, eps)


class Copysign(FloatBinary, name="copysign", aten=(aten.copysign.Tensor, aten.copysign.Scalar)):
    cheap = True
    reference = staticmethod(torch.copysign)
    scalar = staticmethod(lambda b, x, y: b.copysign(x, y))


class Nextafter(FloatBinary, name="nextafter"):
    """The number of the computed dtype next to x in the direction of y; y where they are equal, NaN where either is."""

    cheap = True
    jumps = True
    reference = staticmethod(torch.nextafter)

    @staticmethod
    def scalar(b, x, y):
        zero, bits = b.constant(0.0), torch.int64 if b.dtype == torch.float64 else torch.int32
        one = b.constant(1, bits)
        # the bits of neighbours of one sign differ by 1, and those further from zero are greater as integers without their sign
        nearer = b.xor(b.gt(y, x), b.gt(x, zero))
        moved = b.add(b.bitcast(x, bits), b.select(nearer, b.constant(-1, bits), one))
        sign = b.and_(b.bitcast(y, bits), b.constant(torch.iinfo(bits).min, bits))
        result = b.bitcast(b.select(b.eq(x, zero), b.or_(sign, one), moved), b.dtype)
        result = b.select(b.eq(x, y), y, result)
        return b.select(b.or_(is_nan(b, x), is_nan(b, y)), b.add(x, y), result)


@imports(aten.nextafter.default)
def nextafter(g, x, y):
    dtype = g.promote(x, y)
    if dtype not in (torch.float32, torch.float64):
        raise NotOurs(f"neighbours of {dtype}: kernels compute in float32, whose neighbours are others")
    return g.elementwise(Nextafter, x, y)


class Heaviside(Binary, name="heaviside", aten=(aten.heaviside.default,)):
    """0 below 0, 1 above, and y at 0; 0 of NaN."""

    jumps = True
    reference = staticmethod(torch.heaviside)

    @staticmethod
    def scalar(b, x, y):
        zero = b.constant(0)
        return b.select(b.eq(x, zero), y, b.select(b.gt(x, zero), b.constant(1), zero))


@imports(aten.nan_to_num.default)
def nan_to_num(g, x, nan=None, posinf=None, neginf=None):
    need_kernel_dtypes(x)
    dtype = g.info(x).dtype
    if not dtype.is_floating_point:
        return g.copy(x)
    largest = torch.finfo(dtype).max
    above = g.select(g.isposinf(x), largest if posinf is None else posinf, x)
    finite = g.select(g.isneginf(x), -largest if neginf is None else neginf, above)
    return g.select(g.isnan(x), 0.0 if nan is None else nan, finite)

"""Powers and roots: pow, pow_wide, square, sqrt, rsqrt, reciprocal, hypot."""

import math

import torch

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import Binary, Ternary, Unary, imports
from mlirc.dialects.core.graph_builder import NotOurs
from mlirc.dialects.core.import_arguments import need_kernel_dtypes
from mlirc.dialects.ops.elementwise.arithmetic import Mul

aten = torch.ops.aten

LARGEST_UNROLLED_EXPONENT = 64  # an integer to a constant power is at most 11 multiplications


class Reciprocal(Unary, name="reciprocal", aten=(aten.reciprocal.default,)):
    computes = "float"
    reference = staticmethod(torch.reciprocal)
    scalar = staticmethod(lambda b, x: b.div(b.constant(1.0), x))


class Sqrt(Unary, name="sqrt", aten=(aten.sqrt.default,)):
    jumps = True
    computes = "float"
    reference = staticmethod(torch.sqrt)
    scalar = staticmethod(lambda b, x: b.sqrt(x))


class Rsqrt(Unary, name="rsqrt", aten=(aten.rsqrt.default,)):
    jumps = True
    computes = "float"
    reference = staticmethod(torch.rsqrt)
    scalar = staticmethod(lambda b, x: b.div(b.constant(1.0), b.sqrt(x)))


class Pow(Binary, name="pow"):
    """x**y of floating-point numbers, as C's pow."""

    cheap = False
    jumps = True
    reference = staticmethod(torch.pow)
    scalar = staticmethod(lambda b, x, y: b.pow(x, y))


class PowWide(Ternary, name="pow_wide"):
    """x**(high + low): an exponent with more bits than x has. The sum is exact in float64, so that odd exponents stay odd."""

    cheap = False
    jumps = True
    computes = "float"
    reference = staticmethod(lambda x, high, low: torch.pow(x.double(), high.double() + low.double()).to(x.dtype))

    @staticmethod
    def scalar(b, x, high, low):
        exponent = b.add(b.cast(high, torch.float64), b.cast(low, torch.float64))
        return b.cast(b.pow(x, exponent), x.dtype)


@imports(aten.square.default)
def square(g, x):
    return g.elementwise(Mul, x, x)


@imports(aten.pow.Tensor_Scalar)
def pow_scalar(g, x, exponent):
    """Exponents for which eager does not call pow have the formulas of eager: sqrt(-inf) is NaN, pow(-inf, 0.5) is inf.

    Eager rounds an exponent to a half type: bfloat16's (-2) ** 2.001 is (-2) ** 2. On a CPU it rounds one to float32 in its vectors alone:
    what is computed here is the exponent that was written.
    """
    dtype = g.out.dtype if g.out else g.promote(x, exponent)
    need_kernel_dtypes(dtype)
    if dtype == torch.bool:
        raise NotOurs("a power of booleans")
    if not isinstance(exponent, int | float):
        return pow_number(g, x, exponent, dtype)
    if not dtype.is_floating_point:
        return integer_power(g, g.cast(x, dtype), exponent)
    (x,) = g.widen(g.cast(x, dtype))
    given, exponent = exponent, rounded(exponent, dtype)
    if abs(exponent) == 0.5 and (given != exponent or (dtype == torch.float16 and g.info(x).device == "cpu")):
        # eager's is C's pow, where -0.0 counts as 0.0 and -inf as inf
        root = g.select(g.eq(x, -math.inf), math.inf, g.sqrt(g.add(x, 0.0)))
        return root if exponent > 0 else g.reciprocal(root)
    match exponent:
        case 0:
            return g.fill(1.0, g.info(x).shape, dtype)
        case 1:
            return g.copy(x)
        case 0.5:
            return g.sqrt(x)
        case -0.5:
            return g.rsqrt(x)
        case -1:
            return g.reciprocal(x)
        case 2:
            return g.mul(x, x)
        case 3:
            return g.mul(g.mul(x, x), x)
        case -2:
            return g.reciprocal(g.mul(x, x))
    high = torch.tensor(exponent, dtype=g.info(x).dtype).double().item()
    if high != exponent and math.isfinite(high) and g.info(x).device == "cpu":
        return g.pow_wide(x, high, float(exponent) - high)
    return g.pow(x, exponent)


def pow_number(g, x, number: ir.Value, dtype: torch.dtype) -> ir.Value:
    """x to a number that each call gives. Of 0.5 and -0.5 it is a root, as if the number were known."""
    if dtype not in (torch.float32, torch.float64):
        return pow_tensor(g, x, number)
    x, exponent = g.cast(x, dtype), g.cast(number, torch.float64)
    if dtype == torch.float64 or g.info(x).device != "cpu":
        power = g.pow(x, g.cast(exponent, dtype))
    else:
        high = g.cast(exponent, torch.float32)
        low = g.sub(exponent, g.cast(high, torch.float64))  # NaN where high is infinite
        power = g.pow_wide(x, high, g.select(g.lt(g.abs(high), math.inf), g.cast(low, torch.float32), 0.0))
    if not g.info(number).dtype.is_floating_point:
        return power
    power = g.select(g.eq(exponent, 0.5), g.sqrt(x), power)
    return g.select(g.eq(exponent, -0.5), g.rsqrt(x), power)


def rounded(exponent: int | float, dtype: torch.dtype) -> int | float:
    """The exponent as a half type holds it; other dtypes leave it as it is."""
    return torch.tensor(exponent, dtype=dtype).item() if dtype.itemsize == 2 and not math.isinf(exponent) else exponent


@imports(aten.pow.Tensor_Tensor, aten.pow.Scalar)
def pow_tensor(g, x, exponent):
    dtype = g.out.dtype if g.out else g.promote(x, exponent)
    if not dtype.is_floating_point:
        raise NotOurs("an integer power whose exponents are known at run time only")
    return g.elementwise(Pow, x, exponent)


def integer_power(g, x: ir.Value, exponent: int | float) -> ir.Value:
    """x**exponent by repeated squaring; wraps around as eager does."""
    if not isinstance(exponent, int) or not 0 <= exponent <= LARGEST_UNROLLED_EXPONENT:
        raise NotOurs(f"an integer to the power {exponent}")
    if exponent == 0:
        return g.fill(1, g.info(x).shape, g.info(x).dtype)
    result, square = None, x
    while exponent:
        if exponent & 1:
            result = square if result is None else g.mul(result, square)
        exponent >>= 1
        if exponent:
            square = g.mul(square, square)
    return g.copy(x) if result is x else result


class Hypot(Binary, name="hypot", aten=(aten.hypot.default,)):
    """sqrt(x*x + y*y), scaled by a power of two where squares would overflow or vanish; inf if either is infinite."""

    reference = staticmethod(torch.hypot)

    @staticmethod
    def scalar(b, x, y):
        large, small, up = (600, -450, 600) if b.dtype == torch.float64 else (64, -45, 100)
        x, y = b.abs(x), b.abs(y)
        most = b.select(b.lt(x, y), y, x)
        one = b.constant(1.0)
        down = b.select(b.gt(most, b.constant(2.0 ** (0.75 * large))), b.constant(2.0**-large), one)
        scale = b.select(b.lt(most, b.constant(2.0**small)), b.constant(2.0**up), down)
        back = b.div(one, scale)
        x, y = b.mul(x, scale), b.mul(y, scale)
        result = b.mul(b.sqrt(b.add(b.mul(x, x), b.mul(y, y))), back)
        infinity = b.constant(float("inf"))
        return b.select(b.or_(b.eq(x, infinity), b.eq(y, infinity)), infinity, result)

"""Float32 functions computed inline in float64, where plain formulas are accurate enough.

Each vector of float32 becomes two registers of float64.
"""

import math

import torch

from mlirc.lowering.cpu.math.arithmetic import Arithmetic
from mlirc.lowering.cpu.math.floats import polynomial
from mlirc.lowering.cpu.math.text import Value

# log2(m) / s in s^2, s = (m - 1) / (m + 1), 0.75 <= m < 1.5: relative error 2^-42.4
_LOG2 = (
    0.2908285058561634,
    0.3192853004343251,
    0.41222616477668356,
    0.577077755708211,
    0.9617966948249148,
    2.885390081777425,
)
# 2^r, |r| <= 1/2, relative error 2^-29
_EXP2 = (
    0.00015345785744631284,
    0.0013399957586521611,
    0.009618489253959283,
    0.055503287118654696,
    0.24022646885991591,
    0.6931472057671025,
    1.0000000005550613,
)
# erfc(x) e^(x^2) in (x - 3) / (x + 3), 0 <= x <= 10.1, relative error 2^-29.4
_ERFC = (
    5.5863706376788385e-05,
    2.8757645349658467e-05,
    -0.0005946261507987038,
    0.0007157865527761372,
    0.004268919155970782,
    -0.0243942381422554,
    0.0716658558819553,
    -0.1501157816947185,
    0.2456037980615444,
    -0.3262335638244701,
    0.17900115126018296,
)
_ROUNDING = 1.5 * 2.0**52  # as vector_math_floats.ROUNDING
_THREE_QUARTERS = 0x3FE8000000000000  # the bits of 0.75


def pow_(b: Arithmetic, x: Value, y: Value) -> Value:
    """2^(y log2|x|) of a float32 x, with the sign and the special cases of C's pow. y is a float32, or a float64."""
    double = b.with_dtype(torch.float64)
    zero, one, infinity = b.constant(0.0), b.constant(1.0), b.constant(math.inf)
    size = b.abs(x)
    logarithm = _log2(b, b.cast(size, torch.float64))
    logarithm = b.select(b.eq(size, zero), double.constant(-math.inf), logarithm)
    logarithm = b.select(b.lt(size, infinity), logarithm, b.cast(size, torch.float64))  # inf and NaN
    power = b.mul(b.cast(y, torch.float64), logarithm)
    power = b.minimum(b.maximum(power, double.constant(-200.0)), double.constant(200.0))
    result = b.cast(_exp2(b, power), torch.float32)
    half = b.mul(y, b.constant(0.5, y.dtype))
    whole = b.eq(b.floor(y), y)
    odd = b.and_(whole, b.and_(b.ne(b.floor(half), half), b.lt(b.abs(y), b.constant(math.inf, y.dtype))))
    result = b.select(odd, b.copysign(result, x), result)
    negative = b.and_(b.lt(x, zero), b.lt(size, infinity))
    undefined = b.and_(negative, b.not_(whole))
    result = b.select(undefined, b.constant(math.nan), result)
    both_bounds = b.and_(
        b.eq(size, one), b.eq(b.abs(y), b.constant(math.inf, y.dtype))
    )  # 1 to any power, -1 to an infinite one
    return b.select(b.or_(b.or_(b.eq(y, b.constant(0.0, y.dtype)), b.eq(x, one)), both_bounds), one, result)


def asinh(b: Arithmetic, x: Value) -> Value:
    """ln(|x| + sqrt(x^2 + 1)); its series near 0."""
    size = b.abs(x)
    wide, one = b.cast(size, torch.float64), b.constant(1.0, torch.float64)
    result = _log(b, b.add(wide, b.sqrt(b.fma(wide, wide, one))))
    result = b.select(b.lt(size, b.constant(math.inf)), result, size)  # inf and NaN
    return b.copysign(b.select(b.lt(size, b.constant(2.0**-10)), _series(b, size, -1 / 6), result), x)


def acosh(b: Arithmetic, x: Value) -> Value:
    """ln(x + sqrt((x - 1) (x + 1)))"""
    wide, one = b.cast(x, torch.float64), b.constant(1.0, torch.float64)
    result = _log(b, b.add(wide, b.sqrt(b.mul(b.sub(wide, one), b.add(wide, one)))))
    edge = b.select(b.lt(x, b.constant(1.0)), b.constant(math.nan), x)
    return b.select(b.and_(b.ge(x, b.constant(1.0)), b.lt(x, b.constant(math.inf))), result, edge)


def atanh(b: Arithmetic, x: Value) -> Value:
    """ln((1 + |x|) / (1 - |x|)) / 2; its series near 0."""
    size = b.abs(x)
    wide, one = b.cast(size, torch.float64), b.constant(1.0, torch.float64)
    result = b.mul(_log(b, b.div(b.add(one, wide), b.sub(one, wide))), b.constant(0.5))
    edge = b.select(b.eq(size, b.constant(1.0)), b.constant(math.inf), b.constant(math.nan))
    result = b.select(b.lt(size, b.constant(1.0)), result, edge)
    return b.copysign(b.select(b.lt(size, b.constant(2.0**-10)), _series(b, size, 1 / 3), result), x)


def erfc(b: Arithmetic, x: Value) -> Value:
    """e^(-x^2) P(x), which is 0 from 10.06 on; 2 less that for negative x."""
    size = b.cast(b.minimum(b.abs(x), b.constant(10.1)), torch.float64)
    double = b.with_dtype(torch.float64)
    three = double.constant(3.0)
    scaled = polynomial(b, b.div(b.sub(size, three), b.add(size, three)), _ERFC)
    result = b.mul(scaled, _exp2(b, b.mul(b.mul(size, size), double.constant(-math.log2(math.e)))))
    return b.cast(b.select(b.lt(x, b.constant(0.0)), b.sub(double.constant(2.0), result), result), torch.float32)


def _series(b: Arithmetic, x: Value, third: float) -> Value:
    """x + third * x^3"""
    return b.fma(b.mul(x, b.mul(x, x)), b.constant(third), x)


def _log(b: Arithmetic, x: Value) -> Value:
    """ln(x) as float32, for float64 x from 1 to 2^1000."""
    return b.cast(b.mul(_log2(b, x), b.constant(math.log(2), torch.float64)), torch.float32)


def _log2(b: Arithmetic, x: Value) -> Value:
    """log2 of normal float64 x > 0."""
    # e + 1023 more than 0 stays positive: the logical shift is one that every processor has
    bits = b.bitcast(x, torch.int64)
    offset = b.sub(bits, b.constant(_THREE_QUARTERS - (1023 << 52), torch.int64))
    biased = b.binary("arith.shrui", offset, b.constant(52, torch.int64))
    # an integer below 2^52 in the lowest bits of 2^52 is added to it
    shifted = b.or_(biased, b.constant(0x4330000000000000, torch.int64))
    e = b.sub(b.bitcast(shifted, torch.float64), b.constant(2.0**52 + 1023, torch.float64))
    fraction = b.and_(offset, b.constant((1 << 52) - 1, torch.int64))
    m = b.bitcast(b.add(fraction, b.constant(_THREE_QUARTERS, torch.int64)), torch.float64)
    one = b.constant(1.0, torch.float64)
    s = b.div(b.sub(m, one), b.add(m, one))
    return b.fma(s, polynomial(b, b.mul(s, s), _LOG2), e)


def _exp2(b: Arithmetic, x: Value) -> Value:
    """2^x for float64 x of magnitude below 1000; NaN stays NaN."""
    rounding = b.constant(_ROUNDING, torch.float64)
    shifted = b.add(x, rounding)
    r = b.sub(x, b.sub(shifted, rounding))
    exponent = b.binary("arith.shli", b.bitcast(shifted, torch.int64), b.constant(52, torch.int64))
    scale = b.bitcast(b.add(exponent, b.constant(1023 << 52, torch.int64)), torch.float64)
    return b.mul(polynomial(b, r, _EXP2), scale)

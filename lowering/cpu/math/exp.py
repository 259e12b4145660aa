"""The exponential functions and the hyperbolic ones, inline, of float32.

Each reduces x to n * ln 2 + r with |r| <= ln(2)/2 and takes a polynomial of r. Where AVX2 picks numbers out of a table, a softmax's
reduces it to eighths of ln 2, so that a polynomial of half the degree will do.
"""

import struct

import torch

from mlirc.lowering.cpu.math.arithmetic import Arithmetic
from mlirc.lowering.cpu.math.floats import (
    nearest_integer,
    permuted,
    picks_eight,
    polynomial,
    power_of_two,
    scaled,
    scaled_normal,
    shift_left,
    uses_avx512,
)
from mlirc.lowering.cpu.math.text import Value

LOG2_E = 1.4426950408889634
# ln 2 in two float32 parts; x - n * LN2_HIGH is exact in an fma, as the result has few bits left
LN2_HIGH, LN2_LOW = 0.6931471824645996, -1.904654299957767e-09

# minimax on [-ln(2)/2, ln(2)/2], relative error 2^-28.2
_EXP = (
    0.001382073387503624,
    0.008368677459657192,
    0.04166826605796814,
    0.1666652113199234,
    0.4999999403953552,
    1.0,
    1.0,
)
# (e^r - 1 - r) / r^2, relative error of e^r - 1: 2^-26.1
_EXPM1 = (0.0013870657421648502, 0.00836626160889864, 0.04166743531823158, 0.1666654646396637, 0.4999999701976776)
# 2^r on [-1/2, 1/2], relative error 2^-28.3
EXP2 = (
    0.0001532927853986621,
    0.0013390970416367054,
    0.00961849931627512,
    0.05550359562039375,
    0.24022647738456726,
    0.6931471824645996,
    1.0,
)
# (e^r - 1 - r) / r^2 on [-ln(2)/16, ln(2)/16], relative error of e^r 2^-25.2; with the table's 1.15 units in the last place
_EXP_EIGHTH = (0.1666685789823532, 0.5000645518302917)
# (2^(r/n) - 1) / r on [-1/2, 1/2], relative error of 2^(r/n) 2^-25.2 and 2^-29.2
_ROOTS = {
    8: (0.00010837697482202202, 0.0037540241610258818, 0.08664340525865555),
    16: (1.3550420590036083e-05, 0.0009384152363054454, 0.043321698904037476),
}
LN2_EIGHTH_HIGH, LN2_EIGHTH_LOW = LN2_HIGH / 8, LN2_LOW / 8
# powers of two by which the table is too large, so that e^-104 is a normal number until the last multiplication
RAISED = 48
# (tanh(x) - x) / x^3 in x^2, |x| <= 0.625, relative error of tanh 2^-27.7
_TANH = (-0.0056962440721690655, 0.020630860701203346, -0.053737059235572815, 0.1333140879869461, -0.3333328068256378)
# (sinh(x) - x) / x^3 in x^2, |x| <= 1, relative error of sinh 2^-31.6
_SINH = (2.7822131869470468e-06, 0.00019842895562760532, 0.00833331048488617, 0.1666666716337204)


def reduced(b: Arithmetic, x: Value) -> tuple[Value, Value, Value]:
    """r, n, and n as power_of_two takes it: x = n * ln 2 + r."""
    n, shifted = nearest_integer(b, x, LOG2_E)
    r = b.fma(n, b.constant(-LN2_HIGH), x)
    return b.fma(n, b.constant(-LN2_LOW), r), n, shifted


def clamped(b: Arithmetic, x: Value, low: float, high: float) -> Value:
    """NaN stays NaN."""
    return b.maximum(b.minimum(x, b.constant(high)), b.constant(low))


def exp(b: Arithmetic, x: Value) -> Value:
    """Beyond the bounds the result has long been 0 or inf."""
    r, n, shifted = reduced(b, clamped(b, x, -104.0, 89.0))
    return scaled(b, polynomial(b, r, _EXP), n, shifted)


def exp_of_moderate(b: Arithmetic, x: Value) -> Value:
    """exp for -87 <= x <= 88, where the result is a normal number."""
    r, n, shifted = reduced(b, x)
    return scaled_normal(b, polynomial(b, r, _EXP), n, shifted)


def exp_of_at_most_zero(b: Arithmetic, x: Value) -> Value:
    """exp for x <= 0, and NaN."""
    x = b.maximum(x, b.constant(-104.0))
    if picks_eight(b):
        return _exp_by_eighths(b, x)
    r, n, shifted = reduced(b, x)
    if uses_avx512(b):
        return scaled(b, polynomial(b, r, _EXP), n, shifted)
    # e^r 2^-24, which is exact, times 2^(n + 48), a normal number as n >= -150, and then rounded once
    small = polynomial(b, r, tuple(c * 2.0**-24 for c in _EXP))
    bits = b.add(shift_left(b, b.bitcast(shifted, torch.int32), 23), b.constant((127 + 48) << 23, torch.int32))
    return b.mul(b.mul(small, b.bitcast(bits, torch.float32)), b.constant(2.0**-24))


def _roots(count: int, shift: int, raised: int) -> tuple[float, ...]:
    """2^(j/count) 2^raised, less what adding j << shift to its bits gives back: count << shift adds 1 to the exponent."""
    found = []
    for j in range(count):
        (bits,) = struct.unpack("<i", struct.pack("<f", 2.0 ** (j / count + raised)))
        found.append(struct.unpack("<f", struct.pack("<i", bits - (j << shift)))[0])
    return tuple(found)


_EIGHTHS = _roots(8, 20, RAISED)


def _exp_by_eighths(b: Arithmetic, x: Value) -> Value:
    """exp for -104 <= x <= 0, and NaN: x = n * ln(2)/8 + r, and 2^(n/8) out of a table."""
    n, shifted = nearest_integer(b, x, 8 * LOG2_E)
    number = b.bitcast(shifted, torch.int32)
    near = b.fma(n, b.constant(-LN2_EIGHTH_HIGH), x)  # r but for 3e-7 at most, which only the first power minds
    r = b.fma(n, b.constant(-LN2_EIGHTH_LOW), near)
    power = b.bitcast(permuted(b, _EIGHTHS, number), torch.int32)
    power = b.bitcast(b.add(power, shift_left(b, number, 20)), torch.float32)
    grown = b.fma(b.mul(near, near), polynomial(b, near, _EXP_EIGHTH), r)  # e^r - 1
    result = b.fma(power, grown, power)
    return b.mul(result, b.constant(2.0**-RAISED))


def has_factors(b: Arithmetic) -> bool:
    """Whether one instruction picks as many numbers out of a table as there are lanes."""
    return picks_eight(b) or uses_avx512(b)


def exp_factors(b: Arithmetic, x: Value) -> tuple[Value, Value] | None:
    """Two numbers whose product is e^x for x <= 0, and NaN; e^-87 for less, which a sum of at least 1 does not see.

    x = (n + r) ln(2)/count: 2^(n/count) out of a table, and a polynomial for 2^(r/count). Relative error 1e-7, and 1.4e-8 |x|,
    as log2(e) has one part only. None where no instruction picks as many numbers as there are lanes.
    """
    if not has_factors(b):
        return None
    count, shift = b.lanes, 24 - b.lanes.bit_length()
    x = b.maximum(x, b.constant(-87.0))
    n, shifted = nearest_integer(b, x, count * LOG2_E)
    rest = b.fma(x, b.constant(count * LOG2_E), b.neg(n))
    number = b.bitcast(shifted, torch.int32)
    power = b.bitcast(permuted(b, _roots(count, shift, 0), number), torch.int32)
    power = b.bitcast(b.add(power, shift_left(b, number, shift)), torch.float32)
    return power, polynomial(b, rest, (*_ROOTS[count], 1.0))


def exp2(b: Arithmetic, x: Value) -> Value:
    x = clamped(b, x, -151.0, 129.0)
    n, shifted = nearest_integer(b, x, 1.0)
    return scaled(b, polynomial(b, b.sub(x, n), EXP2), n, shifted)


def expm1(b: Arithmetic, x: Value) -> Value:
    """2^n (e^r - 1) + (2^n - 1), everything halved so that 2^n cannot overflow before the result does."""
    r, _, shifted = reduced(b, clamped(b, x, -18.0, 89.0))
    half = power_of_two(b, b.sub(shifted, b.constant(1.0)))
    tail = b.mul(b.mul(r, r), polynomial(b, r, _EXPM1))
    lead = b.fma(half, r, b.sub(half, b.constant(0.5)))
    return b.copysign(b.mul(b.fma(half, tail, lead), b.constant(2.0)), x)  # keeps -0.0


def tanh(b: Arithmetic, x: Value) -> Value:
    """A polynomial near 0; beyond, 1 - 2 / (e^2|x| + 1), which is 1 from 9.02 on."""
    size = b.abs(x)
    squared = b.mul(x, x)
    small = b.fma(b.mul(polynomial(b, squared, _TANH), squared), size, size)
    doubled = b.minimum(b.add(size, size), b.constant(20.0))
    grown = b.add(exp_of_moderate(b, doubled), b.constant(1.0))
    large = b.sub(b.constant(1.0), b.div(b.constant(2.0), grown))
    return b.copysign(b.select(b.lt(size, b.constant(0.625)), small, large), x)


def cosh(b: Arithmetic, x: Value) -> Value:
    return _half_sum(b, b.abs(x), 1.0)


def sinh(b: Arithmetic, x: Value) -> Value:
    """A polynomial below 1, where the difference of exponentials would cancel."""
    size = b.abs(x)
    squared = b.mul(x, x)
    small = b.fma(b.mul(polynomial(b, squared, _SINH), squared), size, size)
    return b.copysign(b.select(b.lt(size, b.constant(1.0)), small, _half_sum(b, size, -1.0)), x)


def _half_sum(b: Arithmetic, size: Value, sign: float) -> Value:
    """(e^size + sign * e^-size) / 2 for size >= 0.

    Summed from the least term up, at half its value so that 2^n cannot overflow before the result does.
    """
    r, _, shifted = reduced(b, b.minimum(size, b.constant(89.5)))
    quarter = power_of_two(b, b.sub(shifted, b.constant(2.0)))  # 2^n / 4
    tail = b.mul(b.mul(r, r), polynomial(b, r, _EXPM1))
    grown = b.fma(quarter, b.add(r, tail), quarter)  # e^size / 4
    shrunk = b.div(b.constant(sign / 16), grown)  # sign * e^-size / 4
    total = b.add(quarter, b.fma(quarter, r, b.fma(quarter, tail, shrunk)))
    return b.add(total, total)

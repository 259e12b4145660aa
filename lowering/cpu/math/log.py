"""Logarithms, inline, of float32.

Each writes x as 2^e * (1 + f) with 0.75 <= 1 + f < 1.5 and takes ln(1 + f) = f + f^2 P(f).
"""

import math

import torch

from mlirc.lowering.cpu.math.arithmetic import Arithmetic
from mlirc.lowering.cpu.math.floats import avx512, immediate, polynomial, shift_left, shift_right, uses_avx512
from mlirc.lowering.cpu.math.text import Value

# (ln(1 + f) - f) / f^2 on [-0.25, 0.5], relative error of ln 2^-27.6
_LOG = (
    -0.04511690512299538,
    0.10469763725996017,
    -0.13164345920085907,
    0.1447836458683014,
    -0.1664697378873825,
    0.19990815222263336,
    -0.25000104308128357,
    0.3333345055580139,
    -0.5,
)
# log2(1 + f) / f - 1 and log10(1 + f) / f - 1/2
_LOG2 = (
    -0.06521537899971008,
    0.15112489461898804,
    -0.1898733377456665,
    0.2088390588760376,
    -0.24016404151916504,
    0.28840988874435425,
    -0.3606756329536438,
    0.48089995980262756,
    -0.7213475108146667,
    math.log2(math.e) - 1.0,
)
_LOG10 = (
    -0.019483763724565506,
    0.045345939695835114,
    -0.05715032294392586,
    0.06289657205343246,
    -0.07230231165885925,
    0.08681821078062057,
    -0.10857376456260681,
    0.14476534724235535,
    -0.21714724600315094,
    math.log10(math.e) - 0.5,
)
# in two float32 parts: e times the first is exact, and both are positive, so that e of -inf and inf pass through
_LN2 = (0.693145751953125, 1.428606765330187e-06)
_LOG10_2 = (0.301025390625, 4.605039066518657e-06)

_SMALLEST_NORMAL = 2.0**-126
# vgetmantps: mantissa in [0.75, 1.5); NaN for negative numbers; 1 for 0 and inf
_MANTISSA_FORM = 0b1111


def log(b: Arithmetic, x: Value) -> Value:
    e, f = _exponent_and_fraction(b, x)
    high, low = (b.constant(c) for c in _LN2)
    tail = b.fma(e, low, b.mul(b.mul(f, f), polynomial(b, f, _LOG)))
    return _with_specials(b, x, b.fma(e, high, b.add(f, tail)))


def log2(b: Arithmetic, x: Value) -> Value:
    """(e + f) + (log2(1 + f) - f): the first sum is exact next to 1, where the whole is small."""
    e, f = _exponent_and_fraction(b, x)
    rest = b.mul(f, polynomial(b, f, _LOG2))
    return _with_specials(b, x, b.add(b.add(e, f), rest))


def log10(b: Arithmetic, x: Value) -> Value:
    """log10 by the scheme of log2: e * log10(2) + f / 2, with the rounding error of that sum added to the rest. Avoids inf - inf."""
    e, f = _exponent_and_fraction(b, x)
    rest = b.fma(e, b.constant(_LOG10_2[1]), b.mul(f, polynomial(b, f, _LOG10)))
    large, small = b.mul(e, b.constant(_LOG10_2[0])), b.mul(f, b.constant(0.5))
    lead = b.add(large, small)
    lost = b.sub(small, b.sub(lead, large))
    result = b.add(lead, b.add(rest, lost))
    return _with_specials(b, x, b.select(b.lt(b.abs(e), b.constant(math.inf)), result, e))


def log1p(b: Arithmetic, x: Value) -> Value:
    """ln(1 + x). With s = 2^-e for 1 + x, f is x * s + (s - 1), which loses no digit of a small x. For the smallest x the result is x."""
    e, f = _of_one_plus(b, x)
    tail = b.fma(e, b.constant(_LN2[1]), b.mul(b.mul(f, f), polynomial(b, f, _LOG)))
    result = b.fma(e, b.constant(_LN2[0]), b.add(f, tail))
    minus_one = b.constant(-1.0)
    edge = b.select(b.lt(x, minus_one), b.constant(math.nan), b.select(b.eq(x, minus_one), b.constant(-math.inf), x))
    finite = b.and_(b.gt(x, minus_one), b.lt(x, b.constant(math.inf)))
    return b.select(b.and_(finite, b.gt(b.abs(x), b.constant(2.0**-40))), result, edge)


def _of_one_plus(b: Arithmetic, x: Value) -> tuple[Value, Value]:
    """e and f of 1 + x, for -1 < x < inf and |x| not tiny. 4 * 2^-e is a normal number for every e."""
    bits = b.bitcast(b.add(x, b.constant(1.0)), torch.int32)
    whole = shift_right(b, b.sub(bits, b.constant(0x3F400000, torch.int32)), 23)
    shrink = b.bitcast(b.sub(b.constant(0x40800000, torch.int32), shift_left(b, whole, 23)), torch.float32)
    quarter = b.constant(0.25)
    f = b.fma(b.mul(x, quarter), shrink, b.fma(shrink, quarter, b.constant(-1.0)))
    return b.cast(whole, torch.float32), f


def _exponent_and_fraction(b: Arithmetic, x: Value) -> tuple[Value, Value]:
    """e and f. With AVX-512 0 gives (-inf, 0), inf gives (inf, 0), negative numbers NaN; else those are left open."""
    if uses_avx512(b):
        mantissa = avx512(b, "getmant", x, immediate(b, _MANTISSA_FORM))
        e = b.sub(avx512(b, "getexp", x), avx512(b, "getexp", mantissa))
        return e, b.sub(mantissa, b.constant(1.0))
    subnormal = b.lt(x, b.constant(_SMALLEST_NORMAL))
    normal = b.select(subnormal, b.mul(x, b.constant(2.0**23)), x)
    bits = b.sub(b.bitcast(normal, torch.int32), b.constant(0x3F400000, torch.int32))
    e = b.cast(shift_right(b, bits, 23), torch.float32)
    e = b.sub(e, b.select(subnormal, b.constant(23.0), b.constant(0.0)))
    mantissa = b.add(b.and_(bits, b.constant(0x7FFFFF, torch.int32)), b.constant(0x3F400000, torch.int32))
    return e, b.sub(b.bitcast(mantissa, torch.float32), b.constant(1.0))


def _with_specials(b: Arithmetic, x: Value, result: Value) -> Value:
    """-inf of 0, NaN of negative numbers, inf of inf: what _exponent_and_fraction left open."""
    if uses_avx512(b):
        return result
    zero = b.constant(0.0)
    edge = b.select(b.eq(x, zero), b.constant(-math.inf), b.select(b.lt(x, zero), b.constant(math.nan), x))
    return b.select(b.and_(b.gt(x, zero), b.lt(x, b.constant(math.inf))), result, edge)

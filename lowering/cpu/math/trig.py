"""Trigonometric functions and their inverses, inline, of float32.

sin, cos and tan subtract a multiple of pi/2 with fma in parts, which is exact enough up to LARGE; a vector that holds
a larger number also calls SLEEF, for those lanes.
"""

import math

import torch

from mlirc.lowering.cpu.math.arithmetic import Arithmetic
from mlirc.lowering.cpu.math.branches import rarely
from mlirc.lowering.cpu.math.floats import nearest_integer, polynomial, shift_left
from mlirc.lowering.cpu.math.sleef import call
from mlirc.lowering.cpu.math.text import Value

LARGE = 2.0**17

# pi/2 in three float32 parts
_HALF_PI = (1.570796251296997, 7.549789415861596e-08, 5.390302529957765e-15)
_HALF_PI_REST = 6.123233995736766e-17  # pi/2 less the float64 nearest to it

# |x| <= pi/4; (f(x) - x) / x^3 in x^2, of cos (cos(x) - 1 + x^2 / 2) / x^4; relative errors 2^-27.8, 2^-32.8, 2^-29.4
_SIN = (-0.00019507882825564593, 0.008332106284797192, -0.16666653752326965)
_COS = (2.443075027258601e-05, -0.00138873013202101, 0.04166664555668831)
_TAN = (
    0.0044597876868636135,
    -7.641684848093095e-05,
    0.0109639171686829,
    0.02123391717511952,
    0.05406902723793257,
    0.13332585168259814,
    0.3333335195678492,
)
# |x| <= 1/2, relative error 2^-27.6; |x| <= 1, 2^-28.5
_ASIN = (0.04216640442609787, 0.02418077550828457, 0.045469772070646286, 0.07495306432247162, 0.16666752099990845)
_ATAN = (
    -0.0017875476041808724,
    0.010887361131608486,
    -0.031127002090215683,
    0.05790654569864273,
    -0.08400475233793259,
    0.10951174795627594,
    -0.14264051616191864,
    0.1999853104352951,
    -0.33333298563957214,
)


def sin(b: Arithmetic, x: Value) -> Value:
    sine, cosine, quadrant = _sine_and_cosine(b, x)
    result = _in_quadrant(b, sine, cosine, quadrant)
    return _with_large(b, "sin", x, b.select(b.eq(x, b.constant(0.0)), x, result))  # the sums lose the sign of -0.0


def cos(b: Arithmetic, x: Value) -> Value:
    sine, cosine, quadrant = _sine_and_cosine(b, x)
    next_quadrant = b.add(quadrant, b.constant(1, torch.int32))
    return _with_large(b, "cos", x, _in_quadrant(b, sine, cosine, next_quadrant))


def _sine_and_cosine(b: Arithmetic, x: Value) -> tuple[Value, Value, Value]:
    """sin(r), cos(r), and the integer n in the lowest bits: x = n pi/2 + r."""
    n, shifted = nearest_integer(b, x, 2 / math.pi)
    lead = b.fma(n, b.constant(-_HALF_PI[0]), x)  # exact, a multiple of 2^-23
    second = b.mul(n, b.constant(_HALF_PI[1]))
    second_lost = b.fma(n, b.constant(_HALF_PI[1]), b.neg(second))
    r = b.sub(lead, second)
    lost = b.sub(b.sub(b.sub(lead, r), second), second_lost)  # exact: what rounding took from r
    lost = b.fma(n, b.constant(-_HALF_PI[2]), lost)
    squared = b.mul(r, r)
    sine = b.add(r, b.fma(b.mul(polynomial(b, squared, _SIN), squared), r, lost))
    cosine = polynomial(b, squared, (*_COS, -0.5, 1.0))
    return sine, cosine, b.bitcast(shifted, torch.int32)


def _in_quadrant(b: Arithmetic, sine: Value, cosine: Value, quadrant: Value) -> Value:
    """The sine of an angle in that quadrant: sine, cosine, -sine, -cosine."""
    one = b.constant(1, torch.int32)
    size = b.select(b.eq(b.and_(quadrant, one), one), cosine, sine)
    sign = b.and_(shift_left(b, quadrant, 30), b.constant(-(1 << 31), torch.int32))
    return b.bitcast(b.xor(b.bitcast(size, torch.int32), sign), torch.float32)


def tan(b: Arithmetic, x: Value) -> Value:
    """tan(r) or -1 / tan(r) of r = x - n pi/2, all in float64: its slope magnifies every rounding."""
    wide = b.cast(x, torch.float64)
    double = b.with_dtype(torch.float64)
    n = b.round(b.mul(wide, double.constant(2 / math.pi)))
    r = b.fma(n, double.constant(-math.pi / 2), wide)
    r = b.fma(n, double.constant(-_HALF_PI_REST), r)
    squared = b.mul(r, r)
    tangent = b.fma(b.mul(polynomial(b, squared, _TAN), squared), r, r)
    half = b.mul(n, double.constant(0.5))
    even = b.eq(half, b.floor(half))
    result = b.cast(b.select(even, tangent, b.div(double.constant(-1.0), tangent)), torch.float32)
    return _with_large(b, "tan", x, b.select(b.eq(x, b.constant(0.0)), x, result))


def asin(b: Arithmetic, x: Value) -> Value:
    """asin(|x|) = pi/2 - 2 asin(sqrt((1 - |x|) / 2)) from 1/2 on."""
    size = b.abs(x)
    beyond, root, cubed = _asin_parts(b, size)
    high, low = b.constant(_HALF_PI[0]), b.constant(_HALF_PI[1])
    doubled = b.add(root, root)
    lead = b.sub(high, doubled)
    lost = b.sub(b.sub(high, lead), doubled)  # what rounding took from lead
    rest = b.fma(b.constant(-2.0), cubed, b.add(lost, low))
    return b.copysign(b.select(beyond, b.add(lead, rest), b.add(root, cubed)), x)


def acos(b: Arithmetic, x: Value) -> Value:
    """pi/2 - asin(x), and 2 asin(sqrt((1 - |x|) / 2)) beyond 1/2, from pi for negative x."""
    size = b.abs(x)
    beyond, root, cubed = _asin_parts(b, size)
    negative = b.lt(x, b.constant(0.0))
    signed_root, signed_cubed = b.copysign(root, x), b.copysign(cubed, x)
    near = b.sub(b.constant(_HALF_PI[0]), b.sub(signed_root, b.sub(b.constant(_HALF_PI[1]), signed_cubed)))
    twice = b.constant(2.0)
    doubled = b.mul(twice, b.add(root, cubed))
    rest = b.fma(twice, cubed, b.constant(-2 * _HALF_PI[1]))
    reflected = b.sub(b.constant(2 * _HALF_PI[0]), b.fma(twice, root, rest))
    return b.select(beyond, b.select(negative, reflected, doubled), near)


def _asin_parts(b: Arithmetic, size: Value) -> tuple[Value, Value, Value]:
    """Whether size > 1/2; r, size or sqrt((1 - size) / 2); asin(r) - r."""
    half = b.constant(0.5)
    beyond = b.gt(size, half)
    squared = b.select(beyond, b.fma(size, b.constant(-0.5), half), b.mul(size, size))
    root = b.select(beyond, b.sqrt(squared), size)
    return beyond, root, b.mul(root, b.mul(squared, polynomial(b, squared, _ASIN)))


def atan(b: Arithmetic, x: Value) -> Value:
    size, one = b.abs(x), b.constant(1.0)
    beyond = b.gt(size, one)
    ratio = b.div(b.select(beyond, one, size), b.select(beyond, size, one))
    return b.copysign(_atan_of_ratio(b, ratio, beyond), x)


def atan2(b: Arithmetic, y: Value, x: Value) -> Value:
    height, width = b.abs(y), b.abs(x)
    least, most = b.minimum(height, width), b.maximum(height, width)
    ratio = b.div(least, most)
    ratio = b.select(b.eq(least, b.constant(math.inf)), b.constant(1.0), ratio)  # inf / inf
    ratio = b.select(b.eq(most, b.constant(0.0)), b.constant(0.0), ratio)  # 0 / 0
    angle = _atan_of_ratio(b, ratio, b.gt(height, width))
    left = b.lt(b.copysign(b.constant(1.0), x), b.constant(0.0))  # of -0.0 too
    other = b.sub(b.constant(2 * _HALF_PI[0]), b.sub(angle, b.constant(2 * _HALF_PI[1])))
    return b.copysign(b.select(left, other, angle), y)


def _atan_of_ratio(b: Arithmetic, ratio: Value, inverted: Value) -> Value:
    """atan(ratio) for 0 <= ratio <= 1; atan(1 / ratio) where inverted."""
    squared = b.mul(ratio, ratio)
    cubed = b.mul(b.mul(ratio, squared), polynomial(b, squared, _ATAN))
    reflected = b.sub(b.constant(_HALF_PI[0]), b.add(ratio, b.sub(cubed, b.constant(_HALF_PI[1]))))
    return b.select(inverted, reflected, b.add(ratio, cubed))


def _with_large(b: Arithmetic, function: str, x: Value, result: Value) -> Value:
    """`result`, with SLEEF's in the lanes where |x| > LARGE."""
    return rarely(b, b.gt(b.abs(x), b.constant(LARGE)), lambda: call(b, function, x), result)

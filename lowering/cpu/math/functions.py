"""The elementary functions of VectorBuilder: `MATH[name](b, x)` writes the lines for float32 or float64 values.

float32 has inline forms, whose error is below 1.5 units in the last place, and fmod one that is exact. float64 calls SLEEF.
"""

import math
from collections.abc import Callable
from functools import cache
from importlib import import_module

import torch

from mlirc.lowering.cpu.math.arithmetic import Arithmetic
from mlirc.lowering.cpu.math.text import Value

# the functions with an inline form for float32, by the file that has it; a graph loads the files of those that it calls
_INLINE_FLOAT32 = {
    "exp": ("exp", "exp2", "expm1", "tanh", "cosh", "sinh"),
    "log": ("log", "log2", "log10", "log1p"),
    "trig": ("sin", "cos", "tan", "asin", "acos", "atan", "atan2"),
    "double": ("asinh", "acosh", "atanh", "pow", "erfc"),
    "erf": ("erf",),
}
_FILES = {name: file for file, names in _INLINE_FLOAT32.items() for name in names}


@cache
def _inline(name: str) -> Callable | None:
    if name not in _FILES:
        return None
    return getattr(import_module(f"mlirc.lowering.cpu.math.{_FILES[name]}"), "pow_" if name == "pow" else name)


def _call(b: Arithmetic, name: str, *operands: Value) -> Value:
    from mlirc.lowering.cpu.math.sleef import call  # of float64 and few functions of float32

    return call(b, name, *operands)


def _function(name: str) -> Callable:
    def write(b: Arithmetic, *operands: Value) -> Value:
        if all(x.dtype == torch.float32 for x in operands) and (inline := _inline(name)) is not None:
            return inline(b, *operands)
        return _call(b, name, *operands)

    return write


def _power(b: Arithmetic, x: Value, y: Value) -> Value:
    """x ** y, as C's pow; products and a quotient for the constant exponents whose special cases and error are the same.

    A square root is no power: pow(-inf, 0.5) is inf, and pow(-0.0, 0.5) is 0.0. 1 / (x * x) is inexact where x * x is subnormal.
    """
    match b.constant_value(y):
        case 2.0:
            return b.mul(x, x)
        case 3.0:
            return b.mul(b.mul(x, x), x)
        case -1.0:
            return b.div(b.constant(1.0, x.dtype), x)
    if x.dtype == torch.float32 and y.dtype == torch.float64:
        from mlirc.lowering.cpu.math.double import pow_

        return pow_(b, x, y)
    return _function("pow")(b, x, y)


def _log1p(b: Arithmetic, x: Value) -> Value:
    """log(1 + x). For a tiny float64 it is x, where SLEEF gives 0."""
    result = _function("log1p")(b, x)
    return result if x.dtype == torch.float32 else b.select(b.lt(b.abs(x), b.constant(2.0**-60, x.dtype)), x, result)


def _far_out(name: str) -> Callable:
    """asinh or acosh. Of a large float64 it is ln 2|x|; SLEEF's squares x, which overflows from 2^512 on."""
    near = _function(name)

    def write(b: Arithmetic, x: Value) -> Value:
        if x.dtype == torch.float32:
            return near(b, x)
        size = b.abs(x) if name == "asinh" else x
        is_far = b.gt(size, b.constant(2.0**500, x.dtype))
        logarithm = b.add(_call(b, "log", size), b.constant(math.log(2.0), x.dtype))
        logarithm = b.copysign(logarithm, x) if name == "asinh" else logarithm
        return b.select(is_far, logarithm, near(b, x))

    return write


def _fmod(b: Arithmetic, x: Value, y: Value) -> Value:
    """The remainder, exactly: x - n y, where n, the rounded quotient without its fraction, is right or 1 too large.

    It is a multiple of the smaller one's last unit and no larger than y, so fma does not round it. Without instructions for fma, for
    quotients that are no such number, and for an infinite y, it is SLEEF's.
    """
    if b.text.target.arch == "x86_64" and b.text.target.vector_bytes == 16:
        return _far_fmod(b, x, y)
    size, divisor = b.abs(x), b.abs(y)
    n = b.trunc(b.div(size, divisor))
    rest = b.fma(b.neg(n), divisor, size)
    rest = b.select(b.lt(rest, b.constant(0.0, x.dtype)), b.add(rest, divisor), rest)
    largest = b.constant(0.5 / torch.finfo(x.dtype).eps, x.dtype)
    near = b.and_(b.lt(n, largest), b.eq(rest, rest))
    from mlirc.lowering.cpu.math.branches import rarely

    return rarely(b, b.not_(near), lambda: _far_fmod(b, x, y), b.copysign(rest, x))


def _far_fmod(b: Arithmetic, x: Value, y: Value) -> Value:
    """The remainder, exact where SLEEF's, which divides, has a quotient that overflows.

    float32's quotients are below 2^277, which float64 holds. Of float64's 2^700 y has the same remainders as y: three steps.
    """
    known = b.constant_value(y)
    if known is not None and abs(known) >= 1:
        return _call(b, "fmod", x, y)
    if x.dtype == torch.float32:
        return b.cast(_call(b, "fmod", *(b.cast(v, torch.float64) for v in (x, y))), torch.float32)
    far = b.constant(2.0**700, x.dtype)
    higher = b.mul(y, far)
    return _call(b, "fmod", _call(b, "fmod", _call(b, "fmod", x, b.mul(higher, far)), higher), y)


MATH: dict[str, Callable] = {name: _function(name) for name in _FILES}
MATH |= {"fmod": _fmod, "pow": _power, "log1p": _log1p, "asinh": _far_out("asinh"), "acosh": _far_out("acosh")}

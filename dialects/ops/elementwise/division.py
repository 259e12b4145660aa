"""Division that rounds, and its remainders.

Integers are divided by constants other than 0, and by sizes, of which the importer lets none through that may be 0 (refused_operands.py).
Eager raises an error on a division by zero, which ATen then does.
"""

import math

import torch

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import Binary, imports
from mlirc.dialects.core.graph_builder import NotOurs, constant_text
from mlirc.dialects.core.scalar_builder import is_float
from mlirc.dialects.core.symbols import Expr
from mlirc.dialects.ops.elementwise.arithmetic import Div

aten = torch.ops.aten
HALVES = (torch.float16, torch.bfloat16)


def opposite(b, x, y):
    """Whether x is not zero and y has the other sign."""
    zero = b.constant(0)
    return b.and_(b.ne(x, zero), b.ne(b.lt(x, zero), b.lt(y, zero)))


def remainder_scalar(b, x, y):
    rem = b.rem(x, y)
    return b.select(opposite(b, rem, y), b.add(rem, y), rem)


def floor_divide_scalar(b, x, y):
    """Python's floor division: for floating-point exact to the last unit, where floor(x / y) is not."""
    rem = b.rem(x, y)
    if not is_float(b):
        quotient = b.div(x, y)
        return b.select(opposite(b, rem, y), b.sub(quotient, b.constant(1)), quotient)
    zero = b.constant(0.0)
    ratio = b.div(x, y)
    exact = b.div(b.sub(x, rem), y)
    exact = b.select(opposite(b, rem, y), b.sub(exact, b.constant(1.0)), exact)
    floor = b.floor(exact)
    floor = b.select(b.gt(b.sub(exact, floor), b.constant(0.5)), b.add(floor, b.constant(1.0)), floor)
    nonzero = b.select(b.eq(exact, zero), b.copysign(zero, ratio), floor)
    infinity = b.constant(math.inf)
    overflow = b.and_(b.eq(b.abs(ratio), infinity), b.ne(b.abs(x), infinity))
    return b.select(b.or_(b.eq(y, zero), overflow), ratio, nonzero)


class Remainder(Binary, name="remainder"):
    """The sign is the divisor's, as in Python."""

    cheap = False
    jumps = True
    reference = staticmethod(torch.remainder)
    scalar = staticmethod(remainder_scalar)


class Fmod(Binary, name="fmod"):
    """The sign is the dividend's, as in C."""

    cheap = False
    jumps = True
    reference = staticmethod(torch.fmod)
    scalar = staticmethod(lambda b, x, y: b.rem(x, y))


class FloorDivide(Binary, name="floor_divide"):
    jumps = True
    rounds_numbers = False
    cheap = False
    reference = staticmethod(torch.floor_divide)
    scalar = staticmethod(floor_divide_scalar)


class TruncDivide(Binary, name="trunc_divide"):
    """The quotient without its fraction."""

    jumps = True
    rounds_numbers = False
    reference = staticmethod(lambda x, y: torch.div(x, y, rounding_mode="trunc"))
    scalar = staticmethod(lambda b, x, y: b.trunc(b.div(x, y)) if is_float(b) else b.div(x, y))


def divide(g, cls, x, y):
    """`cls` where it cannot divide an integer by zero. A size of 2**32 is 0 as an int32."""
    dtype = g.out.dtype if g.out else g.promote(x, y)
    if not dtype.is_floating_point and not (isinstance(y, Expr) and dtype == torch.int64):
        if not isinstance(y, int):
            raise NotOurs("an integer division whose divisor is no constant may raise an error")
        if int(constant_text(int(y), dtype)) == 0:
            raise NotOurs("an integer division by zero")
    return g.elementwise(cls, x, y)


@imports(aten.remainder.Tensor, aten.remainder.Scalar, aten.remainder.Scalar_Tensor)
def remainder(g, x, y):
    return divide(g, Remainder, x, y)


@imports(aten.fmod.Tensor, aten.fmod.Scalar)
def fmod(g, x, y):
    return divide(g, Fmod, x, y)


@imports(aten.floor_divide.default, aten.floor_divide.Scalar)
def floor_divide(g, x, y):
    return divide(g, FloorDivide, x, y)


@imports(aten.div.Tensor_mode, aten.div.Scalar_mode)
def div(g, x, y, *, rounding_mode):
    if rounding_mode is None:
        return g.elementwise(Div, x, y)
    halves = all(isinstance(v, ir.Value) and g.info(v).rank and g.info(v).dtype in HALVES for v in (x, y))
    if rounding_mode == "trunc" and halves:
        return g.trunc(g.div(x, y))  # eager rounds the quotient first, up to the next whole number
    return divide(g, {"floor": FloorDivide, "trunc": TruncDivide}[rounding_mode], x, y)

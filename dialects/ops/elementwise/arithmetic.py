"""Arithmetic: add, sub, mul, div and their kin. Integers wrap around; division with rounding is in division.py."""

import torch

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import Binary, Elementwise, Ternary, Unary, imports
from mlirc.dialects.core.graph_builder import NotOurs
from mlirc.dialects.core.import_arguments import need_fits, need_kernel_dtypes
from mlirc.dialects.core.scalar_builder import is_float
from mlirc.dialects.core.tensor_types import opmath

aten = torch.ops.aten
LONGEST_CHAIN = 32  # ops that are looked through for what a difference may cancel


class Add(Binary, name="add"):
    rounds_numbers = True
    reference = staticmethod(torch.add)
    scalar = staticmethod(lambda b, x, y: b.or_(x, y) if b.dtype == torch.bool else b.add(x, y))


class Sub(Binary, name="sub"):
    rounds_numbers = True
    reference = staticmethod(torch.sub)
    scalar = staticmethod(lambda b, x, y: b.sub(x, y))


class Cancel(Binary, name="cancel"):
    """x - f(x) or f(x) - x of a half type, f any chain of elementwise ops: 0 where f(x), rounded, is x.

    Of what is left behind that rounding the sign would show."""

    rounds_numbers = True
    jumps = True
    reference = staticmethod(torch.sub)
    scalar = staticmethod(lambda b, x, y: b.sub(x, y))


class Mul(Binary, name="mul", aten=(aten.mul.Tensor, aten.mul.Scalar)):
    reference = staticmethod(torch.mul)
    scalar = staticmethod(lambda b, x, y: b.and_(x, y) if b.dtype == torch.bool else b.mul(x, y))


class Div(Binary, name="div", aten=(aten.div.Tensor, aten.div.Scalar, aten.true_divide.Tensor)):
    """True division: integers divide as floats."""

    computes = "float"
    reference = staticmethod(torch.div)
    scalar = staticmethod(lambda b, x, y: b.div(x, y))


class Fma(Ternary, name="fma"):
    """x*y + z with one rounding to the result's dtype."""

    reference = staticmethod(lambda x, y, z: x * y + z)
    scalar = staticmethod(lambda b, x, y, z: b.fma(x, y, z) if is_float(b) else b.add(b.mul(x, y), z))


@imports(aten.add.Tensor, aten.add.Scalar)
def add(g, x, y, alpha=1):
    need_factor(alpha)
    if not is_number(alpha, 1):
        return scaled(g, y, alpha, alpha, x)
    for first, other in ((x, y), (y, x)):
        taken = other.owner.operands[0] if is_negation(other) else None
        if is_function_of(g, taken, first):
            return g.elementwise(Cancel, first, taken)
    return g.elementwise(Add, x, y)


def is_negation(x):
    return isinstance(x, ir.Value) and isinstance(x.owner, Neg)


@imports(aten.sub.Tensor, aten.sub.Scalar)
def sub(g, x, y, alpha=1):
    need_factor(alpha)
    if not is_number(alpha, 1):
        return scaled(g, y, alpha, g.neg(alpha), x)
    return g.elementwise(Cancel if is_function_of(g, y, x) or is_function_of(g, x, y) else Sub, x, y)


def is_function_of(g, y, x):
    """Whether `y` is made of `x` by a few elementwise ops, both of a half type."""
    if not isinstance(x, ir.Value) or not isinstance(y, ir.Value) or opmath(g.info(y).dtype) == g.info(y).dtype:
        return False
    reached = [y]
    for value in reached:  # which grows
        if isinstance(value.owner, ir.Block) or not isinstance(value.owner, Elementwise):
            continue
        for operand in value.owner.operands:
            if operand == x:
                return True
            if operand not in reached and len(reached) < LONGEST_CHAIN:
                reached.append(operand)
    return False


@imports(aten.rsub.Tensor, aten.rsub.Scalar)
def rsub(g, x, y, alpha=1):
    return sub(g, y, x, alpha)


def need_factor(alpha):
    """NotOurs for a boolean, which eager refuses unless the result is one too."""
    if isinstance(alpha, bool):
        raise NotOurs("a factor that is a boolean")


def scaled(g, x, alpha, factor, y):
    """x*factor + y. The factor, of alpha, takes no part in type promotion."""
    dtype = g.promote(x, y)
    if dtype == torch.bool:
        raise NotOurs("a sum of booleans with a factor")
    need_fits(alpha, dtype)
    return g.apply(Fma, (x, factor, y), dtype, g.out.dtype if g.out else None)


def is_number(x, value):
    return isinstance(x, bool | int | float) and x == value


class Neg(Unary, name="neg", aten=(aten.neg.default,)):
    reference = staticmethod(torch.neg)
    scalar = staticmethod(lambda b, x: b.neg(x))


class Abs(Unary, name="abs", aten=(aten.abs.default,)):
    reference = staticmethod(torch.abs)
    scalar = staticmethod(lambda b, x: b.abs(x) if b.dtype not in (torch.bool, torch.uint8) else x)


@imports(aten.positive.default)
def positive(g, x):
    need_kernel_dtypes(x)
    return g.copy(x)


def sign_scalar(b, x):
    """1, 0 or -1; NaN counts as 0 here, and so does -0.0."""
    if b.dtype == torch.bool:
        return x
    zero, one = b.constant(0), b.constant(1)
    positive = b.select(b.gt(x, zero), one, zero)
    if b.dtype == torch.uint8:
        return positive
    return b.select(b.lt(x, zero), b.constant(-1), positive)


class Sign(Unary, name="sign", aten=(aten.sign.default, aten.sgn.default)):
    jumps = True
    reference = staticmethod(torch.sign)
    scalar = staticmethod(sign_scalar)


@imports(aten.addcmul.default)
def addcmul(g, x, y, z, *, value=1):
    """x + value*y*z; of integers the value is one too, as in eager: 0.5 is 0."""
    x, y, z = g.widen(x, y, z)
    need_kernel_dtypes(x)
    if not g.info(x).dtype.is_floating_point:
        need_fits(value, g.info(x).dtype)
        value = int(value) if isinstance(value, float) else value
        value = g.cast(value, g.info(x).dtype) if isinstance(value, ir.Value) else value
    return g.fma(y if is_number(value, 1) else g.mul(y, value), z, x)


@imports("prims.fma.default")
def fma(g, x, y, z):
    """x*y + z: what Dynamo makes of `addcmul_`."""
    return g.fma(*g.widen(x, y, z))


@imports(aten.addcdiv.default)
def addcdiv(g, x, y, z, *, value=1):
    """x + value*y/z"""
    x, y, z = g.widen(x, y, z)
    return g.add(x, g.div(y if is_number(value, 1) else g.mul(y, value), z))


class Lerp(Ternary, name="lerp", aten=(aten.lerp.Scalar, aten.lerp.Tensor)):
    """x + z * (y - x), computed from the nearer end as in eager."""

    reference = staticmethod(torch.lerp)

    @staticmethod
    def scalar(b, x, y, z):
        near_y = b.ge(b.abs(z), b.constant(0.5))
        weight = b.select(near_y, b.sub(z, b.constant(1.0)), z)
        return b.fma(weight, b.sub(y, x), b.select(near_y, y, x))

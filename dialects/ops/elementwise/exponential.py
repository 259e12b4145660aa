"""Exponentials and logarithms. Integers become floats."""

import math

import torch

from mlirc.dialects.core.dialect import Binary, Unary
from mlirc.dialects.core.scalar_builder import is_nan

aten = torch.ops.aten


class FloatUnary(Unary):
    computes = "float"
    cheap = False


class FloatBinary(Binary):
    computes = "float"
    cheap = False


class Exp(FloatUnary, name="exp", aten=(aten.exp.default,)):
    reference = staticmethod(torch.exp)
    scalar = staticmethod(lambda b, x: b.exp(x))


class Exp2(FloatUnary, name="exp2", aten=(aten.exp2.default, aten.special_exp2.default)):
    reference = staticmethod(torch.exp2)
    scalar = staticmethod(lambda b, x: b.exp2(x))


class Expm1(FloatUnary, name="expm1", aten=(aten.expm1.default, aten.special_expm1.default)):
    reference = staticmethod(torch.expm1)
    scalar = staticmethod(lambda b, x: b.expm1(x))


class Log(FloatUnary, name="log", aten=(aten.log.default,)):
    jumps = True
    reference = staticmethod(torch.log)
    scalar = staticmethod(lambda b, x: b.log(x))


class Log2(FloatUnary, name="log2", aten=(aten.log2.default,)):
    jumps = True
    reference = staticmethod(torch.log2)
    scalar = staticmethod(lambda b, x: b.log2(x))


class Log10(FloatUnary, name="log10", aten=(aten.log10.default,)):
    jumps = True
    reference = staticmethod(torch.log10)
    scalar = staticmethod(lambda b, x: b.log10(x))


class Log1p(FloatUnary, name="log1p", aten=(aten.log1p.default, aten.special_log1p.default)):
    jumps = True
    reference = staticmethod(torch.log1p)
    scalar = staticmethod(lambda b, x: b.log1p(x))


def from_larger(b, x, y, tail):
    """tail(max(x, y), -|x - y|), or the common value where both are the same infinity."""
    both_infinite = b.and_(b.eq(x, y), b.eq(b.abs(x), b.constant(math.inf)))
    return b.select(both_infinite, x, tail(b.maximum(x, y), b.neg(b.abs(b.sub(x, y)))))


class Logaddexp(FloatBinary, name="logaddexp", aten=(aten.logaddexp.default,)):
    """log(exp(x) + exp(y))"""

    reference = staticmethod(torch.logaddexp)
    scalar = staticmethod(lambda b, x, y: from_larger(b, x, y, lambda m, d: b.add(m, b.log1p(b.exp(d)))))


class Logaddexp2(FloatBinary, name="logaddexp2", aten=(aten.logaddexp2.default,)):
    """log2(2**x + 2**y)"""

    reference = staticmethod(torch.logaddexp2)

    @staticmethod
    def scalar(b, x, y):
        to_base_2 = b.constant(1 / math.log(2))
        return from_larger(
            b, x, y, lambda m, d: b.fma(b.log1p(b.exp2(d)), to_base_2, m)
        )  # as eager's: -1 and -1 give -1e-8


def times_log(b, x, y, logarithm):
    """x * logarithm; 0 where x is 0, unless y is NaN."""
    product = b.select(b.eq(x, b.constant(0.0)), b.constant(0.0), b.mul(x, logarithm))
    return b.select(is_nan(b, y), y, product)


class Xlogy(FloatBinary, name="xlogy", aten=(aten.xlogy.Tensor, aten.xlogy.Scalar_Other, aten.xlogy.Scalar_Self)):
    """x * log(y), and 0 where x is 0."""

    jumps = True
    reference = staticmethod(torch.xlogy)
    scalar = staticmethod(lambda b, x, y: times_log(b, x, y, b.log(y)))


class Xlog1py(
    FloatBinary,
    name="xlog1py",
    aten=(aten.special_xlog1py.default, aten.special_xlog1py.other_scalar, aten.special_xlog1py.self_scalar),
):
    """x * log1p(y), and 0 where x is 0."""

    jumps = True
    reference = staticmethod(torch.special.xlog1py)
    scalar = staticmethod(lambda b, x, y: times_log(b, x, y, b.log1p(y)))

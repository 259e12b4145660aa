"""Comparison: to booleans, and the larger and smaller of two."""

import math

import torch

from mlirc.dialects.core.dialect import Binary, Unary
from mlirc.dialects.core.scalar_builder import is_float, is_nan

aten = torch.ops.aten


class Comparison(Binary):
    computes = "operands"
    gives = torch.bool
    jumps = True


class Eq(Comparison, name="eq", aten=(aten.eq.Tensor, aten.eq.Scalar)):
    reference = staticmethod(torch.eq)
    scalar = staticmethod(lambda b, x, y: b.eq(x, y))


class Ne(Comparison, name="ne", aten=(aten.ne.Tensor, aten.ne.Scalar)):
    reference = staticmethod(torch.ne)
    scalar = staticmethod(lambda b, x, y: b.ne(x, y))


class Lt(Comparison, name="lt", aten=(aten.lt.Tensor, aten.lt.Scalar)):
    reference = staticmethod(torch.lt)
    scalar = staticmethod(lambda b, x, y: b.lt(x, y))


class Le(Comparison, name="le", aten=(aten.le.Tensor, aten.le.Scalar)):
    reference = staticmethod(torch.le)
    scalar = staticmethod(lambda b, x, y: b.le(x, y))


class Gt(Comparison, name="gt", aten=(aten.gt.Tensor, aten.gt.Scalar)):
    reference = staticmethod(torch.gt)
    scalar = staticmethod(lambda b, x, y: b.gt(x, y))


class Ge(Comparison, name="ge", aten=(aten.ge.Tensor, aten.ge.Scalar)):
    reference = staticmethod(torch.ge)
    scalar = staticmethod(lambda b, x, y: b.ge(x, y))


class Maximum(Binary, name="maximum", aten=(aten.maximum.default,)):
    """NaN if either is."""

    rounds_numbers = True
    reference = staticmethod(torch.maximum)
    scalar = staticmethod(lambda b, x, y: b.or_(x, y) if b.dtype == torch.bool else b.maximum(x, y))


class Minimum(Binary, name="minimum", aten=(aten.minimum.default,)):
    """NaN if either is."""

    rounds_numbers = True
    reference = staticmethod(torch.minimum)
    scalar = staticmethod(lambda b, x, y: b.and_(x, y) if b.dtype == torch.bool else b.minimum(x, y))


class Fmax(Binary, name="fmax", aten=(aten.fmax.default,)):
    """The other one where one is NaN."""

    reference = staticmethod(torch.fmax)

    @staticmethod
    def scalar(b, x, y):
        if not is_float(b):
            return Maximum.scalar(b, x, y)
        return b.select(is_nan(b, x), y, b.select(is_nan(b, y), x, b.maximum(y, x)))


class Fmin(Binary, name="fmin", aten=(aten.fmin.default,)):
    """The other one where one is NaN."""

    reference = staticmethod(torch.fmin)

    @staticmethod
    def scalar(b, x, y):
        if not is_float(b):
            return Minimum.scalar(b, x, y)
        return b.select(is_nan(b, x), y, b.select(is_nan(b, y), x, b.minimum(y, x)))


class Predicate(Unary):
    """A question about one value; about an integer the answer is the same for all."""

    computes = "operands"
    gives = torch.bool
    jumps = True


class IsNan(Predicate, name="isnan", aten=(aten.isnan.default,)):
    reference = staticmethod(torch.isnan)
    scalar = staticmethod(is_nan)


class IsInf(Predicate, name="isinf", aten=(aten.isinf.default,)):
    reference = staticmethod(torch.isinf)

    @staticmethod
    def scalar(b, x):
        return b.eq(b.abs(x), b.constant(math.inf)) if is_float(b) else b.ne(x, x)


class IsFinite(Predicate, name="isfinite"):
    reference = staticmethod(torch.isfinite)

    @staticmethod
    def scalar(b, x):
        return b.lt(b.abs(x), b.constant(math.inf)) if is_float(b) else b.eq(x, x)


class IsPosInf(Predicate, name="isposinf", aten=(aten.isposinf.default,)):
    reference = staticmethod(torch.isposinf)

    @staticmethod
    def scalar(b, x):
        return b.eq(x, b.constant(math.inf)) if is_float(b) else b.ne(x, x)


class IsNegInf(Predicate, name="isneginf", aten=(aten.isneginf.default,)):
    reference = staticmethod(torch.isneginf)

    @staticmethod
    def scalar(b, x):
        return b.eq(x, b.constant(-math.inf)) if is_float(b) else b.ne(x, x)


class Signbit(Predicate, name="signbit", aten=(aten.signbit.default,)):
    """True for -0.0 and for a NaN whose sign is set."""

    reference = staticmethod(torch.signbit)

    @staticmethod
    def scalar(b, x):
        if is_float(b):
            return b.lt(b.copysign(b.constant(1.0), x), b.constant(0.0))
        return b.ne(x, x) if b.dtype in (torch.bool, torch.uint8) else b.lt(x, b.constant(0))

"""Circular and hyperbolic functions, and conversions of angles. Integers become floats."""

import math

import torch

from mlirc.dialects.core.dialect import Unary, imports
from mlirc.dialects.core.scalar_builder import is_nan
from mlirc.dialects.ops.elementwise.arithmetic import Mul
from mlirc.dialects.ops.elementwise.exponential import FloatBinary, FloatUnary

aten = torch.ops.aten


class Sin(FloatUnary, name="sin", aten=(aten.sin.default,)):
    jumps = True
    reference = staticmethod(torch.sin)
    scalar = staticmethod(lambda b, x: b.sin(x))


class Cos(FloatUnary, name="cos", aten=(aten.cos.default,)):
    jumps = True
    reference = staticmethod(torch.cos)
    scalar = staticmethod(lambda b, x: b.cos(x))


class Tan(FloatUnary, name="tan", aten=(aten.tan.default,)):
    jumps = True
    reference = staticmethod(torch.tan)
    scalar = staticmethod(lambda b, x: b.tan(x))


class Asin(FloatUnary, name="asin", aten=(aten.asin.default,)):
    jumps = True
    reference = staticmethod(torch.asin)
    scalar = staticmethod(lambda b, x: b.asin(x))


class Acos(FloatUnary, name="acos", aten=(aten.acos.default,)):
    jumps = True
    reference = staticmethod(torch.acos)
    scalar = staticmethod(lambda b, x: b.acos(x))


class Atan(FloatUnary, name="atan", aten=(aten.atan.default,)):
    reference = staticmethod(torch.atan)
    scalar = staticmethod(lambda b, x: b.atan(x))


class Atan2(FloatBinary, name="atan2", aten=(aten.atan2.default,)):
    """The angle of the point (y, x): the first operand is the ordinate."""

    jumps = True
    reference = staticmethod(torch.atan2)
    scalar = staticmethod(lambda b, x, y: b.atan2(x, y))


class Sinh(FloatUnary, name="sinh", aten=(aten.sinh.default,)):
    reference = staticmethod(torch.sinh)
    scalar = staticmethod(lambda b, x: b.sinh(x))


class Cosh(FloatUnary, name="cosh", aten=(aten.cosh.default,)):
    reference = staticmethod(torch.cosh)
    scalar = staticmethod(lambda b, x: b.cosh(x))


class Tanh(FloatUnary, name="tanh", aten=(aten.tanh.default,)):
    reference = staticmethod(torch.tanh)
    scalar = staticmethod(lambda b, x: b.tanh(x))


class Asinh(FloatUnary, name="asinh", aten=(aten.asinh.default,)):
    reference = staticmethod(torch.asinh)
    scalar = staticmethod(lambda b, x: b.asinh(x))


class Acosh(FloatUnary, name="acosh", aten=(aten.acosh.default,)):
    jumps = True
    reference = staticmethod(torch.acosh)
    scalar = staticmethod(lambda b, x: b.acosh(x))


class Atanh(FloatUnary, name="atanh", aten=(aten.atanh.default,)):
    jumps = True
    reference = staticmethod(torch.atanh)
    scalar = staticmethod(lambda b, x: b.atanh(x))


class Sinc(FloatUnary, name="sinc", aten=(aten.sinc.default, aten.special_sinc.default)):
    """sin(pi x) / (pi x), and 1 at 0."""

    jumps = True
    reference = staticmethod(torch.sinc)

    @staticmethod
    def scalar(b, x):
        angle = b.mul(b.constant(math.pi), x)
        return b.select(b.eq(x, b.constant(0.0)), b.constant(1.0), b.div(b.sin(angle), angle))


class Angle(Unary, name="angle", aten=(aten.angle.default,)):
    """The angle of a real number: pi where it is negative, else 0."""

    jumps = True
    computes = "float"
    reference = staticmethod(torch.angle)

    @staticmethod
    def scalar(b, x):
        zero = b.constant(0.0)
        return b.select(is_nan(b, x), x, b.select(b.lt(x, zero), b.constant(math.pi), zero))


@imports(aten.deg2rad.default)
def deg2rad(g, x):
    return g.elementwise(Mul, x, math.pi / 180)


@imports(aten.rad2deg.default)
def rad2deg(g, x):
    return g.elementwise(Mul, x, 180 / math.pi)

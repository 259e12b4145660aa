"""Arithmetic: add, sub, mul, div and their kin."""

import torch

from mlirc.dialects.dialect import Binary, Ternary, Unary, imports
from mlirc.dialects.scalar_builder import is_float

aten = torch.ops.aten


class Add(Binary, name="add"):
    reference = staticmethod(torch.add)
    scalar = staticmethod(lambda b, x, y: b.or_(x, y) if b.dtype == torch.bool else b.add(x, y))


@imports(aten.add.Tensor, aten.add.Scalar)
def add(g, x, y, alpha=1):
    return g.elementwise(Add, x, y if alpha == 1 else g.mul(y, alpha))


class Neg(Unary, name="neg", aten=(aten.neg.default,)):
    reference = staticmethod(torch.neg)
    scalar = staticmethod(lambda b, x: b.neg(x))

"""Logic on truth values: everything but 0 is true, NaN included."""

import torch

from mlirc.dialects.core.dialect import Binary, Unary

aten = torch.ops.aten


class Logical(Binary):
    computes, gives = "bool", torch.bool

    @classmethod
    def import_rule(cls, overload):
        return lambda g, x, y: g.elementwise(cls, *narrowed(g, x, y))


def narrowed(g, *operands):
    """The operands, those of a wider dtype than the promoted one converted to it: a 0-d 2**40 is 0 beside an int32, and so is false."""
    dtype = g.promote(*operands)
    return [x if torch.promote_types(g.info(x).dtype, dtype) == dtype else g.cast(x, dtype) for x in operands]


class LogicalAnd(Logical, name="logical_and", aten=(aten.logical_and.default,)):
    reference = staticmethod(torch.logical_and)
    scalar = staticmethod(lambda b, x, y: b.and_(x, y))


class LogicalOr(Logical, name="logical_or", aten=(aten.logical_or.default,)):
    reference = staticmethod(torch.logical_or)
    scalar = staticmethod(lambda b, x, y: b.or_(x, y))


class LogicalXor(Logical, name="logical_xor", aten=(aten.logical_xor.default,)):
    reference = staticmethod(torch.logical_xor)
    scalar = staticmethod(lambda b, x, y: b.xor(x, y))


class LogicalNot(Unary, name="logical_not", aten=(aten.logical_not.default,)):
    computes, gives = "bool", torch.bool
    reference = staticmethod(torch.logical_not)
    scalar = staticmethod(lambda b, x: b.not_(x))

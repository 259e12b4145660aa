"""Logic on truth values: everything but 0 is true, NaN included."""

import torch

from mlirc.dialects.core.dialect import Binary, Unary

aten = torch.ops.aten


class LogicalAnd(Binary, name="logical_and", aten=(aten.logical_and.default,)):
    computes, gives = "bool", torch.bool
    reference = staticmethod(torch.logical_and)
    scalar = staticmethod(lambda b, x, y: b.and_(x, y))


class LogicalOr(Binary, name="logical_or", aten=(aten.logical_or.default,)):
    computes, gives = "bool", torch.bool
    reference = staticmethod(torch.logical_or)
    scalar = staticmethod(lambda b, x, y: b.or_(x, y))


class LogicalXor(Binary, name="logical_xor", aten=(aten.logical_xor.default,)):
    computes, gives = "bool", torch.bool
    reference = staticmethod(torch.logical_xor)
    scalar = staticmethod(lambda b, x, y: b.xor(x, y))


class LogicalNot(Unary, name="logical_not", aten=(aten.logical_not.default,)):
    computes, gives = "bool", torch.bool
    reference = staticmethod(torch.logical_not)
    scalar = staticmethod(lambda b, x: b.not_(x))

"""Bitwise operations on integers, and logic on booleans."""

import torch

from mlirc.dialects.core.dialect import Binary, Unary, imports
from mlirc.dialects.core.graph_builder import NotOurs

aten = torch.ops.aten


class BitwiseAnd(
    Binary,
    name="bitwise_and",
    aten=(aten.bitwise_and.Tensor, aten.bitwise_and.Scalar, aten.bitwise_and.Scalar_Tensor)
    + (aten.__and__.Tensor, aten.__and__.Scalar),
):
    reference = staticmethod(torch.bitwise_and)
    scalar = staticmethod(lambda b, x, y: b.and_(x, y))


class BitwiseOr(
    Binary,
    name="bitwise_or",
    aten=(aten.bitwise_or.Tensor, aten.bitwise_or.Scalar, aten.bitwise_or.Scalar_Tensor)
    + (aten.__or__.Tensor, aten.__or__.Scalar),
):
    reference = staticmethod(torch.bitwise_or)
    scalar = staticmethod(lambda b, x, y: b.or_(x, y))


class BitwiseXor(
    Binary,
    name="bitwise_xor",
    aten=(aten.bitwise_xor.Tensor, aten.bitwise_xor.Scalar, aten.bitwise_xor.Scalar_Tensor)
    + (aten.__xor__.Tensor, aten.__xor__.Scalar),
):
    reference = staticmethod(torch.bitwise_xor)
    scalar = staticmethod(lambda b, x, y: b.xor(x, y))


class BitwiseNot(Unary, name="bitwise_not", aten=(aten.bitwise_not.default,)):
    reference = staticmethod(torch.bitwise_not)
    scalar = staticmethod(lambda b, x: b.not_(x))


class ShiftLeft(Binary, name="shift_left"):
    """Zeros come in; a shift by less than 0, or by the width or more, leaves 0."""

    reference = staticmethod(torch.bitwise_left_shift)

    @staticmethod
    def scalar(b, x, y):
        if b.dtype == torch.uint8:
            return b.shl(x, y)
        return b.select(b.lt(y, b.constant(0)), b.constant(0), b.shl(x, y))


class ShiftRight(Binary, name="shift_right"):
    """The sign comes in; a shift by less than 0, or by the width or more, leaves the sign alone: 0 or -1."""

    reference = staticmethod(torch.bitwise_right_shift)

    @staticmethod
    def scalar(b, x, y):
        if b.dtype == torch.uint8:
            return b.shr(x, y)
        most = b.constant(torch.iinfo(b.dtype).bits - 1)
        return b.shr(x, b.select(b.lt(y, b.constant(0)), most, y))


@imports(
    *(aten.bitwise_left_shift.Tensor, aten.bitwise_left_shift.Tensor_Scalar, aten.bitwise_left_shift.Scalar_Tensor),
    *(aten.__lshift__.Tensor, aten.__lshift__.Scalar),
)
def shift_left(g, x, y):
    return shift(g, ShiftLeft, x, y)


@imports(
    *(aten.bitwise_right_shift.Tensor, aten.bitwise_right_shift.Tensor_Scalar, aten.bitwise_right_shift.Scalar_Tensor),
    *(aten.__rshift__.Tensor, aten.__rshift__.Scalar),
)
def shift_right(g, x, y):
    return shift(g, ShiftRight, x, y)


def shift(g, cls, x, y):
    dtype = g.out.dtype if g.out else g.promote(x, y)
    if dtype.is_floating_point or dtype == torch.bool:
        raise NotOurs(f"a shift of {dtype}")
    return g.elementwise(cls, x, y)

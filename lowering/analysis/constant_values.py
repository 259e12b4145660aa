"""What is known of a graph-level value before anything runs: one number for all of its elements."""

from functools import lru_cache
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import Elementwise
from mlirc.dialects.core.graph_builder import read_constant
from mlirc.dialects.core.graph_ops import Constant, Copy, Iota, View
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.interpreter.kernels import elementwise, operand_dtypes

Number = float | int | bool


def number_of(value: ir.Value) -> Number | None:
    """The number that every element of `value` is, if that is known. Of half types as it is stored."""
    op = value.owner
    if isinstance(op, ir.Block) or not isinstance(value.type, ir.RankedTensorType):
        return None
    if isinstance(op, Constant):
        return _as_stored(op.value.value, info_of(value).dtype)
    if isinstance(op, View | Copy):
        return number_of(op.x)
    if isinstance(op, Iota):
        expr = symbols.parse(op.expr.value)
        return torch.tensor(expr).to(info_of(value).dtype).item() if isinstance(expr, int) else None
    if isinstance(op, Elementwise) and type(op).mnemonic == "cast":
        number = number_of(op.x)
        return None if number is None else scalar_of(op, [torch.tensor(number, dtype=info_of(op.x).dtype)])
    return None


@lru_cache(maxsize=4096)
def _as_stored(text: str, dtype: torch.dtype) -> Number:
    return torch.tensor(read_constant(text), dtype=dtype).item()


def scalar_of(op: Any, operands: list[torch.Tensor]) -> Number | None:
    """The result of an elementwise op on 0-d operands, as a Python number; None where it depends on the processor, or may trap."""
    dtype = info_of(op.results[0]).dtype
    cls = type(op)
    if cls.mnemonic == "cast":
        return operands[0].to(dtype).item() if fits(operands[0].item(), dtype) else None
    if cls.mnemonic == "trunc_divide" and not dtype.is_floating_point:
        return None
    dtypes = operand_dtypes(cls, operands, dtype)
    converted = [x.to(wanted) for x, wanted in zip(operands, dtypes, strict=True)]
    return elementwise(cls, op, converted, dtype).item()


def fits(number: Number, dtype: torch.dtype) -> bool:
    """Whether `number` converts to `dtype` alike on every processor. NaN, infinities and numbers beyond an integer's range do not."""
    if dtype.is_floating_point or dtype == torch.bool or not isinstance(number, float):
        return True
    return abs(number) < 2.0**31

"""What is known of a graph-level value before anything runs: one number for all of its elements, or an index."""

from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import Elementwise
from mlirc.dialects.core.graph_builder import read_constant
from mlirc.dialects.core.graph_ops import Constant, Copy, Iota, Size, View
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.interpreter.kernels import elementwise, operand_dtypes
from mlirc.lowering.analysis.index_maps import Map, dims_in, identity, substitute

SMALL = 1 << 31  # larger numbers might make index arithmetic wrap around
Number = float | int | bool


def number_of(value: ir.Value) -> Number | None:
    """The number that every element of `value` is, if that is known. Of half types as it is stored."""
    op = value.owner
    if isinstance(op, ir.Block) or not isinstance(value.type, ir.RankedTensorType):
        return None
    if isinstance(op, Constant):
        return torch.tensor(read_constant(op.value.value), dtype=info_of(value).dtype).item()
    if isinstance(op, View | Copy):
        return number_of(op.x)
    if isinstance(op, Iota):
        expr = symbols.parse(op.expr.value)
        return torch.tensor(expr).to(info_of(value).dtype).item() if isinstance(expr, int) else None
    if isinstance(op, Elementwise) and type(op).mnemonic == "cast":
        number = number_of(op.x)
        return None if number is None else scalar_of(op, [torch.tensor(number, dtype=info_of(op.x).dtype)])
    return None


def scalar_of(op: Any, operands: list[torch.Tensor]) -> Number | None:
    """The elementwise op on 0-d operands, as a Python number; None where that depends on the processor, or it may trap."""
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
    """Whether every processor converts `number` to the same: NaN and what is too large for an integer it does as it likes."""
    if dtype.is_floating_point or dtype == torch.bool or not isinstance(number, float):
        return True
    return abs(number) < 2.0**31


# ---- index expressions


def index_of(value: ir.Value) -> Int | None:
    """The int64 that `value` is at index (d0, d1, ...), as an expression in these, where iotas and sizes make it up."""
    if not isinstance(value.type, ir.RankedTensorType) or info_of(value).dtype != torch.int64:
        return None
    op = value.owner
    if isinstance(op, Constant):
        number = int(read_constant(op.value.value))
        return number if abs(number) < SMALL else None
    if isinstance(op, Size | Iota):
        return symbols.parse(op.expr.value)
    if isinstance(op, Copy):
        return index_of(op.x)
    if isinstance(op, View):
        return _through_view(op)
    mnemonic = getattr(type(op), "mnemonic", None)
    if mnemonic in ("add", "sub", "mul"):
        return _arithmetic(mnemonic, [broadcast_index(x, info_of(value).shape) for x in op.operands])
    return None


def _through_view(op: View) -> Int | None:
    inner = index_of(op.x)
    text = op.map.value
    if inner is None or not dims_in((inner,)):
        return inner
    return substitute((inner,), symbols.parse_list(text), info_of(op.out).shape)[0] if text else None


def _arithmetic(mnemonic: str, operands: list[Int | None]) -> Int | None:
    x, y = operands
    if x is None or y is None:
        return None
    if mnemonic == "mul":
        # products of indices could wrap around; by a number they stay what they are
        return x * y if isinstance(x, int) or isinstance(y, int) else None
    return x + y if mnemonic == "add" else x - y


def broadcast_index(value: ir.Value, shape: Map) -> Int | None:
    """`index_of` an operand, in the dimensions of the `shape` that it broadcasts to."""
    expr = index_of(value)
    if expr is None or isinstance(expr, int):
        return expr
    own = info_of(value).shape
    dims = identity(len(shape))[len(shape) - len(own) :]
    return substitute((expr,), tuple(0 if n == 1 else d for n, d in zip(own, dims, strict=True)), shape)[0]


def compare_always(name: str, x: Int, y: Int, shape: Map) -> bool | None:
    """Whether the comparison `name` of two index expressions is the same at every index of `shape`; None if not."""
    if name in ("lt", "le"):
        return compare_always("gt" if name == "lt" else "ge", y, x, shape)
    if name == "ge":
        return True if _at_least(x, y, shape) else False if _at_least(y, x + 1, shape) else None
    if name == "gt":
        return True if _at_least(x, y + 1, shape) else False if _at_least(y, x, shape) else None
    differs = _at_least(x, y + 1, shape) or _at_least(y, x + 1, shape)
    same = x == y
    if not differs and not same:
        return None
    return same if name == "eq" else differs


def _at_least(x: Int, y: Int, shape: Map) -> bool:
    """Whether x >= y at every index."""
    ranges = {f"d{d}": size for d, size in enumerate(shape)}
    most = symbols.upper_bound(y - x, ranges)
    return most is not None and symbols.known_nonnegative(most * -1)

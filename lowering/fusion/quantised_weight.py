"""Weights that are dequantised: the bytes that an element of one is made of, followed back through the graph.

%0 = "mlirc.bitwise_and"(%w, 15);  %1 = "mlirc.shift_right"(%w, 4)      two numbers of a byte
%2 = "mlirc.cat2"(%0, %1);  %3 = "mlirc.view"(%2)                       in turn along k
%4 = "mlirc.cast"(%3);  %5 = "mlirc.sub"(%4, %zero);  %6 = "mlirc.mul"(%5, %scale)
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.graph_builder import number_of
from mlirc.dialects.core.kernel_builder import dimension
from mlirc.dialects.core.kernel_forms import broadcast_map
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.lazy_dataclass import dataclass

BYTES = (torch.int8, torch.uint8)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float32, torch.bfloat16)
INTEGER_ZEROS = (
    torch.int8,
    torch.int32,
    torch.int64,
)  # dtypes of zeros that may be subtracted before the conversion to floats
COLUMN, STEP = dimension(1), dimension(2)  # of the kernel


@dataclass(frozen=True)
class Read:
    """The element of a tensor at an index in COLUMN and STEP."""

    tensor: ir.Value
    index: tuple[Int, ...]


@dataclass(frozen=True)
class Weight:
    """(q - zero) * scale, where q is a byte, or the low (nibble = 0) or high one (1) of two numbers in it; None: both in turn.

    bits     8 or 4
    first    which nibble stands before the other, where they are in turn
    integer  the dtype that the zero is subtracted in, which may wrap, before the conversion to floats; None: in floats
    rounded  the dtype that the user rounds the weight to; None: none
    """

    packed: Read
    bits: int = 8
    nibble: int | None = None
    first: int = 0
    zero: Read | None = None
    integer: torch.dtype | None = None
    scale: Read | None = None
    rounded: torch.dtype | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it is q alone."""
        return self.zero is None and self.scale is None and self.rounded is None


Follow = Callable[[ir.Value, Sequence[Int], dict[str, int]], Weight | None]


def weight_at(x: ir.Value, index: Sequence[Int], ranges: dict[str, int]) -> Weight | None:
    """What the element of `x` at `index` is, followed back to bytes; None where it is no dequantised number."""
    op, dtype = x.owner, info_of(x).dtype
    name = "" if isinstance(op, ir.Block) else op.operation.name
    if name == "mlirc.view":
        base = through_view(op, index, ranges)
        return None if base is None else weight_at(base.tensor, base.index, ranges)
    if name == "mlirc.copy":
        return weight_at(op.operands[0], index, ranges)
    if name == "mlirc.cast":
        return converted(weight_at(op.operands[0], index, ranges), info_of(op.operands[0]).dtype, dtype)
    if name == "mlirc.mul" and dtype in FLOATS:
        x, y = op.operands
        return with_numbers(x, y, index, ranges, "scale") or with_numbers(y, x, index, ranges, "scale")
    if name == "mlirc.sub" and dtype in (*FLOATS, *INTEGER_ZEROS):
        x, y = op.operands
        return with_numbers(x, y, index, ranges, "zero")
    if name == "mlirc.cat2":
        return both_nibbles(op, index, ranges, weight_at)
    if name == "mlirc.bitwise_and" and number_of(op.operands[1]) == 15:
        return nibble_at(op.operands[0], index, ranges)
    if name == "mlirc.shift_right" and dtype == torch.uint8 and number_of(op.operands[1]) == 4:
        inner = weight_at(op.operands[0], index, ranges)
        return replace(inner, bits=4, nibble=1) if inner and inner.bits == 8 and inner.is_plain else None
    return Weight(Read(x, tuple(index))) if dtype in BYTES and not name.startswith("mlirc.") else None


def converted(weight: Weight | None, source: torch.dtype, dtype: torch.dtype) -> Weight | None:
    """The weight of a dtype as one of another; None where the conversion changes its numbers in a way that Weight cannot say."""
    if weight is None:
        return None
    if dtype in FLOATS:
        if source in INTEGERS:
            return weight  # by at most a rounding of what eager computes next
        if dtype == torch.bfloat16 != source and (weight.zero or weight.scale):
            return replace(weight, rounded=dtype)
        return weight if dtype == source or weight.rounded or weight.is_plain else None
    if dtype not in INTEGERS or source not in INTEGERS or not weight.is_plain:
        return None
    widens = dtype.itemsize > source.itemsize and not (source.is_signed and not dtype.is_signed)
    return weight if weight.bits == 4 or widens or dtype == source else None


def with_numbers(x: ir.Value, y: ir.Value, index: Sequence[Int], ranges: dict[str, int], name: str) -> Weight | None:
    """`x` as a weight, with `y` as its numbers of that name."""
    inner = weight_at(x, broadcast_map(x, index), ranges)
    if inner is None or inner.scale is not None or inner.rounded or (name == "zero" and inner.zero is not None):
        return None
    numbers = Read(y, broadcast_map(y, index))
    while not isinstance(numbers.tensor.owner, ir.Block):
        op, base = numbers.tensor.owner, None
        if op.operation.name == "mlirc.view":
            base = through_view(op, numbers.index, ranges)
        elif op.operation.name == "mlirc.copy" or (op.operation.name == "mlirc.cast" and widens_exactly(op)):
            base = Read(op.operands[0], numbers.index)
        else:
            break
        if base is None:
            return None
        numbers = base
    dtype = info_of(numbers.tensor).dtype
    if dtype not in (*FLOATS, *INTEGER_ZEROS):
        return None
    integer = None if info_of(y).dtype in FLOATS else info_of(y).dtype
    return replace(inner, integer=integer, **{name: numbers}) if name == "zero" else replace(inner, scale=numbers)


def widens_exactly(op: Any) -> bool:
    """Whether the cast gives each number of the source as it is, as a float."""
    source, dtype = info_of(op.operands[0]).dtype, info_of(op.results[0]).dtype
    return dtype in FLOATS and (source == torch.int8 or (source, dtype) == (torch.bfloat16, torch.float32))


def through_view(op: Any, index: Sequence[Int], ranges: dict[str, int]) -> Read | None:
    """The element of what is viewed; None where no index map says which."""
    map_ = attribute_value(op.attributes["map"])
    if not map_ and info_of(op.operands[0]).rank:
        return None
    place = {f"d{d}": at for d, at in enumerate(index)}
    return Read(op.operands[0], tuple(symbols.substitute(at, place, ranges) for at in symbols.parse_list(map_)))


def nibble_at(x: ir.Value, index: Sequence[Int], ranges: dict[str, int], shifted: bool = False) -> Weight | None:
    """What x & 15 is, or (x >> 4) & 15, of the element of `x` at `index`: four bits of a byte, whatever integer it is converted to."""
    op, dtype = x.owner, info_of(x).dtype
    name = "" if isinstance(op, ir.Block) else op.operation.name
    if name == "mlirc.view":
        base = through_view(op, index, ranges)
        return None if base is None else nibble_at(base.tensor, base.index, ranges, shifted)
    if name == "mlirc.copy" or (name == "mlirc.cast" and info_of(op.operands[0]).dtype in INTEGERS):
        return nibble_at(op.operands[0], index, ranges, shifted)
    if name == "mlirc.shift_right" and not shifted and number_of(op.operands[1]) == 4 and dtype in INTEGERS:
        return nibble_at(op.operands[0], broadcast_map(op.operands[0], index), ranges, True)
    if name == "mlirc.cat2" and not shifted:
        return both_nibbles(op, index, ranges, nibble_at)
    if dtype not in BYTES or name.startswith("mlirc."):
        return None
    return Weight(Read(x, tuple(index)), bits=4, nibble=int(shifted))


def both_nibbles(op: Any, index: Sequence[Int], ranges: dict[str, int], follow: Follow) -> Weight | None:
    """Low nibbles and high ones in turn along k, stacked in a dimension of 2. Zeros and scales of both are the same."""
    dim, steps = attribute_value(op.attributes["dim"]), ranges["d2"]
    if info_of(op.results[0]).shape[dim] != 2 or simplest(index[dim], steps) != symbols.mod(STEP, 2):
        return None
    at = (*index[:dim], 0, *index[dim + 1 :])
    even, odd = (follow(x, at, ranges) for x in op.operands)
    if even is None or even.nibble is None or odd != replace(even, nibble=1 - even.nibble):
        return None
    return replace(even, nibble=None, first=even.nibble)


def canonical(weight: Weight, steps: Int) -> Weight | None:
    """The weight with its indices in their simplest form; None where an index has none."""
    reads = {}
    for name in ("packed", "zero", "scale"):
        read = getattr(weight, name)
        if read is None or not isinstance(steps, int):
            continue
        index = tuple(at if at == COLUMN else simplest(at, steps) for at in read.index)
        if None in index:
            return None
        reads[name] = Read(read.tensor, index)  # type: ignore[arg-type]
    return replace(weight, **reads) if isinstance(steps, int) else None


@lru_cache(maxsize=4096)
def simplest(at: Int, steps: int) -> Int | None:
    """An index along k as a number, k, k // group or k % 2, to which it is equal for all k below `steps`; else None."""
    if isinstance(at, int) or at == STEP:
        return at
    if symbols.free_symbols(at) != {"d2"}:
        return None
    values = [symbols.evaluate(at, {"d2": k}) for k in range(steps)]
    groups = values[-1] + 1
    for form in (STEP, symbols.floordiv(STEP, -(-steps // max(groups, 1))), symbols.mod(STEP, 2), 0):
        if values == [symbols.evaluate(form, {"d2": k}) for k in range(steps)]:
            return form
    return None

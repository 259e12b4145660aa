"""generate-quantised-matmuls: a few rows by a quantised weight become a kernel that reads the packed bytes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.graph_builder import number_of
from mlirc.dialects.core.kernel_builder import KernelBuilder, dimension
from mlirc.dialects.core.kernel_forms import broadcast_map
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import info_of
from mlirc.lowering.analysis.provenance import view_root
from mlirc.lowering.fusion.aten_calls import called
from mlirc.lowering.module.source_lines import source_line
from mlirc.lowering.pipeline.ledger import Ledger

MOST_ROWS = 8  # from here on the dequantised weight is written once, and multiplied by the library
BYTES = (torch.int8, torch.uint8)
FLOATS = (torch.float32, torch.bfloat16)
COLUMN, STEP = dimension(1), dimension(2)  # of the kernel
EFFECTS = ("mlirc.assign", "mlircx.aten_effect")
PACKED_MM = "aten._weight_int8pack_mm.default"


@dataclass(frozen=True)
class Read:
    """The element of a tensor at an index in COLUMN and STEP."""

    tensor: ir.Value
    index: tuple[Int, ...]


@dataclass(frozen=True)
class Weight:
    """(q - zero) * scale, where q is a byte, or the low (nibble = 0) or high one (1) of two numbers in it; None: both in turn.

    bits   8 or 4
    """

    packed: Read
    bits: int = 8
    nibble: int | None = None
    zero: Read | None = None
    scale: Read | None = None


@dataclass(frozen=True)
class GenerateQuantisedMatmuls:
    """Make a matmul of at most 8 rows by a dequantised weight one kernel, which dequantises in registers.

    before:  %1 = "mlirc.cast"(%w) : (tensor<256x512xi8>) -> tensor<256x512xbf16>
             %2 = "mlirc.mul"(%1, %scale)
             %3 = "mlirc.view"(%2) {map = "d1, d0"}
             %4 = "mlirc.matmul"(%x, %3)
    after:   %4 = "mlircx.kernel"(%x, %w, %scale) ({
                    %q = cast(read(%w) {map = "d1, d2"})
                    %s = reduce(mul(read(%x) {map = "d0, d2"}, mul(%q, read(%scale) {map = "d1, 0"}))) {kind = "sum"}
                    yield %s
                  }) {parallel = "2, 256", inner = "512"}

    A weight is made by casts, a subtraction of zeros and a multiplication by scales, of a channel or of a group along k, from int8
    or uint8, or from bytes of two 4-bit numbers, `& 15` and `>> 4`, stacked along k. The kernel computes it in float32 and
    does not round it to its dtype, so that its error is at most eager's. A rounding that the user wrote stays (ROUNDED).

    One row by a weight [K, N] that is unpacked from words of several numbers, as GPTQ's and AWQ's are, is sums along k of rows times weight.
    Fusion computes the weight in them, for a vector of columns at a time, and stores it nowhere (AS IT IS UNPACKED).

    NOT WRITTEN  the graph writes none of what the kernel reads
    MANY ROWS    more rows, or a symbol: the weight is dequantised once, for the library
    PACKED       columns do not lie along k, byte by byte
    """

    name = "generate-quantised-matmuls"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        operations = list(function.regions[0].blocks[0].operations)
        written = {view_root(x) for op in operations if op.operation.name in EFFECTS for x in op.operands}
        for op in operations:
            found = operands_of(op)
            if found is None:
                if multiplies_unpacked(op) and ledger.allows(self.name, op):
                    line = source_line(op.location)
                    ledger.record(self.name, "generate", op.operation.name, "AS IT IS UNPACKED", True, line)
                    replace_by(op, column_sums)
                continue
            bias, x, weight, columns = found
            against = "NOT WRITTEN" if reads_of(weight) & written else refused(x, weight, columns)
            if not against and not ledger.allows(self.name, op):
                continue
            ledger.record(
                self.name,
                "generate",
                op.operation.name,
                against or "IN REGISTERS",
                not against,
                source_line(op.location),
            )
            if against:
                continue
            replace_by(op, lambda op, found=(bias, x, weight): quantised_kernel(*found, op.results[0]))


def replace_by(op: Any, build: Callable[[Any], ir.Value]) -> None:
    with ir.InsertionPoint(op), op.location:
        made = build(op)
    op.results[0].replace_all_uses_with(made)
    op.operation.erase()


def operands_of(op: Any) -> tuple[list[ir.Value], ir.Value, Weight, tuple[Int, Int]] | None:
    """Biases, rows, the weight, and its columns and steps; None where the op multiplies by no quantised weight."""
    name = op.operation.name
    if name in ("mlirc.matmul", "mlirc.addmm"):
        *bias, x, w = op.operands
        if info_of(w).rank != 2 or info_of(w).dtype not in FLOATS:
            return None
        steps, columns = info_of(w).shape
        if not isinstance(steps, int) or not isinstance(columns, int) or 0 in (steps, columns):
            return None
        weight = weight_at(w, (STEP, COLUMN), {"d1": columns, "d2": steps})
    elif called(op) == PACKED_MM:
        x, w, scale = op.operands
        bias, (columns, steps) = [], info_of(w).shape
        weight = Weight(Read(w, (COLUMN, STEP)), scale=Read(scale, (COLUMN,)))
    else:
        return None
    weight = weight and canonical(weight, steps)
    return None if weight is None or weight.nibble is not None else (bias, x, weight, (columns, steps))


def reads_of(weight: Weight) -> set[ir.Value]:
    return {view_root(x.tensor) for x in (weight.packed, weight.zero, weight.scale) if x is not None}


def refused(x: ir.Value, weight: Weight, size: tuple[Int, Int]) -> str:
    """The rule that stands against it, or ""."""
    rows, packed = info_of(x), info_of(weight.packed.tensor)
    if rows.device != "cpu" or rows.dtype not in FLOATS or rows.rank != 2:
        return "DTYPE"
    if not isinstance(rows.shape[0], int) or not 0 < rows.shape[0] <= MOST_ROWS:
        return "MANY ROWS"
    step = STEP if weight.bits == 8 else symbols.floordiv(STEP, 2)
    columns, steps = size
    row_major = (steps if weight.bits == 8 else symbols.floordiv(steps, 2), 1)
    if weight.packed.index != (COLUMN, step) or packed.stride != row_major or columns != packed.shape[0]:
        return "PACKED"
    return ""


# ---- the weight


def weight_at(x: ir.Value, index: Sequence[Int], ranges: dict[str, int]) -> Weight | None:
    """What the element of `x` at `index` is, followed back to bytes; None where it is no dequantised number."""
    op, dtype = x.owner, info_of(x).dtype
    name = "" if isinstance(op, ir.Block) else op.operation.name
    if name == "mlirc.view":
        base = through_view(op, index, ranges)
        return None if base is None else weight_at(base.tensor, base.index, ranges)
    if name == "mlirc.cast" and dtype in FLOATS:
        inner = weight_at(op.operands[0], index, ranges)
        exact = inner is not None and inner.scale is None and inner.zero is None
        return inner if exact or (inner and info_of(op.operands[0]).dtype == dtype) else None
    if name == "mlirc.mul" and dtype in FLOATS:
        x, y = op.operands
        return with_numbers(x, y, index, ranges, "scale") or with_numbers(y, x, index, ranges, "scale")
    if name == "mlirc.sub" and dtype in FLOATS:
        x, y = op.operands
        return with_numbers(x, y, index, ranges, "zero")
    if name == "mlirc.cat2":
        return both_nibbles(op, index, ranges)
    if name in ("mlirc.bitwise_and", "mlirc.shift_right") and dtype == torch.uint8:
        return one_nibble(op, name, index, ranges)
    return Weight(Read(x, tuple(index))) if dtype in BYTES and not name.startswith("mlirc.") else None


def with_numbers(x: ir.Value, y: ir.Value, index: Sequence[Int], ranges: dict[str, int], name: str) -> Weight | None:
    """`x` as a weight, with `y` as its numbers of that name."""
    inner = weight_at(x, broadcast_map(x, index), ranges)
    if inner is None or inner.scale is not None or (name == "zero" and inner.zero is not None):
        return None
    numbers = Read(y, broadcast_map(y, index))
    while not isinstance(numbers.tensor.owner, ir.Block) and numbers.tensor.owner.operation.name == "mlirc.view":
        base = through_view(numbers.tensor.owner, numbers.index, ranges)
        if base is None:
            return None
        numbers = base
    return replace(inner, **{name: numbers}) if info_of(numbers.tensor).dtype in FLOATS else None


def through_view(op: Any, index: Sequence[Int], ranges: dict[str, int]) -> Read | None:
    """The element of what is viewed; None where no index map says which."""
    map_ = attribute_value(op.attributes["map"])
    if not map_ and info_of(op.operands[0]).rank:
        return None
    place = {f"d{d}": at for d, at in enumerate(index)}
    return Read(op.operands[0], tuple(symbols.substitute(at, place, ranges) for at in symbols.parse_list(map_)))


def one_nibble(op: Any, name: str, index: Sequence[Int], ranges: dict[str, int]) -> Weight | None:
    """byte & 15, byte >> 4, or (byte >> 4) & 15."""
    x, number = op.operands
    inner = weight_at(x, index, ranges)
    if inner is None or number_of(number) != (15 if name == "mlirc.bitwise_and" else 4):
        return None
    if inner.bits == 8:
        return replace(inner, bits=4, nibble=0 if name == "mlirc.bitwise_and" else 1)
    return inner if inner.nibble == 1 and name == "mlirc.bitwise_and" else None


def both_nibbles(op: Any, index: Sequence[Int], ranges: dict[str, int]) -> Weight | None:
    """Low nibbles and high ones in turn along k, stacked in a dimension of 2. Zeros and scales of both are the same."""
    dim, steps = attribute_value(op.attributes["dim"]), ranges["d2"]
    if info_of(op.results[0]).shape[dim] != 2 or simplest(index[dim], steps) != symbols.mod(STEP, 2):
        return None
    at = (*index[:dim], 0, *index[dim + 1 :])
    low, high = (weight_at(x, at, ranges) for x in op.operands)
    if low is None or low.nibble != 0 or high != replace(low, nibble=1):
        return None
    return replace(low, nibble=None)


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


# ---- a weight of words

PACKED_DTYPES = (torch.int32, torch.int64)
UNPACKING = ("mlirc.mul", "mlirc.sub", "mlirc.add", "mlirc.cast", "mlirc.view")


def multiplies_unpacked(op: Any) -> bool:
    """Whether the op multiplies one row by a weight that is unpacked from words, for nothing else."""
    if op.operation.name not in ("mlirc.matmul", "mlirc.addmm"):
        return False
    *_, x, w = op.operands
    rows, weight = info_of(x), info_of(w)
    if rows.device != "cpu" or rows.dtype not in FLOATS or (rows.rank, weight.rank) != (2, 2) or rows.shape[0] != 1:
        return False
    static = all(isinstance(n, int) and n > 0 for n in weight.shape)
    return static and weight.stride == (weight.shape[1], 1) and comes_of_packed(w)


def comes_of_packed(x: ir.Value) -> bool:
    """Whether elementwise ops and views, of one reader each, compute it of bits of words."""
    if isinstance(x.owner, ir.Block) or len(list(x.uses)) != 1:
        return False
    op = x.owner
    if op.operation.name == "mlirc.bitwise_and":
        return info_of(x).dtype in PACKED_DTYPES
    return op.operation.name in UNPACKING and any(map(comes_of_packed, op.operands))


# ---- the kernel


def quantised_kernel(bias: list[ir.Value], x: ir.Value, weight: Weight, result: ir.Value) -> ir.Value:
    out = info_of(result)
    k = KernelBuilder(out.shape, info_of(x).shape[-1:], "quantised_matmul")
    row, column, step = k.dims
    q = k.read(weight.packed.tensor, weight.packed.index)
    if weight.bits == 4:
        amount = k.cast(k.size(symbols.mod(step, 2) * 4), torch.uint8)
        q = k.bitwise_and(k.shift_right(q, amount), 15)
    w = k.cast(q, torch.float32)
    if weight.zero is not None:
        w = k.sub(w, k.read(weight.zero.tensor, weight.zero.index))
    if weight.scale is not None:
        w = k.mul(w, k.read(weight.scale.tensor, weight.scale.index))
    total = k.reduce("sum", k.mul(k.read(x, (row, step)), w))
    for b in bias:
        total = k.add(total, k.read(b, broadcast_map(b, (row, column))))
    return k.finish([(total, (row, column), out)])[0]


def column_sums(op: Any) -> ir.Value:
    """The sums along k of a row times a weight [K, N]."""
    *bias, x, w = op.operands
    out = info_of(op.results[0])
    k = KernelBuilder(out.shape, info_of(x).shape[-1:], "unpacked_matmul")
    row, column, step = k.dims
    total = k.reduce(
        "sum", k.mul(k.cast(k.read(x, (row, step)), torch.float32), k.cast(k.read(w, (step, column)), torch.float32))
    )
    for b in bias:
        total = k.add(total, k.read(b, broadcast_map(b, (row, column))))
    return k.finish([(total, (row, column), out)])[0]

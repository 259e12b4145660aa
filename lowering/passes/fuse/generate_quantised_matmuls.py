"""generate-quantised-matmuls: a few rows by a quantised weight become a kernel that reads the packed bytes."""

from collections.abc import Callable
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.kernel_builder import KernelBuilder, dimension
from mlirc.dialects.core.kernel_forms import broadcast_map
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.analysis.provenance import view_root
from mlirc.lowering.cpu.matmul.match import MOST_COPIED
from mlirc.lowering.fusion.aten_calls import called
from mlirc.lowering.fusion.quantised_weight import BYTES, COLUMN, FLOATS, STEP, Read, Weight, canonical, weight_at
from mlirc.lowering.fusion.unpacked_weight import PACKED_DTYPES, UnpackedWeight
from mlirc.lowering.module.source_lines import source_line
from mlirc.lowering.module.target_attribute import target_of
from mlirc.lowering.pipeline.ledger import Ledger

MOST_ROWS = 8  # from here on the dequantised weight is written once, and multiplied by the library
ROW = dimension(0)  # of the kernel
EFFECTS = ("mlirc.assign", "mlircx.aten_effect")
PACKED_MM = "aten._weight_int8pack_mm.default"
INTEGER_MM = "aten._int_mm.default"


@dataclass(frozen=True)
class QuantisedMatmul:
    """A few rows times a quantised weight.

    x         the rows; an element of them is at `x_index`, in ROW and STEP
    out       the index of a result, in ROW and COLUMN
    size      columns and steps
    """

    bias: tuple[ir.Value, ...]
    x: ir.Value
    x_index: tuple[Int, ...]
    out: tuple[Int, ...]
    rows: Int
    weight: Weight
    size: tuple[Int, Int]


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
    or uint8, or from bytes of two 4-bit numbers, `& 15` and `>> 4`, stacked along k in either order. It may be the left operand.
    The kernel computes it in float32 and does not round it to its dtype, so that its error is at most eager's. A rounding that the
    user wrote stays, and so does a subtraction of integers, which may wrap.

    A weight [K, N] that is unpacked from words of several numbers, as GPTQ's is, or from bytes, is computed in a kernel that sums rows times
    weight along k, for a vector of columns at a time, and stores it nowhere (AS IT IS UNPACKED). Its columns may stand in another
    order, as AWQ's do. Where something that it is made of goes to memory, as large as the weight, it is the library's (IN MEMORY).

    NOT WRITTEN  the graph writes none of what the kernel reads
    `_int_mm` of a few rows by a weight whose columns lie along k is a kernel, too (INTEGERS): fusion adds what follows to it.

    SPANS        k is no whole number of vectors
    MANY ROWS    more rows, or a symbol: the weight is dequantised once, for the library
    ZEROS OF GROUPS  they are int64, and not one for a column
    PACKED       columns do not lie along k, byte by byte
    """

    name = "generate-quantised-matmuls"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        operations = list(function.regions[0].blocks[0].operations)
        written = {view_root(x) for op in operations if op.operation.name in EFFECTS for x in op.operands}
        for op in operations:
            if called(op) == INTEGER_MM:
                against = "NOT WRITTEN" if {view_root(x) for x in op.operands} & written else refused_integers(op)
                if against or ledger.allows(self.name, op):
                    ledger.record(self.name, "generate", INTEGER_MM, against or "INTEGERS", not against, op)
                    if not against:
                        replace_by(op, integer_kernel)
                continue
            found = matmul_of(op)
            against = ""
            if found is not None:
                against = "NOT WRITTEN" if reads_of(found.weight) & written else refused(found)
            if (found is None or against == "PACKED") and multiplies_unpacked(op):
                if ledger.allows(self.name, op):
                    matmul, line = op.operation.name, source_line(op.location)
                    made = replace_by(op, lambda op: column_sums(op, written))
                    rule = "AS IT IS UNPACKED" if made else "IN MEMORY"
                    ledger.record(self.name, "generate", matmul, rule, made, line)
                continue
            if found is None or (not against and not ledger.allows(self.name, op)):
                continue
            ledger.record(self.name, "generate", op.operation.name, against or "IN REGISTERS", not against, op)
            if not against:
                replace_by(op, lambda op, found=found: quantised_kernel(found, op.results[0]))


def replace_by(op: Any, build: Callable[[Any], ir.Value | None]) -> bool:
    """Whether the op is replaced."""
    with ir.InsertionPoint(op), op.location:
        made = build(op)
    if made is None:
        return False
    op.results[0].replace_all_uses_with(made)
    op.operation.erase()
    return True


def matmul_of(op: Any) -> QuantisedMatmul | None:
    """The op as a QuantisedMatmul; None where it multiplies by no quantised weight. The weight may be its left operand: W @ x.t()."""
    name = op.operation.name
    if called(op) == PACKED_MM:
        x, w, scale = op.operands
        columns, steps = info_of(w).shape
        weight = canonical(Weight(Read(w, (COLUMN, STEP)), scale=Read(scale, (COLUMN,))), steps)
        rows = info_of(x).shape[0]
        return weight and QuantisedMatmul((), x, (ROW, STEP), (ROW, COLUMN), rows, weight, (columns, steps))
    if name not in ("mlirc.matmul", "mlirc.addmm"):
        return None
    *bias, x, w = op.operands
    *lead, rows, columns = info_of(op.results[0]).shape
    steps, first = info_of(x).shape[-1], (0,) * len(lead)
    if any(n != 1 for n in lead) or info_of(x).rank != info_of(w).rank or info_of(w).rank != len(lead) + 2:
        return None
    weight = followed(w, (*first, STEP, COLUMN), columns, steps)
    if weight:
        index, out = (*first, ROW, STEP), (*first, ROW, COLUMN)
        return QuantisedMatmul(tuple(bias), x, index, out, rows, weight, (columns, steps))
    weight = followed(x, (*first, COLUMN, STEP), rows, steps)
    if weight:
        index, out = (*first, STEP, ROW), (*first, COLUMN, ROW)
        return QuantisedMatmul(tuple(bias), w, index, out, columns, weight, (rows, steps))
    return None


def followed(w: ir.Value, index: tuple[Int, ...], columns: Int, steps: Int) -> Weight | None:
    """The weight whose element in COLUMN and STEP is at `index` of `w`."""
    if info_of(w).dtype not in FLOATS or not isinstance(steps, int) or not isinstance(columns, int):
        return None
    if 0 in (steps, columns):
        return None
    weight = weight_at(w, index, {"d1": columns, "d2": steps})
    weight = weight and canonical(weight, steps)
    return weight if weight is not None and weight.nibble is None else None


def reads_of(weight: Weight) -> set[ir.Value]:
    return {view_root(x.tensor) for x in (weight.packed, weight.zero, weight.scale) if x is not None}


def refused(found: QuantisedMatmul) -> str:
    """The rule that stands against it, or ""."""
    rows, weight, packed = info_of(found.x), found.weight, info_of(found.weight.packed.tensor)
    if rows.device != "cpu" or rows.dtype not in FLOATS:
        return "DTYPE"
    if not isinstance(found.rows, int) or not 0 < found.rows <= MOST_ROWS:
        return "MANY ROWS"
    step = STEP if weight.bits == 8 else symbols.floordiv(STEP, 2)
    columns, steps = found.size
    row_major = (steps if weight.bits == 8 else symbols.floordiv(steps, 2), 1)
    if weight.packed.index != (COLUMN, step) or packed.stride != row_major or columns != packed.shape[0]:
        return "PACKED"
    if weight.integer == torch.int64 and weight.zero is not None and not {*weight.zero.index} <= {COLUMN, 0}:
        return "ZEROS OF GROUPS"
    return ""


def refused_integers(op: Any) -> str:
    """The rule that stands against a kernel for `_int_mm`, or ""."""
    from mlirc.lowering.cpu.quantised.integers import integer_span

    x, w = map(info_of, op.operands)
    (rows, steps), columns = x.shape, w.shape[1]
    if x.device != "cpu" or not isinstance(rows, int) or not isinstance(steps, int) or not 0 < rows <= MOST_ROWS:
        return "MANY ROWS"
    span = integer_span(target_of(op).cpu)
    if (
        not span
        or not steps
        or steps % span
        or rows * steps > MOST_COPIED
        or not isinstance(columns, int)
        or not columns
    ):
        return "SPANS"
    return "" if x.stride[1] == w.stride[0] == 1 else "PACKED"


# ---- a weight of words

UNPACKING = (
    "mlirc.mul",
    "mlirc.sub",
    "mlirc.add",
    "mlirc.div",
    "mlirc.cast",
    "mlirc.view",
    "mlirc.copy",
    "mlirc.index",
)


def multiplies_unpacked(op: Any) -> bool:
    """Whether the op multiplies a few rows by a weight [K, N] that is unpacked from words or bytes, for nothing else."""
    if op.operation.name not in ("mlirc.matmul", "mlirc.addmm"):
        return False
    *_, x, w = op.operands
    rows, weight = info_of(x), info_of(w)
    if rows.device != "cpu" or rows.dtype not in FLOATS or (rows.rank, weight.rank) != (2, 2):
        return False
    few, (steps, columns) = rows.shape[0], weight.shape
    if not isinstance(few, int) or not isinstance(steps, int) or not isinstance(columns, int):
        return False
    if not 0 < few <= MOST_ROWS or not steps or not columns or few * steps > MOST_COPIED:
        return False
    return weight.stride == (columns, 1) and comes_of_packed(w)


def comes_of_packed(x: ir.Value) -> bool:
    """Whether elementwise ops, views and gathers, of one reader each, compute it of bytes, or of bits of words."""
    if isinstance(x.owner, ir.Block) or len(list(x.uses)) != 1:
        return False
    op = x.owner
    if op.operation.name == "mlirc.bitwise_and":
        return info_of(x).dtype in (*PACKED_DTYPES, *BYTES)
    if op.operation.name == "mlirc.cast" and info_of(op.operands[0]).dtype in BYTES:
        return True
    return op.operation.name in UNPACKING and any(map(comes_of_packed, op.operands))


# ---- the kernel


def quantised_kernel(found: QuantisedMatmul, result: ir.Value) -> ir.Value:
    out, weight = info_of(result), found.weight
    k = KernelBuilder((found.rows, found.size[0]), found.size[1:], "quantised_matmul")
    step = k.dims[2]
    q = k.read(weight.packed.tensor, weight.packed.index)
    if weight.bits == 4:
        amount = k.cast(k.size(symbols.mod(step + weight.first, 2) * 4), torch.uint8)
        q = k.bitwise_and(k.shift_right(k.cast(q, torch.uint8), amount), 15)
    if weight.zero is not None and weight.integer is not None:
        q = k.sub(k.cast(q, weight.integer), k.read(weight.zero.tensor, weight.zero.index))
    w = k.cast(q, torch.float32)
    if weight.zero is not None and weight.integer is None:
        w = k.sub(w, k.cast(k.read(weight.zero.tensor, weight.zero.index), torch.float32))
    if weight.scale is not None:
        w = k.mul(w, k.cast(k.read(weight.scale.tensor, weight.scale.index), torch.float32))
    if weight.rounded is not None:
        w = k.cast(k.cast(w, weight.rounded), torch.float32)
    total = k.reduce("sum", k.mul(k.read(found.x, found.x_index), w))
    for b in found.bias:
        total = k.add(total, k.read(b, broadcast_map(b, found.out)))
    return k.finish([(total, found.out, out)])[0]


def integer_kernel(op: Any) -> ir.Value:
    """Rows times a weight, both of int8, in 32-bit integers."""
    (x, w), out = op.operands, info_of(op.results[0])
    k = KernelBuilder(out.shape, info_of(w).shape[:1], "integer_matmul")
    row, column, step = k.dims
    factors = [k.cast(k.read(y, index), torch.int32) for y, index in ((x, (row, step)), (w, (step, column)))]
    return k.finish([(k.reduce("sum", k.mul(*factors)), (row, column), out)])[0]


def column_sums(op: Any, written: set[ir.Value]) -> ir.Value | None:
    """The sums along k of rows times a weight [K, N]; None where the graph writes what that is made of, or something as large as the
    weight goes to memory all the same."""
    *bias, x, w = op.operands
    out, (steps, columns) = info_of(op.results[0]), info_of(w).shape
    k = KernelBuilder(out.shape, (steps,), "unpacked_matmul")
    row, column, step = k.dims
    assert isinstance(steps, int) and isinstance(columns, int)
    unpacked = UnpackedWeight(k, {"d1": columns, "d2": steps}, steps * columns)
    factor = k.cast(unpacked.element(w, (step, column)), torch.float32)
    if unpacked.in_memory or {view_root(tensor) for tensor in unpacked.tensors} & written:
        return None
    total = k.reduce("sum", k.mul(k.cast(k.read(x, (row, step)), torch.float32), factor))
    for b in bias:
        total = k.add(total, k.read(b, broadcast_map(b, (row, column))))
    return k.finish([(total, (row, column), out)])[0]

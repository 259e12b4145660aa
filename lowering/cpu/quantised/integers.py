"""Gemm of a few int8 rows by an int8 weight [N, K], in 32-bit integers, as `_int_mm` computes it.

copy the rows as 16-bit integers
for column block:                               threads split them
  for columns in block, a few at a time:
    for span along k:                           sums[row, column] += pairs of row * pairs of column
  epilogue over the rows of the block

A product of two pairs of 16-bit integers and their sum is one instruction, which the processor adds to a sum by another, or the same. No
sum of two products of int8 overflows, and 32-bit sums wrap as eager's do, in any order.

    parallel = "1, 4096", inner = "4096"
    %s = reduce(mul(cast(read(%x) {map = "d0, d2"}), cast(read(%w) {map = "d2, d1"}))) {kind = "sum"}
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from mlirc.lowering.cpu.emitter.addresses import BYTE, SECOND_LEVEL, advance, prefetch
from mlirc.lowering.cpu.emitter.memory import load_vector
from mlirc.lowering.cpu.emitter.register_transpose import lane_sums
from mlirc.lowering.cpu.loops.epilogue import finish_vector
from mlirc.lowering.cpu.loops.frame import KernelText
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.cpu.matmul.accumulators import rank_one_update
from mlirc.lowering.cpu.matmul.column_blocks import ColumnTilesWriter
from mlirc.lowering.cpu.matmul.match import MOST_COPIED, Gemm
from mlirc.lowering.cpu.quantised.few_rows import FewRowsWriter
from mlirc.lowering.cpu.quantised.match import few_rows, plain_read
from mlirc.lowering.kernel.matmul import contraction_of
from mlirc.lowering.kernel.nodes import Access, Kernel, Node
from mlirc.lowering.target import CpuTarget

UNROLLED = 4  # spans of a tile of few columns that are unrolled, at most
AHEAD = 4 << 10  # prefetch distance, in bytes
I16, I32 = torch.int16, torch.int32
MULTIPLY = {64: "avx512.pmaddw.d.512", 32: "avx2.pmadd.wd", 16: "sse2.pmadd.wd"}  # by the width of vectors


def integer_span(target: CpuTarget) -> int:
    """The elements along k that are multiplied together; 0 where the processor has no such instruction."""
    return target.vector_bytes // 2 if target.arch == "x86_64" else 0


def match_integers(kernel: Kernel) -> Gemm | None:
    """The kernel as a Gemm of int8 in 32-bit integers, or None where it is none."""
    contraction = contraction_of(kernel, I32)
    if contraction is None or len(kernel.inner) != 1:
        return None
    rows, w = map(widened_read, contraction.factors)
    gemm = few_rows(kernel, contraction, rows, w.address.dims, w) if rows is not None and w is not None else None
    if gemm is None or w is None:
        return None
    apart = w.address.strides.get(gemm.n.name)
    if not isinstance(apart, int) or w.address.strides.get(gemm.k.name) != 1 or w.address.rest != 0:
        return None
    return replace(gemm, plain=(apart, 1))


def widened_read(x: Node) -> Access | None:
    """Where an int8 is read that is widened to 32 bits."""
    access = plain_read(x.operands[0]) if x.kind == "cast" and x.dtype == I32 else None
    return access if access is not None and access.dtype == torch.int8 else None


def integer_text(gemm: Gemm, name: str, target: CpuTarget) -> KernelText | None:
    """The kernel as functions; None where k is no whole number of spans, or rows are too long to be copied."""
    span = integer_span(target)
    if not span or gemm.k_size % span or int(gemm.m_size) * gemm.k_size > MOST_COPIED:  # type: ignore[arg-type]
        return None
    return IntegerWriter(gemm, name, target).write()


class IntegerWriter(FewRowsWriter, ColumnTilesWriter):
    """Writes the functions.

    span      elements along k that are multiplied together: a vector of 16-bit integers
    columns   columns of a tile
    """

    alike = 8  # two products are one instruction

    def __init__(self, gemm: Gemm, name: str, target: CpuTarget):
        super().__init__(gemm, name, target)
        self.span, self.block_columns = integer_span(target), self.lanes
        registers = 32 if target.vector_bytes == 64 else 16
        self.columns = next((c for c in (4, 2) if c * (self.rows + 1) + 2 <= registers), 1)
        self.chunk = self.chunk_of(self.lanes * self.length)
        self.multiply_pairs = MULTIPLY[target.vector_bytes]

    def make_room(self) -> None:
        self.take("tile", self.rows * self.lanes)
        self.take("rows", self.rows * self.length // 2)

    def copy_rows(self) -> None:
        """rows[i, k] = row i in 16 bits."""
        e, b = self.e, self.e.index
        x, apart = self.rows_from()

        with e.each(0, self.rows) as i, e.each(0, self.length, self.span) as k:
            part = self.widened(advance(e, advance(e, x, b.mul(i, apart), BYTE), k, BYTE))
            to = advance(e, e.env["rows"], b.add(b.mul(i, e.i64(self.length)), k), I16)
            e.lines.append(f"llvm.store {part}, {to} {{alignment = 2 : i64}} : {self.type_of('i16')}, !llvm.ptr")

    def type_of(self, element: str) -> str:
        return f"vector<{self.span // (2 if element == 'i32' else 1)}x{element}>"

    def widened(self, address: Value) -> Value:
        """A span of int8 as 16-bit integers."""
        b, narrow, wide = self.e.builder(I16), self.type_of("i8"), self.type_of("i16")
        loaded = b.emit(f"llvm.load {address} {{alignment = 1 : i64}} : !llvm.ptr -> {narrow}", BYTE)
        return b.emit(f"arith.extsi {loaded} : {narrow} to {wide}", I16)

    # ---- column blocks

    def tile(self, first: Value, number: Value, columns: int) -> None:
        """tile[:, number : number + columns] = rows @ the columns from first + number on."""
        e, b, wide = self.e, self.e.index, self.e.builder(I32, True)
        ((_, access),) = self.p.totals
        base, apart = e.env["base", access.operand], e.integer(self.columns_apart)
        column = b.add(first, number)
        starts = [advance(e, base, b.mul(b.add(column, e.i64(j)), apart), BYTE) for j in range(columns)]
        sums = [wide.constant(0)] * (self.rows * columns)
        types = [wide.type_text(I32)] * len(sums)
        spans = self.length // self.span
        unrolled = next(u for u in range(UNROLLED, 0, -1) if spans % u == 0 and (u == 1 or u * self.rows <= UNROLLED))

        def some(k: Value, state: list[Value]) -> list[Value]:
            for start in starts:
                prefetch(e, advance(e, start, b.add(k, e.i64(AHEAD)), BYTE), SECOND_LEVEL)
            for u in range(unrolled):
                state = self.one_span(b.add(k, e.i64(u * self.span)), state, starts)
            return state

        sums = e.loop(e.i64(0), self.k, e.i64(unrolled * self.span), sums, types, some)
        for i in range(self.rows):
            total, type_ = lane_sums(e, sums[i * columns : (i + 1) * columns])
            to = advance(e, e.env["tile"], b.add(number, e.i64(i * self.lanes)))
            e.lines.append(f"llvm.store {total}, {to} {{alignment = 4 : i64}} : {type_}, !llvm.ptr")

    def one_span(self, k: Value, sums: list[Value], starts: list[Value]) -> list[Value]:
        e, b, wide, pairs = self.e, self.e.index, self.e.builder(I32, True), self.type_of("i16")
        factors = [self.widened(advance(e, start, k, BYTE)) for start in starts]

        def row(number: int) -> Value:
            address = advance(e, e.env["rows"], b.add(k, e.i64(number * self.length)), I16)
            return e.builder(I16).emit(f"llvm.load {address} {{alignment = 2 : i64}} : !llvm.ptr -> {pairs}", I16)

        def add(x: Value, y: Value, total: Value) -> Value:
            types = f"({pairs}, {pairs}) -> {self.type_of('i32')}"
            text = f'llvm.call_intrinsic "llvm.x86.{self.multiply_pairs}"({x}, {y}) : {types}'
            return wide.add(total, wide.emit(text, I32))

        return rank_one_update(map(row, range(self.rows)), factors, sums, add)

    def finish_vector(self, column: Value, sums: Sequence[Value], mask: Value | None) -> None:
        """The scalar work on the columns from `column` on, whose integer sums are at this address."""
        (address,), ((total, _),) = sums, self.p.totals
        loaded = load_vector(self.e, address, None, I32)
        finish_vector(self.e, self.p.kernel, self.p.n, column, {total: loaded}, mask)

"""Gemm of a few rows by an int8 or int4 weight [N, K]: packed bytes are read once, and dequantised to float32 in registers.

copy the rows as float32                        for int4, a span's even elements before its odd ones
for column block:                               threads split them
  for columns in block, a few at a time:
    for group along k:                          its scales and zeros are in registers
      for span in group:                        sums[row, column] += row * ((q - zero) * scale)
  epilogue over the rows of the block

(q - zero) * scale is rounded to float32, not to the weight's dtype. It is not contracted to an FMA, q * scale - zero * scale: where q
is near its zero point, the rounding error of zero * scale would be as large as the weight.
"""

import torch

from mlirc.lowering.cpu.emitter.addresses import (
    BYTE,
    F32,
    SECOND_LEVEL,
    advance,
    load_floats,
    load_scalar,
    prefetch,
    store_floats,
)
from mlirc.lowering.cpu.emitter.memory import load_vector
from mlirc.lowering.cpu.emitter.register_transpose import lane_sums
from mlirc.lowering.cpu.loops.frame import KernelText
from mlirc.lowering.cpu.math.builder import Value, element_text
from mlirc.lowering.cpu.matmul.accumulators import rank_one_update
from mlirc.lowering.cpu.matmul.column_blocks import ColumnTilesWriter
from mlirc.lowering.cpu.matmul.factors import broadcast
from mlirc.lowering.cpu.matmul.match import MOST_COPIED
from mlirc.lowering.cpu.quantised.few_rows import FewRowsWriter
from mlirc.lowering.cpu.quantised.match import SMALL, GroupNumbers, QuantisedGemm
from mlirc.lowering.kernel.nodes import Access
from mlirc.lowering.target import CpuTarget

UNROLLED = 4  # spans of a group that are unrolled, at most
AHEAD = 4 << 10  # prefetch distance, in bytes

Numbers = tuple[Value | None, Value | None]
I32, I64 = torch.int32, torch.int64


def quantised_text(found: QuantisedGemm, name: str, target: CpuTarget) -> KernelText | None:
    """The kernel as functions; None where groups are no whole vectors, or rows are too long to be copied."""
    lanes, steps = target.vector_bytes // 4, found.gemm.k_size
    span = lanes * (8 // found.factor.bits)
    if found.group % span or steps % found.group or lanes < 4 or found.gemm.m_size * steps > MOST_COPIED:  # type: ignore[operator]
        return None
    return QuantisedWriter(found, name, target).write()


class QuantisedWriter(FewRowsWriter, ColumnTilesWriter):
    """Writes the functions.

    span      elements along k that are dequantised together: a vector of float32 for int8, two for int4
    columns   columns of a tile
    subtracts  what zeros are subtracted in: float32, int32, or int64 where it is that and a zero is large
    looks_up  whether int4 is dequantised by a table of 16 values in a vector register
    """

    def __init__(self, found: QuantisedGemm, name: str, target: CpuTarget):
        super().__init__(found.gemm, name, target)
        self.q = found
        self.halves = 8 // found.factor.bits
        self.span, self.block_columns = self.lanes * self.halves, self.lanes
        registers = 32 if target.vector_bytes == 64 else 16
        self.columns = next((c for c in (4, 2) if c * (self.rows + 3 + self.halves) + 2 <= registers), 1)
        self.bytes = self.length // self.halves  # of a column
        self.chunk = self.chunk_of(self.lanes * self.bytes)
        self.looks_up = self.halves == 2 and self.lanes == 16 and target.arch == "x86_64"
        self.dtype = found.gemm.totals[0][1].dtype
        self.subtracts = F32 if found.factor.integer is None else I32

    def make_room(self) -> None:
        self.take("tile", self.rows * self.lanes)
        self.take("rows", self.rows * self.length)

    def copy_rows(self) -> None:
        """rows[i, k] = row i in float32; of 4 bits, a span's even steps come before its odd ones."""
        e, b, dtype = self.e, self.e.index, self.p.dtype
        x, apart = self.rows_from()

        with e.each(0, self.rows) as i, e.each(0, self.length, self.span) as k:
            source = advance(e, advance(e, x, b.mul(i, apart), BYTE), k, dtype)
            to = advance(e, e.env["rows"], b.add(b.mul(i, e.i64(self.length)), k))
            parts = [load_floats(e, advance(e, source, h * self.lanes, dtype), dtype) for h in range(self.halves)]
            for h, part in enumerate(self.deinterleaved(*parts) if len(parts) == 2 else parts):
                store_floats(e, part, advance(e, to, h * self.lanes))

    def deinterleaved(self, x: Value, y: Value) -> list[Value]:
        """Two contiguous vectors as the vector of the elements at even positions, and that of the odd ones."""
        b = self.e.builder(F32, True)
        type_ = b.type_text(F32)
        places = [list(range(h, 2 * self.lanes, 2)) for h in (0, 1)]
        return [b.emit(f"vector.shuffle {x}, {y} {at} : {type_}, {type_}", F32) for at in places]

    # ---- column blocks

    def tile(self, first: Value, number: Value, columns: int) -> None:
        """tile[:, number : number + columns] = rows @ the columns from first + number on."""
        e, b, zero = self.e, self.e.index, self.q.zero
        if self.q.factor.integer != I64 or zero is None or not isinstance(zero.access, Access):
            self.write_tile(first, number, columns)
            return
        small = None
        for j in range(columns):
            value = self.integer_at(zero, b.add(b.add(first, number), e.i64(j)), e.i64(0))
            inside = b.and_(b.lt(value, e.i64(SMALL)), b.lt(e.i64(-SMALL), value))
            small = inside if small is None else b.and_(small, inside)
        assert small is not None
        for self.subtracts in e.either(small, I32, I64):
            self.write_tile(first, number, columns)

    def write_tile(self, first: Value, number: Value, columns: int) -> None:
        """The tile, with zeros subtracted in `subtracts`."""
        e, b = self.e, self.e.index
        wide = e.builder(F32, True)
        column = b.add(first, number)
        starts = [self.column(b.add(column, e.i64(j))) for j in range(columns)]
        sums = [wide.constant(0, F32)] * (self.rows * columns)
        types = [wide.type_text(F32)] * len(sums)

        def group(k: Value, state: list[Value]) -> list[Value]:
            numbers = [self.group_numbers(b.add(column, e.i64(j)), k) for j in range(columns)]
            return self.one_group(k, state, starts, numbers)

        if self.q.group == self.length:
            sums = group(e.i64(0), sums)
        else:
            sums = e.loop(e.i64(0), self.k, e.i64(self.q.group), sums, types, group)
        for i in range(self.rows):
            to = advance(e, e.env["tile"], b.add(number, e.i64(i * self.lanes)))
            self.store_sums(sums[i * columns : (i + 1) * columns], to)

    def column(self, number: Value) -> Value:
        """The address of a column's first byte."""
        e, ((_, access),) = self.e, self.p.totals
        return advance(e, e.env["base", access.operand], e.index.mul(number, e.integer(self.columns_apart)), BYTE)

    def group_numbers(self, column: Value, k: Value) -> Numbers:
        """Scale and zero of the group at `k`, in every lane. Where lanes are as many as numbers of 4 bits, the first is what each
        number q stands for, in lane q."""
        scale, zero = (
            self.group_number(self.q.scale, column, k),
            self.group_number(self.q.zero, column, k, self.subtracts),
        )
        if not self.looks_up:
            return scale, zero
        integers = self.e.builder(I32, True)
        numbers = integers.emit(f"arith.constant dense<{[*range(16)]}> : {integers.type_text(I32)}", I32)
        return self.of_numbers(numbers, (scale, zero)), None

    def of_numbers(self, q: Value, numbers: Numbers) -> Value:
        """(q - zero) * scale of integers q; either may be missing."""
        b, (scale, zero) = self.e.builder(F32, True), numbers
        if zero is not None and self.subtracts != F32:
            integers = self.e.builder(self.subtracts, True)
            q = integers.sub(integers.cast(q, self.subtracts), zero)
            if self.q.factor.integer == torch.int8:  # which wraps
                unused = integers.constant(24)
                q = integers.binary("arith.shrsi", integers.binary("arith.shli", q, unused), unused)
        w = b.cast(q, F32)
        w = b.sub(w, zero) if zero is not None and self.subtracts == F32 else w
        w = w if scale is None else b.mul(w, scale)
        return w if self.q.factor.rounded is None else b.cast(b.cast(w, self.q.factor.rounded), F32)

    def group_number(self, x: GroupNumbers | None, column: Value, k: Value, dtype: torch.dtype = F32) -> Value | None:
        """The number of a column's group at `k`, in every lane."""
        if x is None:
            return None
        e, wide = self.e, self.e.builder(dtype, True)
        if not isinstance(x.access, Access):
            return wide.constant(x.access)
        if not x.access.dtype.is_floating_point:
            return broadcast(wide, e.builder(dtype).cast(self.integer_at(x, column, k), dtype), dtype)
        return broadcast(wide, load_scalar(e, self.number_address(x, x.access, column, k), x.access.dtype), dtype)

    def number_address(self, x: GroupNumbers, access: Access, column: Value, k: Value) -> Value:
        e, b = self.e, self.e.index
        place = b.mul(column, e.i64(x.apart))
        if x.step:
            place = b.add(place, b.mul(b.binary("arith.divui", k, e.i64(x.group)), e.i64(x.step)))
        return advance(e, e.env["base", access.operand], place, access.dtype)

    def integer_at(self, x: GroupNumbers, column: Value, k: Value) -> Value:
        """The integer of a column's group at `k`."""
        assert isinstance(x.access, Access)
        dtype = x.access.dtype
        address = self.number_address(x, x.access, column, k)
        text = f"llvm.load {address} {{alignment = {dtype.itemsize} : i64}} : !llvm.ptr -> {element_text(dtype)}"
        return self.e.builder(dtype).emit(text, dtype)

    # ---- along k

    def one_group(self, k: Value, sums: list[Value], starts: list[Value], numbers: list[Numbers]) -> list[Value]:
        e, b = self.e, self.e.index
        spans = self.q.group // self.span
        unrolled = next(u for u in range(UNROLLED, 0, -1) if spans % u == 0)

        def some(at: Value, state: list[Value]) -> list[Value]:
            for start in starts:
                prefetch(e, advance(e, start, b.add(self.byte(at), e.i64(AHEAD)), BYTE), SECOND_LEVEL)
            for u in range(unrolled):
                state = self.one_span(b.add(at, e.i64(u * self.span)), state, starts, numbers)
            return state

        if spans == unrolled:
            return some(k, sums)
        types = [e.builder(F32, True).type_text(F32)] * len(sums)
        end = b.add(k, e.i64(self.q.group))
        return e.loop(k, end, e.i64(unrolled * self.span), sums, types, some)

    def one_span(self, k: Value, sums: list[Value], starts: list[Value], numbers: list[Numbers]) -> list[Value]:
        e, b, wide = self.e, self.e.index, self.e.builder(F32, True)
        at = self.byte(k)
        factors = [self.dequantised(advance(e, start, at, BYTE), n) for start, n in zip(starts, numbers, strict=True)]
        for h, of_half in enumerate(zip(*factors, strict=True)):
            places = (b.add(k, e.i64(i * self.length + h * self.lanes)) for i in range(self.rows))
            rows = (load_floats(e, advance(e, e.env["rows"], place)) for place in places)
            sums = rank_one_update(rows, of_half, sums, wide.fma)
        return sums

    def byte(self, k: Value) -> Value:
        e = self.e
        return e.index.binary("arith.divui", k, e.i64(self.halves)) if self.halves > 1 else k

    def dequantised(self, address: Value, numbers: Numbers) -> list[Value]:
        """The factors of a span at `address`: one vector, or those of low nibbles and those of high ones."""
        e, (table, _) = self.e, numbers
        b = e.builder(I32, True)
        loaded = load_vector(e, address, None, self.dtype)
        extend = "arith.extsi" if self.dtype == torch.int8 and self.halves == 1 else "arith.extui"
        q = b.emit(f"{extend} {loaded} : {b.type_text(self.dtype)} to {b.type_text(b.dtype)}", b.dtype)
        parts = [q] if self.halves == 1 else [q, b.shr(q, b.constant(4))][:: -1 if self.q.factor.first else 1]
        if self.looks_up:
            assert table is not None
            return [self.looked_up(table, x) for x in parts]
        parts = parts if self.halves == 1 else [b.and_(x, b.constant(15)) for x in parts]
        return [self.of_numbers(part, numbers) for part in parts]

    def looked_up(self, table: Value, x: Value) -> Value:
        """table[x & 15] in each lane."""
        b = self.e.builder(F32, True)
        floats, integers = b.type_text(F32), b.type_text(torch.int32)
        text = (
            f'llvm.call_intrinsic "llvm.x86.avx512.permvar.sf.512"({table}, {x}) : ({floats}, {integers}) -> {floats}'
        )
        return b.emit(text, F32)

    def store_sums(self, sums: list[Value], to: Value) -> None:
        """to[j] = the sum of the lanes of sums[j]"""
        total, type_ = lane_sums(self.e, sums)
        self.e.lines.append(f"llvm.store {total}, {to} {{alignment = 4 : i64}} : {type_}, !llvm.ptr")

"""Dot-product gemm for up to MOST_ROWS rows: out[M, N] = x[M, K] @ w[N, K]^T, where k is contiguous in both operands.

Vector lanes run along k. Each sum is a vector of partial sums, whose lanes are added at the end.

copy the rows of x as float32                   a block of k of them stays in the L1 cache
for column block:                               as many columns as a vector has lanes; threads take blocks
  for columns in block:                         w is read once, in the order of memory, with prefetches
    tile[rows, columns] = rows @ columns        the vectors of partial sums are in registers
  epilogue over the rows of the block

bfloat16 is loaded as 32-bit pairs. A shift gives the float32 values at even positions, a mask those at odd positions.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import torch

from mlirc.lowering.cpu.emitter.addresses import (
    BYTE,
    CACHE_LINE,
    F32,
    FIRST_LEVEL,
    PTR,
    SECOND_LEVEL,
    advance,
    call,
    lanes_below,
    load_floats,
    prefetch,
    store_floats,
)
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.emitter.register_transpose import lane_sums
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.cpu.matmul.accumulators import rank_one_update, unrolled_sums
from mlirc.lowering.cpu.matmul.column_blocks import ColumnTilesWriter
from mlirc.lowering.cpu.matmul.factors import Floats, Pairs
from mlirc.lowering.cpu.matmul.match import MOST_COPIED, Gemm
from mlirc.lowering.cpu.matmul.tile import registers
from mlirc.lowering.target import CpuTarget

MOST_ROWS = 8
SUMS = 8  # independent accumulators that hide the latency of an FMA
ROW_BYTES = 24 << 10  # of the copied rows in a block of k: they stay in the L1 cache
MOST_STEPS = 2048  # elements along k that one accumulator sums before it is added to the tile, for accuracy
AHEAD = 24 << 10  # prefetch distance into the L2 cache, in bytes
NEAR = 4 << 10  # prefetch distance from the L2 into the L1 cache, in bytes
NEAR_TILE = 8 << 10  # the L1 prefetch is for tiles whose columns have at most this many bytes
PADDING = 16  # elements after each copied row: rows 4 KiB apart would fall into the same cache sets

HIGH = -65536  # the mask 0xffff0000: of a pair of bfloat16, the one at the odd position


def takes_dots(gemm: Gemm) -> bool:
    """Whether M is a known number from 1 to MOST_ROWS, and k is contiguous in both operands."""
    m = gemm.m_size
    return isinstance(m, int) and 0 < m <= MOST_ROWS and fit(gemm, m)


def fit(gemm: Gemm, rows: int) -> bool:
    """Whether k is contiguous in x, and `rows` rows of it fit into the copy."""
    k = gemm.k.size
    return isinstance(k, int) and rows * k <= MOST_COPIED and gemm.ka == 1


class DotWriter(ColumnTilesWriter):
    """Writes the kernel. Where M is a symbol, it is at most MOST_ROWS when this code runs. Lengths are elements along k.

    row_count  M, or MOST_ROWS where M is a symbol: the rows that scratch has room for
    group      rows of a tile; `columns` is its width
    registers  vector registers of the processor
    length     K
    span       elements that one load of each column gives: a vector, or two where bfloat16 is widened
    k_block    elements that are summed in registers before they are added to the tile in memory
    near       whether columns are also prefetched from the L2 into the L1 cache, which pays where they are short
    room       from one copied row to the next: K, rounded up to spans, and PADDING
    """

    panel = MOST_ROWS  # all rows: one thread does them
    large = 2 << 20

    def __init__(self, gemm: Gemm, name: str, target: CpuTarget):
        super().__init__(gemm, name, target)
        assert isinstance(self.steps_in_all, int)
        self.length = self.steps_in_all
        self.block_columns, self.row_count = self.lanes, gemm.m_size if isinstance(gemm.m_size, int) else MOST_ROWS
        self.alike = min(self.alike, 2 * self.row_count)  # of one row each waits for memory
        self.span = self.lanes * (1 + self.widens)
        self.registers = registers(target)
        self.group, self.columns = self.tile_size()
        most = ROW_BYTES // (4 * self.row_count * CACHE_LINE) * CACHE_LINE
        self.k_block = min(MOST_STEPS, most)
        self.near = self.length <= min(self.k_block, NEAR_TILE // (self.columns * self.step))
        self.chunk = self.chunk_of(self.block_columns * self.length * self.step)
        self.room = -(-self.length // self.span) * self.span + PADDING

    def tile_size(self) -> tuple[int, int]:
        """Rows and columns of a tile: its accumulators, one span of each column and one vector of a row fit into the registers."""
        for groups in range(1, self.row_count + 1):
            rows = -(-self.row_count // groups)
            for columns in (4, 2):
                if self.copies(rows, columns):
                    return rows, columns
        return 1, 1

    def copies(self, rows: int, columns: int) -> int:
        """How many sets of accumulators a tile has, to hide the latency of an FMA: set u sums spans u, u + copies, ...
        0 where the registers hold none."""
        room = (self.registers - (1 + self.widens) * columns - 1) // (rows * columns)
        return min(room, -(-SUMS // (rows * columns)))

    def halves(self, rows: int, columns: int) -> int:
        """2 where even and odd positions of bfloat16 have accumulators of their own, because there are few of them; else 1.
        Where columns are long (not `near`), that reads memory a little more slowly, so it is not done."""
        few = self.copies(rows, columns) * rows * columns < SUMS
        room = 2 * rows * columns + 2 * rows + 3 <= self.registers
        return 2 if self.widens and self.near and few and room else 1

    def make_room(self) -> None:
        self.take("tile", self.row_count * self.lanes)
        self.take("rows", self.row_count * self.room)

    # ---- rows

    def copy_rows(self) -> None:
        """rows[i, k] = x[i, k] as float32, 0 beyond K. In each whole span of bfloat16, even positions come before odd ones."""
        e, b = self.e, self.e.index
        x, apart = self.rows_from()
        whole = self.length // self.span * self.span

        with e.each(0, self.m) as number:
            source, to = (
                advance(e, x, b.mul(number, apart), BYTE),
                advance(e, e.env["rows"], b.mul(number, e.i64(4 * self.room)), BYTE),
            )

            with e.each(0, whole, self.span) as k:
                place = advance(e, to, b.mul(k, e.i64(4)), BYTE)
                for i, part in enumerate(self.spread(advance(e, source, b.mul(k, e.i64(self.step)), BYTE))):
                    store_floats(e, part, advance(e, place, 4 * self.lanes * i, BYTE))
            if whole < self.length:
                with e.each(whole, self.k, self.lanes) as k:
                    left = lanes_below(e, b.sub(self.k, k))
                    part = load_floats(e, advance(e, source, b.mul(k, e.i64(self.step)), BYTE), self.factor, mask=left)
                    store_floats(e, part, advance(e, to, b.mul(k, e.i64(4)), BYTE))
        if not isinstance(self.p.m_size, int):  # a tile may have more rows
            end = e.i64(self.row_count * self.room)
            with e.each(b.mul(self.m, self.e.i64(self.room)), end, self.lanes) as k:
                self.clear(k)

    def clear(self, k: Value) -> None:
        e = self.e
        zero = e.builder(F32, True).constant(0, F32)
        store_floats(e, zero, advance(e, e.env["rows"], e.index.mul(k, e.i64(4)), BYTE))

    def spread(self, address: Value) -> list[Value]:
        """The span at `address` as float32: one vector, or, of bfloat16, a vector of the even and one of the odd positions."""
        if not self.widens:
            return [load_floats(self.e, address)]
        b = self.e.builder(torch.int32, True)
        pairs = b.emit(f"llvm.load {address} {{alignment = 2 : i64}} : !llvm.ptr -> {b.type_text(b.dtype)}", b.dtype)
        return [b.bitcast(x, F32) for x in (b.shl(pairs, b.constant(16)), b.and_(pairs, b.constant(HIGH)))]

    # ---- column blocks

    def fill_tile(self, column_block: Value, size: Value) -> None:
        e = self.e
        for i in range(self.row_count):
            store_floats(e, e.builder(F32, True).constant(0, F32), advance(e, e.env["tile"], self.lanes * i))
        with e.each(0, self.k, self.k_block) as k:
            self.one_k_block(column_block, size, k)

    def one_k_block(self, column_block: Value, size: Value, k: Value) -> None:
        """Adds to the column block's tile the products over one block of k, from `k` on."""
        e, b = self.e, self.e.index
        a, apart = self.address_of(column_block, k)
        rows = advance(e, e.env["rows"], b.mul(k, e.i64(4)), BYTE)
        steps = b.minimum(e.i64(self.k_block), b.sub(self.k, k))
        ahead = advance(e, a, b.add(e.i64(self.ahead()), b.mul(k, e.i64((self.block_columns - 1) * self.step))), BYTE)

        def tile(number: Value, columns: int) -> None:
            there, to = advance(e, a, b.mul(apart, number), BYTE), advance(e, e.env["tile"], number)
            fetched = advance(e, ahead, b.mul(b.mul(number, steps), e.i64(self.step)), BYTE)
            for first in range(0, self.row_count, self.group):
                x = advance(e, rows, 4 * self.room * first, BYTE)
                sums = advance(e, to, 4 * self.lanes * first, BYTE)
                for count in self.as_many(first):
                    self.dots(count, columns, first == 0, (x, there, apart, sums, steps, fetched))

        self.each_tile(size, tile)

    def as_many(self, first: int) -> Iterator[int]:
        """Branches on the number of rows from row `first` on; yields, in each branch, the rows that its tile has."""
        most = min(self.group, self.row_count - first)
        if isinstance(self.p.m_size, int):
            yield most
            return
        e, b = self.e, self.e.index
        left = b.sub(self.m, e.i64(first))
        fewer = most // 2
        with e.when(b.gt(left, e.i64(0))):
            yield from e.either(b.gt(left, e.i64(fewer)), most, fewer) if fewer else [most]

    def ahead(self) -> int:
        """The prefetch distance in bytes. With several blocks of k, w is not read in the order of memory: then a column block, at least."""
        one_block = self.length <= self.k_block
        return AHEAD if one_block else max(AHEAD, self.block_columns * self.length * self.step)

    # ---- tiles

    def dots(self, rows: int, columns: int, fetches: bool, given: Sequence[Value]) -> None:
        """to[i, j] += dot(row i, column j), by a call of a function for this size of tile.

        given: the copied rows, w, the bytes from column to column, `to` (rows of one vector), the length, the first
        address to prefetch.
        """
        name = f"dots{rows}x{columns}" + "_fetch" * fetches
        arguments = [(x, "i64" if k in (2, 4) else PTR) for k, x in enumerate(given)]
        call(self.e, name, arguments, partial(self.write_dots, rows, columns, fetches))

    def write_dots(self, rows: int, columns: int, fetches: bool, e: VectorEmitter, parameters: list[Value]) -> None:
        outside, self.e = self.e, e
        self.x, self.w, self.apart, self.to, steps, self.next = parameters
        self.add_dots(rows, columns, fetches, steps)
        self.e = outside

    def add_dots(self, rows: int, columns: int, fetches: bool, steps: Value) -> None:
        """The body of the function that `dots` calls."""
        e, b = self.e, self.e.index
        copies, wide, halves = self.copies(rows, columns), e.builder(F32, True), self.halves(rows, columns)
        many, cells = copies * self.span, rows * columns * halves

        def fetch(k: Value, spans: int) -> None:
            self.fetch(k, columns, spans * self.span * self.step * columns)

        def span(k: Value, sums: list[Value]) -> list[Value]:
            return self.one_span(k, sums, rows, columns)

        def rest(k: Value, sums: list[Value]) -> list[Value]:
            return self.masked(k, lanes_below(e, e.index.sub(steps, k)), sums, rows, columns)

        left = bool(self.length % many or self.k_block % many)
        within, zeros = (e.i64(0), steps), [wide.constant(0, F32)] * cells
        sums = unrolled_sums(e, within, self.span, zeros, copies, span, fetch if fetches else None, left)
        if self.length % self.span:
            spans = b.and_(steps, e.i64(-self.span))
            sums = e.loop(spans, steps, e.i64(self.lanes), sums, [wide.type_text(F32)] * len(sums), rest)
        if halves == 2:
            sums = [wide.add(x, y) for x, y in zip(sums[: cells // 2], sums[cells // 2 :], strict=True)]
        for i in range(rows):
            self.add_to_row(i, sums[i * columns : (i + 1) * columns])

    def one_span(self, k: Value, sums: list[Value], rows: int, columns: int) -> list[Value]:
        """The sums with the products of the span at `k`: sums[i * columns + j] is of row i and column j."""
        sums, cells = list(sums), rows * columns
        factors = [self.spread(self.column(j, k)) for j in range(columns)]
        for part, of_part in enumerate(zip(*factors, strict=True)):
            first = part * cells if len(sums) > cells else 0
            x = (load_floats(self.e, self.row(i, k, part)) for i in range(rows))
            sums[first : first + cells] = rank_one_update(x, of_part, sums[first : first + cells], self.times)
        return sums

    def masked(self, k: Value, mask: Value, sums: list[Value], rows: int, columns: int) -> list[Value]:
        """The sums with the products of the last vector, at `k`, of which `mask` says the elements that exist.

        `sums` is as of `one_span`. The copied rows are in the order of k here.
        """
        e, cells = self.e, rows * columns
        factors = [load_floats(e, self.column(j, k), self.factor, mask=mask) for j in range(columns)]
        x = (load_floats(e, self.row(i, k)) for i in range(rows))
        return [*rank_one_update(x, factors, sums[:cells], self.times), *sums[cells:]]

    def column(self, number: int, k: Value) -> Value:
        e, b = self.e, self.e.index
        start = advance(e, self.w, b.mul(self.apart, e.i64(number)), BYTE)
        return advance(e, start, b.mul(k, e.i64(self.step)), BYTE)

    def row(self, number: int, k: Value, part: int = 0) -> Value:
        e = self.e
        start = advance(e, self.x, 4 * (number * self.room + part * self.lanes), BYTE)
        return advance(e, start, e.index.mul(k, e.i64(4)), BYTE)

    def fetch(self, k: Value, columns: int, bytes_: int) -> None:
        """Prefetches as many bytes as an iteration reads, from consecutive addresses: hardware follows several streams less well."""
        e = self.e
        places = [(self.next, 0, SECOND_LEVEL), (self.w, NEAR, FIRST_LEVEL)]
        for start, apart, level in places if self.near else places[:1]:
            here = advance(e, start, e.index.mul(k, e.i64(columns * self.step)), BYTE)
            for line in range(0, bytes_, CACHE_LINE):
                prefetch(e, advance(e, here, apart + line, BYTE), level)

    def add_to_row(self, number: int, sums: list[Value]) -> None:
        """to[number, j] += the sum of the lanes of sums[j]"""
        e = self.e
        place = advance(e, self.to, 4 * number * self.lanes, BYTE)
        total, type_ = lane_sums(e, sums)
        before = e.index.emit(f"llvm.load {place} {{alignment = 4 : i64}} : !llvm.ptr -> {type_}", F32)
        after = e.index.emit(f"arith.addf {before}, {total} : {type_}", F32)
        e.lines.append(f"llvm.store {after}, {place} {{alignment = 4 : i64}} : {type_}, !llvm.ptr")

    def times(self, x: Value, y: Value, total: Value) -> Value:
        return (Pairs() if self.pairs else Floats()).multiply(self.e, x, y, total)

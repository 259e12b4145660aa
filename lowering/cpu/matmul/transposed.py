"""Gemm out[M, N] = x[M, K] @ w[N, K]^T that computes transposed tiles: w, a linear layer's weight, is read in place, one element at
a time, and broadcast; x is packed with its rows along the lanes.

for part of the panels of rows:                 threads split the columns, or the rows where columns are few
  pack the rows into panels                     they stay in the L2 cache
  for column block:                             about a vector of columns
    copy them                                   where they would evict each other, or are widened to float32
    for panel of rows:
      tile = columns @ panel                    transposed, all of it in registers, one pass over k
      transpose the tile, epilogue over it      from scratch that is still in the L1 cache

A long k is cut into blocks, with one such pass each. Then the tiles are kept in memory between the blocks.

The last row of one more than whole vectors, as of the 49 pixels of a 7x7 image, is not packed: it is multiplied in place, with k along the
lanes, because a vector that holds one row takes as long as a full one.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.lowering.cpu.emitter.addresses import (
    BYTE,
    F32,
    PTR,
    advance,
    call,
    choose_address,
    lanes_below,
    load_floats,
    load_scalar,
    store_floats,
    store_scalar,
    whole_vectors,
)
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.emitter.register_transpose import lane_sums
from mlirc.lowering.cpu.emitter.scope import Range
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.cpu.matmul.accumulators import rank_one_update, unrolled_sums
from mlirc.lowering.cpu.matmul.column_blocks import ColumnBlockWriter
from mlirc.lowering.cpu.matmul.factors import Floats, Pairs
from mlirc.lowering.cpu.matmul.function import panel_width
from mlirc.lowering.cpu.matmul.match import Gemm
from mlirc.lowering.cpu.matmul.panel_groups import Groups
from mlirc.lowering.cpu.matmul.prefetch import RUN, Fetch, Runs, fetches
from mlirc.lowering.cpu.matmul.tile import GemmTile, Loop, most_rows, registers
from mlirc.lowering.cpu.matmul.tile_rows import best_block
from mlirc.lowering.cpu.matmul.transposes import transpose_tile
from mlirc.lowering.target import CpuTarget

WHOLE_K = 1024  # the largest K that is not cut into blocks
K_BLOCK = 256
FEW_BLOCKS = 16  # with fewer column blocks than these a block is one tile, for threads to have equal parts
COLUMNS_ALONE, SUMS_ALONE = (
    4,
    8,
)  # that a row alone is multiplied by at a time, and the accumulators that hide an FMA's latency
PANEL_BYTES = 800 << 10  # of packed rows
TILE_BYTES = 448 << 10  # of the tiles that are kept between blocks of k
GROUPS = 32  # into which the column blocks are grouped, for threads to take
# An L1 cache keeps WAYS columns that are a multiple of CONFLICT bytes apart, and no more: they fall into the same sets.
WAYS, CONFLICT = 4, 4096


def has_row_alone(gemm: Gemm, target: CpuTarget) -> bool:
    """Whether whole vectors of float32 rows, contiguous along k, leave one."""
    rows, lanes = gemm.m_size, target.vector_bytes // 4
    return isinstance(rows, int) and rows > lanes and rows % lanes == 1 and gemm.ka == 1 and gemm.dtype == F32


def rows_of_panel(gemm: Gemm, target: CpuTarget) -> int:
    """Rows of a panel: as wide as panels of columns are, or wider where that leaves no panel partly empty, as of 48 rows and one."""
    widest, lanes = panel_width(target), target.vector_bytes // 4
    three = registers(target) == 32 and has_row_alone(gemm, target) and (gemm.m_size - 1) % (3 * lanes) == 0
    return max(widest, 3 * lanes) if three else widest


class TransposedWriter(ColumnBlockWriter):
    """Writes the kernel.

    full     columns of a tile; where that is less than a vector has lanes, a column block has several tiles
    steps    elements of a block of k
    room     `steps` rounded up to vectors: the length along k of a packed panel
    part     panels that are packed at a time
    wait     column blocks whose tiles are kept between blocks of k
    alone    whether the last row is a panel of its own, which is not packed
    copies   whether columns are copied before they are read
    fetches  whether tiles prefetch the next column block, which is contiguous: with AVX-512
    """

    def __init__(self, gemm: Gemm, name: str, target: CpuTarget):
        super().__init__(gemm, name, target)
        self.panel = rows_of_panel(gemm, target)
        self.alone = has_row_alone(gemm, target)
        self.full = best_block(gemm.n_size, most_rows(target, self.panel // self.lanes))
        self.block_columns = self.full * max(1, self.lanes // self.full)
        if self.alone and self.panels() == 2:  # threads split the columns alone
            self.fewest = 0
            if self.column_blocks < FEW_BLOCKS:
                self.block_columns = self.full
        k = self.steps_in_all
        self.is_one_k_block = isinstance(k, int) and k <= WHOLE_K
        self.steps = k if isinstance(k, int) and self.is_one_k_block else K_BLOCK
        self.room = -(-self.steps // self.lanes) * self.lanes
        self.copies = self.widens or self.evict_each_other()
        self.part, panels = max(1, PANEL_BYTES // (self.room * self.panel * 4)), self.panels()
        if isinstance(panels, int) and panels:
            self.part = -(-panels // -(-panels // self.part))
        tile = self.part * self.lanes * self.panel * 4
        self.wait = max(1, min(self.column_blocks, TILE_BYTES // tile))
        is_contiguous = self.columns_apart == k and not self.copies and gemm.dtype == F32
        self.fetches = fetches(target) and self.is_one_k_block and is_contiguous and self.room > 0

    def evict_each_other(self) -> bool:
        """Whether a tile's columns fall into too few sets of the L1 cache."""
        apart = self.columns_apart
        if not isinstance(apart, int) or apart % (1 + self.pairs):
            return True  # the stride is not known; or pairs of bfloat16 would begin at odd elements
        apart *= self.p.dtype.itemsize
        places = 1
        while places < CONFLICT and places * apart % CONFLICT:
            places *= 2
        return self.full > WAYS * places

    def make_room(self) -> None:
        tile = self.lanes * self.panel
        self.take("panels", self.part * self.room * self.panel)
        self.take("tile", tile if self.is_one_k_block else self.wait * self.part * tile)
        self.take("transposed", tile)
        if self.copies:
            self.take("columns", self.block_columns * self.along)

    # ---- loops

    def claim_column_blocks(self, panels: Range) -> None:
        """Threads take groups of column blocks by tickets. With several blocks of k they get equal parts instead, because rows
        are packed again for each group."""
        if not self.is_one_k_block:
            super().claim_column_blocks(panels)
            return
        e, b = self.e, self.e.index
        group = max(1, self.column_blocks // GROUPS)
        groups = Groups(e, self.column_blocks, e.i64(group), e.i64(Groups.smaller(group)))

        def part(first: Value, state: list[Value]) -> list[Value]:
            ticket, before = state
            within = first, b.minimum(b.add(first, e.i64(self.part)), panels[1])
            self.pack(e.i64(0), self.k, within)
            ticket = groups.round(ticket, before, lambda blocks, then: self.whole_k(blocks, within, then))
            return [ticket, b.add(before, groups.tickets)]

        e.loop(*panels, e.i64(self.part), [groups.take(), e.i64(0)], ["i64", "i64"], part)

    def whole_k(self, column_blocks: Range, panels: Range, then: Value) -> None:
        """Multiplies and finishes these column blocks by packed panels, over all of k. `then` is the first block of the next
        group, for prefetching."""
        self.then = then
        self.one_k_block(
            self.e.i64(0), self.k, column_blocks, panels, lambda column_block, panel: self.e.env["tile"], finish=True
        )

    def multiply(self, column_blocks: Range, panels: Range) -> None:
        with self.e.parts(panels, self.part) as within:
            if self.is_one_k_block:
                self.pack(self.e.i64(0), self.k, within)
                self.whole_k(column_blocks, within, column_blocks[1])
            else:
                with self.e.parts(column_blocks, self.wait) as some:
                    self.blocks_of_k(some, within)

    def blocks_of_k(self, column_blocks: Range, panels: Range) -> None:
        e, b = self.e, self.e.index
        tile = self.lanes * self.panel

        def waiting(column_block: Value, panel: Value) -> Value:
            number = b.add(b.mul(b.sub(column_block, column_blocks[0]), e.i64(self.part)), b.sub(panel, panels[0]))
            return advance(e, e.env["tile"], b.mul(number, e.i64(4 * tile)), BYTE)

        area = b.mul(b.sub(column_blocks[1], column_blocks[0]), e.i64(self.part * tile))
        with e.each(0, area, self.lanes) as k:
            zero = e.builder(F32, True).constant(0, F32)
            store_floats(e, zero, advance(e, e.env["tile"], b.mul(k, e.i64(4)), BYTE))
        with e.each(0, self.k, self.steps) as k:
            steps = b.minimum(e.i64(self.steps), b.sub(self.k, k))
            self.pack(k, steps, panels)
            self.one_k_block(k, steps, column_blocks, panels, waiting, finish=False)
        with e.each(*column_blocks) as column_block, e.each(*panels) as panel:
            self.finish(column_block, panel, waiting(column_block, panel))

    def one_k_block(
        self,
        k: Value,
        steps: Value,
        column_blocks: Range,
        panels: Range,
        tile: Callable[[Value, Value], Value],
        finish: bool,
    ) -> None:
        """Multiplies these column blocks by these panels, over `steps` elements from `k` on; `tile(column_block, panel)` is the
        address of a tile."""

        self.at_step = k
        with self.e.each(*column_blocks) as number:
            a, along = self.columns(number, k, steps)

            with self.e.each(*panels) as which:
                to = tile(number, which)
                fetch = self.next_columns(number, column_blocks, which, panels) if self.fetches else None
                self.tiles_of(number, which, a, along, self.panel_at(which, panels[0]), to, steps, fetch)
                if finish:
                    self.finish(number, which, to)

    # ---- tiles

    def rows_of(self, panel: Value) -> Value:
        """The number of packed rows in this panel and all after it."""
        packed = self.e.integer(self.packed_rows)
        return self.e.index.sub(packed, self.e.index.mul(panel, self.e.i64(self.panel)))

    def panels(self) -> Int:
        return symbols.floordiv(self.packed_rows + self.panel - 1, self.panel) + self.alone

    @property
    def packed_rows(self) -> Int:
        return self.p.m_size - 1 if self.alone else self.p.m_size

    def is_alone(self, panel: Value) -> Value:
        """Whether this panel is the last row, which is not packed."""
        return self.e.index.lt(self.rows_of(panel), self.e.i64(1))

    def widths(self) -> list[int]:
        """The numbers of rows for which tiles are generated, largest first: those that a panel of this matmul needs."""
        all_ = [self.panel, 16, 8] if self.lanes >= 8 else [self.panel, self.lanes]
        packed = self.packed_rows
        if not isinstance(packed, int):
            return all_
        needed = {min(w for w in all_ if w >= rows) for rows in (min(packed, self.panel), packed % self.panel) if rows}
        return sorted(needed, reverse=True)

    def next_columns(self, column_block: Value, column_blocks: Range, panel: Value, panels: Range) -> Fetch:
        """What this tile prefetches: its share of the next column block."""
        e, b = self.e, self.e.index
        after = b.add(column_block, e.i64(1))
        after = b.minimum(b.select(b.lt(after, column_blocks[1]), after, self.then), e.i64(self.column_blocks - 1))
        start, _ = self.address_of(after, e.i64(0))
        runs = Runs(start, e.i64(RUN), e.i64(-(-4 * self.block_columns * self.along // RUN)))
        count = b.sub(panels[1], panels[0])
        if self.alone:  # that panel asks for nothing
            count = b.maximum(b.sub(b.minimum(panels[1], e.integer(self.panels() - 1)), panels[0]), e.i64(1))
        return runs.part(e, b.sub(panel, panels[0]), count, self.steps)

    def tiles_of(
        self,
        column_block: Value,
        panel: Value,
        a: Value,
        along: Value,
        rows: Value,
        to: Value,
        steps: Value,
        fetch: Fetch | None = None,
    ) -> None:
        """Multiplies a column block by a panel of rows, with a tile as wide as the rows and columns that are left need."""
        for alone in self.e.either(self.is_alone(panel)) if self.alone else [False]:
            if alone:
                for size in self.whole_or_rest(column_block):
                    self.multiply_alone(size, a, to, steps)
                continue
            for width in self.fitting(self.rows_of(panel), self.widths()):
                for size in self.whole_or_rest(column_block):
                    self.calls(size, width, a, along, rows, to, steps, fetch)

    def multiply_alone(self, size: int, a: Value, to: Value, steps: Value) -> None:
        """to[j] = the last row times column j of so many from `a` on; or += with several blocks of k."""
        e, b = self.e, self.e.index
        row, apart = self.rows_from()
        row = advance(e, row, b.mul(b.sub(self.m, e.i64(1)), apart), BYTE)
        row, first = advance(e, row, self.at_step), 0
        while first < size:
            columns = COLUMNS_ALONE if size - first >= COLUMNS_ALONE else 1
            places = (row, advance(e, a, first * self.along), advance(e, to, first))
            arguments = [*((x, PTR) for x in places), (steps, "i64")]
            call(e, f"dots_alone{columns}", arguments, partial(self.write_dots_alone, columns))
            first += columns

    def write_dots_alone(self, columns: int, e: VectorEmitter, parameters: list[Value]) -> None:
        row, a, to, steps = parameters
        wide = e.builder(F32, True)
        whole = whole_vectors(e, steps)

        def add(k: Value, sums: list[Value], mask: Value | None = None) -> list[Value]:
            x = load_floats(e, advance(e, row, k), mask=mask)
            given = [advance(e, advance(e, a, self.along * j), k) for j in range(columns)]
            columns_there = [load_floats(e, address, mask=mask) for address in given]
            return rank_one_update([x], columns_there, sums, wide.fma)

        def rest(k: Value, sums: list[Value]) -> list[Value]:
            return add(k, sums, lanes_below(e, e.index.sub(steps, k)))

        zeros = [wide.constant(0.0, F32)] * columns
        sums = unrolled_sums(e, (e.i64(0), whole), self.lanes, zeros, SUMS_ALONE // columns, add)
        sums = e.loop(whole, steps, e.i64(self.lanes), sums, [wide.type_text(F32)] * columns, rest)
        total, type_ = lane_sums(e, sums)
        if not self.is_one_k_block:
            before = e.index.emit(f"llvm.load {to} {{alignment = 4 : i64}} : !llvm.ptr -> {type_}", F32)
            total = e.index.emit(f"arith.addf {before}, {total} : {type_}", F32)
        e.lines.append(f"llvm.store {total}, {to} {{alignment = 4 : i64}} : {type_}, !llvm.ptr")

    def fitting(self, left: Value, widths: list[int]) -> Iterator[int]:
        """Branches on the number of rows left; yields, in each branch, the narrowest of `widths` that holds them."""
        if len(widths) == 1:
            yield widths[0]
            return
        for more in self.e.either(self.e.index.gt(left, self.e.i64(widths[1]))):
            yield from widths[:1] if more else self.fitting(left, widths[1:])

    def calls(
        self,
        size: int,
        width: int,
        a: Value,
        along: Value,
        rows: Value,
        to: Value,
        steps: Value,
        fetch: Fetch | None,
    ) -> None:
        e, b = self.e, self.e.index
        for first in range(0, size, self.full):
            tile = self.tile(min(self.full, size - first), width, RUN if fetch else 0)
            here = advance(e, a, b.mul(along, e.i64(first * (4 if self.copies else self.step))), BYTE)
            there = advance(e, to, first * self.panel * 4, BYTE)
            adds = e.builder(torch.bool).constant(not self.is_one_k_block, torch.bool)
            places, loop = (here, rows, there), Loop(steps, 1, self.panel)
            tile.call(e, places, self.along, [loop], e.i64(self.panel), adds=adds, fetch=fetch)

    def tile(self, rows: int, width: int, run: int) -> GemmTile:
        factors, lanes = Pairs() if self.pairs else Floats(), min(self.lanes, width)
        return GemmTile(rows, width // lanes, lanes, factors=factors, short=True, run=run)

    def finish(self, column_block: Value, panel: Value, tile: Value) -> None:
        """Transposes a tile, and runs the epilogue over it, row by row."""
        e, b = self.e, self.e.index
        size, transposed = self.columns_of(column_block), e.env["transposed"]
        packed = count = b.minimum(self.rows_of(panel), e.i64(self.panel))

        with e.each(0, packed, self.lanes) as row:
            to = advance(e, transposed, b.mul(row, e.i64(4 * self.lanes)), BYTE)
            source = advance(e, tile, b.mul(row, e.i64(4)), BYTE)
            transpose_tile(
                e, F32, source, e.i64(4 * self.panel), b.sub(size, e.i64(1)), e.i64(self.lanes), to, 4 * self.lanes
            )
        if self.alone:  # its sums lie along the columns
            transposed = choose_address(e, self.is_alone(panel), tile, transposed)
            count = b.maximum(packed, e.i64(1))
        with e.each(0, count) as number:
            row = b.add(b.mul(panel, e.i64(self.panel)), number)
            self.bind_row(b.minimum(row, b.sub(self.m, e.i64(1))) if self.alone else row)
            line = advance(e, transposed, b.mul(number, e.i64(4 * self.lanes)), BYTE)
            self.epilogue(b.mul(column_block, e.i64(self.block_columns)), size, line)

    # ---- packing

    def panel_at(self, panel: Value, first: Value) -> Value:
        e, b = self.e, self.e.index
        return advance(e, e.env["panels"], b.mul(b.sub(panel, first), e.i64(4 * self.panel * self.room)), BYTE)

    def pack(self, k: Value, steps: Value, panels: Range) -> None:
        """Packs rows: panel[step * panel_width + i] = x[i, k + step] as float32, for each panel."""
        e, b, p = self.e, self.e.index, self.p
        base, apart = self.rows_from()
        down = b.mul(e.integer(p.ka), e.i64(p.dtype.itemsize))
        base = advance(e, base, b.mul(k, down) if p.ka != 1 else b.mul(k, e.i64(self.step)), BYTE)

        with e.each(*panels) as number:
            to, left = self.panel_at(number, panels[0]), b.minimum(self.rows_of(number), e.i64(self.panel))
            start = advance(e, base, b.mul(b.mul(number, e.i64(self.panel)), apart), BYTE)

            if p.ka == 1:
                with e.each(0, left, self.lanes) as row:
                    source, last = advance(e, start, b.mul(row, apart), BYTE), b.sub(b.sub(left, row), e.i64(1))
                    with e.each(0, steps, self.lanes) as step:
                        here = advance(e, source, b.mul(step, e.i64(self.step)), BYTE)
                        place = advance(e, to, b.mul(b.add(b.mul(step, e.i64(self.panel)), row), e.i64(4)), BYTE)
                        transpose_tile(e, self.factor, here, apart, last, b.sub(steps, step), place, 4 * self.panel)
            else:
                with e.each(0, steps) as step, e.each(0, left) as row:
                    x = load_scalar(
                        e, advance(e, start, b.add(b.mul(row, apart), b.mul(step, down)), BYTE), self.factor
                    )
                    place = advance(e, to, b.mul(b.add(b.mul(step, e.i64(self.panel)), row), e.i64(4)), BYTE)
                    store_scalar(e, x, place)

    def columns(self, column_block: Value, k: Value, steps: Value) -> tuple[Value, Value]:
        """The address of element `k` of a block's first column, in w or in the copy, and the elements from column to column."""
        e, b = self.e, self.e.index
        a, apart = self.address_of(column_block, k)
        if not self.copies:
            return a, e.i64(self.along)
        to, room = e.env["columns"], self.along

        with e.each(0, self.columns_of(column_block)) as number:
            source, place = (
                advance(e, a, b.mul(number, apart), BYTE),
                advance(e, to, b.mul(number, e.i64(4 * room)), BYTE),
            )

            with e.each(0, steps, self.lanes) as step:
                here = advance(e, source, b.mul(step, e.i64(self.step)), BYTE)
                x = load_floats(e, here, self.factor, mask=lanes_below(e, b.sub(steps, step)))
                store_floats(e, x, advance(e, place, b.mul(step, e.i64(4)), BYTE))
        return to, e.i64(room)

    @property
    def along(self) -> int:
        """Elements from one column to the next, where tiles read them: in w, or in the copy."""
        if self.copies:
            return self.room + 16  # a cache line more, or copied columns would evict each other too
        assert isinstance(self.columns_apart, int)  # or they are copied
        return self.columns_apart * self.p.dtype.itemsize // self.step

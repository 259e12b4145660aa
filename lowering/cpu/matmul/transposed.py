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
"""

from collections.abc import Callable, Iterator

import torch

from mlirc.lowering.cpu.emitter.addresses import (
    BYTE,
    F32,
    advance,
    lanes_below,
    load_floats,
    load_scalar,
    store_floats,
    store_scalar,
)
from mlirc.lowering.cpu.emitter.scope import Range
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.cpu.matmul.column_blocks import ColumnBlockWriter
from mlirc.lowering.cpu.matmul.factors import Floats, Pairs
from mlirc.lowering.cpu.matmul.function import panel_width
from mlirc.lowering.cpu.matmul.match import Gemm
from mlirc.lowering.cpu.matmul.panel_groups import Groups
from mlirc.lowering.cpu.matmul.prefetch import RUN, Fetch, Runs, fetches
from mlirc.lowering.cpu.matmul.tile import GemmTile, Loop, most_rows
from mlirc.lowering.cpu.matmul.tile_rows import best_block
from mlirc.lowering.cpu.matmul.transposes import transpose_tile
from mlirc.lowering.target import CpuTarget

WHOLE_K = 1024  # the largest K that is not cut into blocks
K_BLOCK = 256
PANEL_BYTES = 800 << 10  # of packed rows
TILE_BYTES = 448 << 10  # of the tiles that are kept between blocks of k
GROUPS = 32  # into which the column blocks are grouped, for threads to take
# An L1 cache keeps WAYS columns that are a multiple of CONFLICT bytes apart, and no more: they fall into the same sets.
WAYS, CONFLICT = 4, 4096


class TransposedWriter(ColumnBlockWriter):
    """Writes the kernel.

    full     columns of a tile; where that is less than a vector has lanes, a column block has several tiles
    steps    elements of a block of k
    room     `steps` rounded up to vectors: the length along k of a packed panel
    part     panels that are packed at a time
    wait     column blocks whose tiles are kept between blocks of k
    copies   whether columns are copied before they are read
    fetches  whether tiles prefetch the next column block, which is contiguous: with AVX-512
    """

    def __init__(self, gemm: Gemm, name: str, target: CpuTarget):
        super().__init__(gemm, name, target)
        self.panel = panel_width(target)
        self.full = best_block(gemm.n_size, most_rows(target, self.panel // self.lanes))
        self.block_columns = self.full * max(1, self.lanes // self.full)
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
        """The number of rows in this panel and all after it."""
        return self.e.index.sub(self.m, self.e.index.mul(panel, self.e.i64(self.panel)))

    def widths(self) -> list[int]:
        """The numbers of rows for which tiles are generated, largest first: those that a panel of this matmul needs."""
        all_ = [self.panel, 16, 8] if self.lanes >= 8 else [self.panel, self.lanes]
        if not isinstance(self.p.m_size, int):
            return all_
        needed = {
            min(w for w in all_ if w >= rows)
            for rows in (min(self.p.m_size, self.panel), self.p.m_size % self.panel)
            if rows
        }
        return sorted(needed, reverse=True)

    def next_columns(self, column_block: Value, column_blocks: Range, panel: Value, panels: Range) -> Fetch:
        """What this tile prefetches: its share of the next column block."""
        e, b = self.e, self.e.index
        after = b.add(column_block, e.i64(1))
        after = b.minimum(b.select(b.lt(after, column_blocks[1]), after, self.then), e.i64(self.column_blocks - 1))
        start, _ = self.address_of(after, e.i64(0))
        runs = Runs(start, e.i64(RUN), e.i64(-(-4 * self.block_columns * self.along // RUN)))
        return runs.part(e, b.sub(panel, panels[0]), b.sub(panels[1], panels[0]), self.steps)

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
        for width in self.fitting(self.rows_of(panel), self.widths()):
            for size in self.whole_or_rest(column_block):
                self.calls(size, width, a, along, rows, to, steps, fetch)

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
        count = b.minimum(self.rows_of(panel), e.i64(self.panel))

        with e.each(0, count, self.lanes) as row:
            to = advance(e, transposed, b.mul(row, e.i64(4 * self.lanes)), BYTE)
            source = advance(e, tile, b.mul(row, e.i64(4)), BYTE)
            transpose_tile(
                e, F32, source, e.i64(4 * self.panel), b.sub(size, e.i64(1)), e.i64(self.lanes), to, 4 * self.lanes
            )
        with e.each(0, count) as number:
            self.bind_row(b.add(b.mul(panel, e.i64(self.panel)), number))
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

"""A gemm with its epilogue as functions in MLIR text: blocks of rows, panels of columns, tiles in registers.

for group of panels (they stay in the L2 cache):      threads share groups and rows (thread_grid.py)
  for block of rows:
    pack the block's rows, k outermost                          where their stride would make them evict each other
    for panel in group:
      tile = rows @ panel                                       all of it in registers, one pass over k
      epilogue over the tile                                    from a scratch still in the L1 cache

After Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008). The panels are packed before.
"""

from collections.abc import Iterator

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.ops.movement.panels import PANEL
from mlirc.lowering.cpu.emitter.addresses import F32, advance, lanes_below, load_scalar, store_scalar
from mlirc.lowering.cpu.emitter.scope import Range
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.cpu.matmul.factors import Floats, Pairs
from mlirc.lowering.cpu.matmul.match import Gemm
from mlirc.lowering.cpu.matmul.prefetch import Fetch
from mlirc.lowering.cpu.matmul.thread_grid import Costs, ThreadGrid
from mlirc.lowering.cpu.matmul.tile import GemmTile, Loop, most_rows, registers
from mlirc.lowering.cpu.matmul.tile_rows import split_any_rows
from mlirc.lowering.cpu.matmul.writer import MatmulWriter
from mlirc.lowering.target import CpuTarget

GROUP_BYTES = 512 << 10  # of a group of panels: half of an L2 cache
MANY_PANELS = 8  # from this many panels on threads split the panels, else the rows
CONFLICT = 4096  # rows this many bytes apart fall into the same lines of the L1 cache


def panel_width(target: CpuTarget) -> int:
    """Columns of a panel that a gemm packs while it runs: the width of a tile, wide enough that it needs few loads."""
    vectors = {64: 2, 32: 3}.get(target.vector_bytes, 6 if target.arch == "aarch64" else 3)
    return vectors * target.vector_bytes // 4


def column_width(columns: int, target: CpuTarget) -> int:
    """Columns of a panel for a matrix of `columns` columns: panel_width, or less where that leaves no panel partly empty.

    For example, 32 columns are packed into panels of 16, not of 24.
    """
    widest, lanes = panel_width(target), target.vector_bytes // 4
    if registers(target) == 16 and columns % widest and columns % (2 * lanes) == 0:
        return 2 * lanes
    return widest


class GemmWriter(MatmulWriter):
    """Writes the functions of a float32 gemm; matmul/bf16.py has those of other factors.

    source    the dtype whose elements the strides of rows in memory count
    factors   how a tile loads and multiplies its factors (factors.py)
    width     columns of a panel
    """

    source = F32
    factors: Floats | Pairs = Floats()

    def __init__(self, gemm: Gemm, name: str, target: CpuTarget):
        super().__init__(gemm, name, target)
        self.width = self.block_columns = PANEL if gemm.plain is None else column_width(gemm.n_size, target)
        self.full, self.rests = split_any_rows(gemm.m_size, most_rows(target, self.width // self.lanes))
        self.packs = self.must_pack()
        self.plan()

    @property
    def panels(self) -> int:
        return self.column_blocks

    def plan(self) -> None:
        """How far to go along k at once, and along the panels."""
        self.K = self.steps = self.p.k_size
        # packed rows pay when several panels pass over them
        most = GROUP_BYTES // (self.K * self.width * self.p.dtype.itemsize)
        self.group = min(self.panels, max(8 if self.packs else 1, most))

    def must_pack(self) -> bool:
        p = self.p
        return p.ka != 1 or (isinstance(p.lda, int) and p.lda * p.dtype.itemsize % CONFLICT == 0)

    def loops(self) -> tuple[Int, Int, int]:
        p, e = self.p, self.e
        rows = e.integer(p.m_size)
        work = symbols.floordiv(symbols.product([p.m_size, p.n_size, p.k.size]), 8)
        full = e.i64(self.full)
        blocks = e.ceildiv(rows, self.full)
        grid = ThreadGrid(e, self.panels, blocks, self.costs(), self.ticket_panels(), not self.splits_panels())

        def take(panels: Range, of_rows: Range, then: Value) -> None:
            b = e.index
            self.groups(panels, (b.mul(of_rows[0], full), b.minimum(b.mul(of_rows[1], full), rows)), then)

        grid.each(take)
        return work, symbols.floordiv(p.m_size + self.full - 1, self.full) * self.panels, 0

    def costs(self) -> Costs:
        """Estimated: two multiplications of vectors a cycle; ten bytes that are read; two elements that are packed."""
        tile = self.full * self.width // self.lanes
        return Costs(tile, self.full * (3 if self.packs else 1), self.width * (1 if self.p.plain is None else 2))

    def ticket_panels(self) -> int | None:
        """Panels that one of few threads takes at a time; None: equal parts."""
        return None

    def make_room(self) -> None:
        """Takes scratch memory."""
        self.take("tile", self.full * self.width * len(self.p.totals))
        if self.packs:
            self.take("packed", self.full * self.steps)

    def splits_panels(self) -> bool:
        """Whether threads split the panels among them, not the rows."""
        return self.panels >= MANY_PANELS

    # ---- loops

    def groups(self, panels: Range, rows: Range, then: Value) -> None:
        """These panels times these rows; `then` is the first panel that this thread takes next."""
        with self.e.parts(panels, self.group) as group:
            for row, size in self.row_blocks(rows):
                self.block(row, size, group)

    def row_blocks(self, rows: Range) -> Iterator[tuple[Value, int]]:
        """The first row, and how many: of the full blocks, and of each size of what is left."""
        return self.e.tiles(rows, [self.full, *self.rests])

    def block(self, row: Value, size: int, panels: Range) -> None:
        e, b, p = self.e, self.e.index, self.p
        lda, ka = e.integer(p.lda), e.integer(p.ka)
        a = self.rows_at(row)
        if self.packs:
            self.pack(a, size, lda, ka)
            a = e.env["packed"]
        lda, ka = self.tile_strides(size, lda)

        with e.each(*panels) as number:
            for t, (_, panels_of) in enumerate(p.totals):
                offset = b.mul(number, e.i64(self.steps * self.width))
                columns = advance(e, e.env["base", panels_of.operand], offset, self.factors.panel)
                self.multiply_tile((size, self.width), (a, lda, ka), columns, self.tile(t), e.i64(self.steps))
            self.finish(row, size, number, [self.tile(t) for t in range(len(p.totals))])

    def rows_at(self, row: Value) -> Value:
        """The address of a row's first element."""
        e, b, rows = self.e, self.e.index, self.p.rows
        base = advance(e, e.env["base", rows.operand], e.integer(rows.address.rest), self.source)
        return advance(e, base, b.mul(row, e.integer(self.p.lda)), self.source)

    def multiply_tile(
        self,
        shape: tuple[int, int],
        rows: tuple[Value, Value, Value],
        panel: Value,
        to: Value,
        steps: Value,
        apart: Value | None = None,
        adds: Value | None = None,
        fetch: Fetch | None = None,
        run: int = 0,
    ) -> None:
        """to = rows @ panel, or += where `adds` holds. rows: the address, and the strides from row to row and from step
        to step; apart: from row to row of the result, as in a tile's scratch unless it is given; fetch: what else it
        asks for, in runs of so many bytes."""
        e, (rows_count, width) = self.e, shape
        a, lda, ka = rows
        row, step = (e.text.constant_values.get(stride, stride) for stride in (lda, ka))
        tile = GemmTile(rows_count, width // self.lanes, self.lanes, factors=self.factors, short=True, run=run)
        adds = adds or e.builder(torch.bool).constant(False, torch.bool)
        loop = Loop(steps, step, self.width)  # type: ignore[arg-type]  # integers
        tile.call(e, (a, panel, to), row, [loop], apart or e.i64(self.width), adds=adds, fetch=fetch)  # type: ignore[arg-type]

    def tile_strides(self, size: int, lda: Value) -> tuple[Value, Value]:
        """The strides of the rows that a tile reads, packed or in memory: from row to row, and along k."""
        return (self.e.i64(1), self.e.i64(size)) if self.packs else (lda, self.e.i64(1))

    def pack(self, a: Value, size: int, lda: Value, ka: Value) -> None:
        """packed[k * size + i] = a[i, k]"""
        e, b = self.e, self.e.index

        with e.each(0, self.K) as k:
            source = advance(e, a, b.mul(k, ka), self.source)
            target = advance(e, e.env["packed"], b.mul(k, e.i64(size)))
            for i in range(size):
                x = self.load_scalar(advance(e, source, b.mul(lda, e.i64(i)), self.source))
                store_scalar(e, x, advance(e, target, i))

    def finish(self, row: Value, size: int, panel: Value, tiles: list[Value]) -> None:
        for columns in self.whole_or_rest(panel):
            self.epilogue(row, size, panel, tiles, columns)

    def epilogue(self, row: Value, size: int, panel: Value, tiles: list[Value], columns: int) -> None:
        """The scalar work on so many columns of a tile, row by row, vector by vector."""
        e, b = self.e, self.e.index
        first = b.mul(panel, e.i64(self.width))

        with e.each(0, size) as i:
            self.bind_row(b.add(row, i))
            lines = [advance(e, tile, b.mul(i, e.i64(self.width))) for tile in tiles]
            for start in range(0, columns, self.lanes):
                left = columns - start
                mask = lanes_below(e, e.i64(left)) if left < self.lanes else None
                with e.scope():
                    self.finish_vector(b.add(first, e.i64(start)), [advance(e, line, start) for line in lines], mask)

    def tile(self, number: int) -> Value:
        """The scratch of one of the matmuls."""
        first = self.e.env["tile"]
        return advance(self.e, first, number * self.full * self.width) if number else first

    def load_scalar(self, address: Value) -> Value:
        return load_scalar(self.e, address)

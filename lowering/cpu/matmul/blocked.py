"""Gemm of two float32 matrices in memory, which packs panels of columns while it runs. A long k is cut into blocks; then it also takes
columns that were packed before.

Rows contiguous along k:                        Transposed rows (M contiguous), as for a weight's gradient:

for group of panels:                            for part of the rows:
  pack the group's panels                         pack the part's rows
  for block of rows:                              for group of panels:
    pack the block, if it evicts itself             pack the group's panels
    for panel in group:                             for panel in group:
      tile = rows @ panel                             for block of rows:
      epilogue over the tile                            tile = rows @ panel, epilogue over the tile

Few threads split the panels, or the rows where these are more; many split both (thread_grid.py). Packed memory stays in the L2
cache; a panel, or a block of rows, in the L1 cache. With several blocks of k, tiles are kept in the L2 cache between the blocks:

for group of panels:
  for part of the rows:
    for block of k:                             as above, tile += rows @ panel
    epilogue over the tiles
"""

from mlirc.dialects.core.symbols import Int
from mlirc.lowering.cpu.emitter.addresses import BYTE, CACHE_LINE, advance, lanes_below, prefetch
from mlirc.lowering.cpu.emitter.scope import Range
from mlirc.lowering.cpu.loops.epilogue import finish_vector
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.cpu.matmul.factors import BLOCK
from mlirc.lowering.cpu.matmul.function import GemmWriter
from mlirc.lowering.cpu.matmul.match import Gemm
from mlirc.lowering.cpu.matmul.packing import Packer
from mlirc.lowering.cpu.matmul.prefetch import RUN, Ahead, Fetch, fetches
from mlirc.lowering.cpu.matmul.tile import GemmTile, Loop, TileText, times
from mlirc.lowering.target import CpuTarget

WHOLE_K = 1024  # the largest K that is not cut into blocks
# (elements of a block of k, bytes of a group of panels): for tiles of many rows, and of FEW_IN_TILE at most
MANY_ROWS, FEW_ROWS = (256, 448 << 10), (512, 224 << 10)
FEW_IN_TILE = 4  # rows of a tile that may evict neither each other nor a panel from an L1 cache of eight ways
ALL_PANEL_BYTES = 800 << 10  # of all panels: if they have no more, they are one group, and each row is packed once
TILE_BYTES = 512 << 10  # of the tiles that are kept between blocks of k
# with several blocks of k, rows that are multiplied by a group of panels before the next group is packed: contiguous along k, or
# transposed
MOST_ROWS, MOST_TRANSPOSED_ROWS = 576, 288
# operations of an epilogue that is computed on sums in registers; a tile of fewer sums unrolls k, to hide latency
MOST_EPILOGUE, FEW_SUMS = 12, 8
FEW_PANELS = 3  # rows are packed only if more panels read them
# of packed transposed rows, and of the group of panels that they are multiplied by
TRANSPOSED_BYTES, PASSING_BYTES = 512 << 10, 256 << 10

Rows = tuple[Value, Value, Value]  # the address, and the strides from row to row and from step to step


class BlockedWriter(GemmWriter):
    """Writes the kernel.

    one_block whether k is not cut into blocks
    steps     elements of a block of k
    K         `steps` rounded up to vectors: the length along k of packed rows and panels
    group     panels that are packed at a time
    part      rows that are packed at a time, or whose tiles are kept between blocks of k; 0: all rows
    side      packed transposed rows: elements from one k to the next, a power of two
    row_room  elements for each packed row
    direct    the result's row stride where it is the matmul without an epilogue, whose tiles are then computed in place
    fetches   whether tiles prefetch the next block of rows, and the columns that are packed next: with AVX-512
    """

    def __init__(self, gemm: Gemm, name: str, target: CpuTarget):
        assert len(gemm.totals) == 1
        super().__init__(gemm, name, target)
        self.packer = Packer(self.e, self.K, self.width)
        self.direct = gemm.plain_result()

    def plan(self) -> None:
        k, lanes = self.p.k.size, self.lanes
        self.one_block = isinstance(k, int) and k <= WHOLE_K
        few = self.full <= FEW_IN_TILE and not self.rows_transposed
        k_block, panel_bytes = FEW_ROWS if few else MANY_ROWS
        self.steps = k if isinstance(k, int) and self.one_block else k_block
        self.K = -(-self.steps // lanes) * lanes
        self.side = 1 << (self.full - 1).bit_length()
        # a cache line more, or packed rows would evict each other too
        self.row_room = -(-(self.K * self.side + 16) // self.full) if self.rows_transposed else self.K + 16
        panel = self.K * self.width * 4
        group = max(1, min((PASSING_BYTES if self.rows_transposed else panel_bytes) // panel, self.panels))
        if not self.rows_transposed and not self.splits_panels() and self.panels * panel <= ALL_PANEL_BYTES:
            group = self.panels  # each row is then packed once
        self.part = 0
        if self.rows_transposed or not self.one_block:
            most = TRANSPOSED_BYTES // (self.row_room * 4) if self.rows_transposed else MOST_ROWS
            self.part = self.even_part(
                most if self.one_block else min(most, MOST_TRANSPOSED_ROWS if self.rows_transposed else most)
            )
        if self.part and not self.one_block:
            group = max(1, min(group, TILE_BYTES // (self.part * self.width * 4)))
        self.group = group
        self.fetches = fetches(self.target) and self.p.plain is not None and not self.rows_transposed and self.steps > 0

    def even_part(self, most: int) -> int:
        """Rows of a part: whole tiles, in about equal parts of at most `most` rows, rounded up to tiles."""
        rows = self.p.m_size
        if isinstance(rows, int):
            most = -(-rows // -(-rows // most))
        return -(-most // self.full) * self.full

    def must_pack(self) -> bool:
        return self.rows_transposed or (super().must_pack() and self.panels > FEW_PANELS and self.full > FEW_IN_TILE)

    @property
    def rows_transposed(self) -> bool:
        """Whether rows are transposed: not contiguous along k."""
        return self.p.ka != 1

    def make_room(self) -> None:
        self.take("tile", self.full * self.width if self.one_block else self.part * self.group * self.width)
        if self.p.plain is not None:
            self.take("panels", self.group * self.K * self.width)
        if self.packs:
            rows = self.part if self.rows_transposed else self.full
            self.take("packed", rows * self.row_room + self.K * self.side * self.rows_transposed)

    def splits_panels(self) -> bool:
        rows = self.p.m_size
        return not isinstance(rows, int) or rows <= self.p.n_size

    @property
    def run(self) -> int:
        """Bytes of the runs that tiles fetch."""
        return RUN if self.one_block else 4 * self.steps

    # ---- loops

    def ticket_panels(self) -> int | None:
        return self.group if self.splits_panels() and self.takes_tickets() else None

    def takes_tickets(self) -> bool:
        """Not where packed rows pass over all of a thread's panels. Where tiles wait, rows are read anew for each group: with
        AVX-512, or more rows than one part, few groups are worth more than even ends."""
        rows = self.p.m_size
        one_part = isinstance(rows, int) and rows <= MOST_ROWS
        return not self.rows_transposed and (self.one_block or (one_part and not fetches(self.target)))

    def groups(self, panels: Range, rows: Range, then: Value) -> None:
        if self.one_block and self.rows_transposed:
            with self.e.parts(rows, self.part) as part:
                self.transposed_part(part, panels)
        else:
            size = self.even_group(panels)
            with self.e.parts(panels, size) as group:
                b = self.e.index
                self.some_panels(group, b.select(b.lt(group[1], panels[1]), group[1], then), rows)

    def some_panels(self, group: Range, then: Value, rows: Range) -> None:
        """A group of panels; `then` is the first of the next."""
        self.then = then
        if self.one_block:
            self.k_block(self.e.i64(0), self.e.i64(self.steps), rows, group)
        else:
            with self.e.parts(rows, self.part) as part:
                self.wait(part, group)

    def even_group(self, panels: Range) -> Value:
        """Panels of a group, so that no few are left: rows may be packed for each group."""
        e, b = self.e, self.e.index

        def parts(count: Value, size: Value) -> Value:
            return b.add(b.binary("arith.divui", b.sub(count, e.i64(1)), size), e.i64(1))

        count = b.maximum(b.sub(panels[1], panels[0]), e.i64(1))
        return parts(count, parts(count, e.i64(self.group)))

    def transposed_part(self, rows: Range, panels: Range) -> None:
        zero, steps, size = self.e.i64(0), self.e.i64(self.steps), self.even_group(panels)
        self.pack_transposed(rows, zero, steps)
        self.then = panels[0]
        with self.e.parts(panels, size) as group:
            self.k_block(zero, steps, rows, group, packed=True)

    def wait(self, rows: Range, panels: Range) -> None:
        """A part and a group, by blocks of k. There is one even for no steps: it writes zeros."""
        e, b = self.e, self.e.index
        steps = e.integer(self.p.k.size)

        with e.each(0, b.maximum(steps, e.i64(1)), self.steps) as k:
            self.k_block(k, b.minimum(e.i64(self.steps), b.sub(steps, k)), rows, panels)
        for row, size in self.row_blocks(rows):
            with e.each(*panels) as number:
                self.finish(row, size, number, [self.waiting(row, size, number, rows[0], panels[0])])

    def waiting(self, row: Value, size: int, panel: Value, first_row: Value, first_panel: Value) -> Value:
        """Where a tile is that waits for the next block of k: those of a block of rows side by side."""
        e, b = self.e, self.e.index
        before = b.mul(b.sub(row, first_row), e.i64(self.group * self.width))
        return advance(e, e.env["tile"], b.add(before, b.mul(b.sub(panel, first_panel), e.i64(size * self.width))))

    def k_block(self, k: Value, steps: Value, rows: Range, panels: Range, packed: bool = False) -> None:
        """These rows times these panels, for some steps from `k` on. packed: the rows are."""
        e = self.e
        if self.rows_transposed and not packed:
            self.pack_transposed(rows, k, steps)
        if self.p.plain is not None:
            self.pack_panels(self.p.plain, k, steps, panels)

        def tile(row: Value, size: int, a: Rows, number: Value, fetch: Fetch | None = None) -> None:
            panel = self.panel_at(number, panels[0], k)
            if self.one_block:
                for columns in self.whole_or_rest(number):
                    self.whole_tile(row, size, a, number, panel, columns, fetch)
                return
            to, adds = self.waiting(row, size, number, rows[0], panels[0]), e.index.ne(k, e.i64(0))
            self.multiply_tile((size, self.width), a, panel, to, steps, None, adds, fetch, self.run if fetch else 0)

        if self.rows_transposed:
            with e.each(*panels) as number:
                for row, size in self.row_blocks(rows):
                    tile(row, size, self.transposed_rows(row, rows[0], size), number)
            return
        for row, size in self.row_blocks(rows):
            a = self.some_rows(row, size, k, steps)
            ahead = Ahead(self, (row, size), (k, steps), rows, panels) if self.fetches else None
            with e.each(*panels) as number:
                tile(row, size, a, number, ahead and ahead.fetch(number))

    def whole_tile(
        self, row: Value, size: int, a: Rows, number: Value, panel: Value, columns: int, fetch: Fetch | None
    ) -> None:
        """All steps of a tile, and its epilogue."""
        e, b, steps = self.e, self.e.index, self.e.i64(self.steps)
        run = self.run if fetch else 0
        vectors = -(-columns // self.lanes)
        if size == self.full and size * vectors >= FEW_SUMS and self.stays_in_registers:
            self.tile_with_epilogue(row, size, a, number, panel, columns)
            return
        if self.direct is None or columns < self.width:
            width = -(-columns // self.lanes) * self.lanes
            self.prefetch(row, size, number)
            self.multiply_tile((size, width), a, panel, e.env["tile"], steps, fetch=fetch, run=run)
            self.epilogue(row, size, number, [e.env["tile"]], columns)
            return
        (output,) = self.p.kernel.outputs
        apart = e.integer(self.direct)
        place = b.add(b.mul(row, apart), b.mul(number, e.i64(self.width)))
        to = advance(e, e.env["base", output.access.operand], b.add(place, e.integer(output.access.address.rest)))
        self.multiply_tile((size, self.width), a, panel, to, steps, apart, fetch=fetch, run=run)

    @property
    def stays_in_registers(self) -> bool:
        """Whether the epilogue is done on the sums where they are, in registers: it is cheap, and sums are short."""
        work = [n for n in self.p.epilogue if n.cls is not None]
        cheap = all(n.cheap for n in work) and len(work) <= MOST_EPILOGUE
        return cheap and self.direct is None and 0 < self.steps <= BLOCK

    def tile_with_epilogue(self, row: Value, size: int, a: Rows, number: Value, panel: Value, columns: int) -> None:
        """A tile whose sums never lie in memory: its loop along k, and its epilogue."""
        e, b, vectors = self.e, self.e.index, -(-columns // self.lanes)
        address, apart, step = a
        tile = GemmTile(size, vectors, self.lanes)
        apart, step = (e.text.constant_values.get(x, x) for x in (apart, step))
        rows = [times(e, apart, i) for i in range(size)]  # type: ignore[arg-type]  # integers
        text = TileText(tile, e, rows, dict.fromkeys(tile.places, panel))
        loop = Loop(e.i64(self.steps), step, self.width)  # type: ignore[arg-type]
        sums = text.nest([loop], address, panel, text.zeros())
        first, ((total, _),) = b.mul(number, e.i64(self.width)), self.p.totals
        for i in range(size):
            with e.scope():
                self.bind_row(b.add(row, e.i64(i)))
                for j in range(vectors):
                    left = columns - j * self.lanes
                    mask = lanes_below(e, e.i64(left)) if left < self.lanes else None
                    with e.scope():
                        made = {total: sums[i * vectors + j]}
                        finish_vector(e, self.p.kernel, self.p.n, b.add(first, e.i64(j * self.lanes)), made, mask)

    def prefetch(self, row: Value, size: int, number: Value) -> None:
        """What the epilogue will read and write of a tile: short runs far apart, which no processor foresees."""
        e, b = self.e, self.e.index
        for access, apart, write in self.p.touched():
            bytes_, step = access.dtype.itemsize, e.integer(apart)
            first = b.add(b.mul(number, e.i64(self.width)), e.integer(access.address.rest))
            run = self.width * bytes_
            for i in range(size):
                place = b.add(first, b.mul(b.add(row, e.i64(i)), step))
                line = advance(e, e.env["base", access.operand], b.mul(place, e.i64(bytes_)), BYTE)
                for at in [*range(0, run, CACHE_LINE), run - 1]:
                    prefetch(e, advance(e, line, at, BYTE), write=write)

    # ---- packing

    def panel_at(self, number: Value, first: Value, k: Value) -> Value:
        """Where a panel is, from step `k` on; `first` is the group's first."""
        e, b = self.e, self.e.index
        if self.p.plain is not None:
            return self.packer.panel_at(e.env["panels"], b.sub(number, first))
        ((_, columns),) = self.p.totals
        before = b.add(b.mul(number, e.i64(self.p.k_size)), k)
        return advance(e, e.env["base", columns.operand], b.mul(before, e.i64(self.width)))

    def pack_panels(self, strides: tuple[Int, Int], k: Value, steps: Value, panels: Range) -> None:
        e, b = self.e, self.e.index
        ((_, columns),) = self.p.totals
        start = advance(e, e.env["base", columns.operand], e.integer(columns.address.rest))
        base = advance(e, start, b.mul(k, e.integer(strides[1])))
        then, k_then = self.then, b.add(k, steps)
        if not self.one_block:
            stays = b.lt(k_then, e.integer(self.p.k.size))
            then = b.select(stays, panels[0], then)
            start = advance(e, start, b.select(stays, b.mul(k_then, e.integer(strides[1])), e.i64(0)))
        self.after = advance(e, start, b.mul(b.mul(then, e.i64(self.width)), e.integer(strides[0])))
        self.packer.panels(base, strides, panels, self.p.n_size, steps, e.env["panels"], self.after)

    def some_rows(self, row: Value, size: int, k: Value, steps: Value) -> Rows:
        """A block's rows, which lie along k, for some steps from `k` on: packed or where they are."""
        e = self.e
        along = e.integer(self.p.lda)
        a = advance(e, self.rows_at(row), k)
        if not self.packs:
            return a, along, e.i64(1)
        self.packer.rows(a, along, size, steps, e.env["packed"], self.row_room)
        return e.env["packed"], e.i64(self.row_room), e.i64(1)

    def transposed_rows(self, row: Value, first: Value, size: int) -> Rows:
        """Where a block of the part from `first` on is packed: its rows side by side at each step."""
        e, b = self.e, self.e.index
        a = advance(e, e.env["packed"], b.mul(b.sub(row, first), e.i64(self.row_room)))
        return a, e.i64(1), e.i64(1 << (size - 1).bit_length())

    def pack_transposed(self, rows: Range, k: Value, steps: Value) -> None:
        """A part's rows, for some steps from `k` on: through all of them for a few steps at a time, which fill a cache line."""
        e, b = self.e, self.e.index
        along, down = e.integer(self.p.lda), e.integer(self.p.ka)
        start = advance(e, self.rows_at(rows[0]), b.mul(k, down))
        few = max(1, 16 // self.side)

        def some(count: int, step: Value) -> None:
            source = advance(e, start, b.mul(step, down))

            for row, size in self.row_blocks(rows):
                here = advance(e, source, b.mul(b.sub(row, rows[0]), along))
                a, _, apart = self.transposed_rows(row, rows[0], size)
                to = advance(e, a, b.mul(step, apart))
                for _ in range(count):
                    self.packer.step_of_rows(here, along if self.p.lda != 1 else None, size, to)
                    here, to = advance(e, here, down), advance(e, to, apart)

        whole = b.and_(steps, e.i64(-few))
        with e.each(0, whole, few) as step:
            some(few, step)
        if few > 1:
            with e.each(whole, steps) as step:
                some(1, step)

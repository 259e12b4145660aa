"""A product of two matrices that lie in memory as they are: panels are packed as it runs. By blocks along k too, where
these are many; then also over panels that come packed.

for group of panels:                            threads share the panels, or the rows, where these are more
  for part of the rows:                         all of them, where one block holds all of k
    for block of k:
      pack the block of the group's panels      they stay in the second-level cache
      for block of rows:
        pack the block's rows                   where they lie transposed, or would evict each other
        for panel in group:
          tile += rows @ panel                  the part's tiles stay in the second-level cache
    epilogue over the tiles

Where one block holds all of k, a tile's epilogue follows it at once.
"""

from mlirc.dialects.symbols import Int
from mlirc.lowering.cpu_target import CpuTarget
from mlirc.lowering.product_function import ProductWriter
from mlirc.lowering.product_match import Product
from mlirc.lowering.product_packing import Packer
from mlirc.lowering.product_vectors import Vectors
from mlirc.lowering.vector_builder import Value

WHOLE_K = 1024  # up to here one block holds all of k
K_BLOCK = 256
PANEL_BYTES = 448 << 10  # of packed panels
ALL_PANEL_BYTES = 800 << 10  # where that is all of them, and rows are many
TILE_BYTES = 320 << 10  # of tiles that wait for the next block of k
MOST_ROWS = 288  # that pass over packed panels before other panels take their place, where tiles wait
FEW_PANELS = 3  # rows are packed only for more


class BlockedWriter(ProductWriter):
    def __init__(self, product: Product, name: str, target: CpuTarget):
        assert len(product.totals) == 1
        super().__init__(product, name, target)
        self.packer = Packer(self.e, self.K, self.width, Vectors(self.e, name))

    def plan(self) -> None:
        k, lanes = self.p.k.size, self.lanes
        self.one_block = isinstance(k, int) and k <= WHOLE_K
        self.steps = k if isinstance(k, int) and self.one_block else K_BLOCK
        self.K = -(-self.steps // lanes) * lanes  # of room: whole vectors
        share = max(1, min(PANEL_BYTES // (self.K * self.width * 4), self.panels))
        if not self.shares_panels() and self.panels * self.K * self.width * 4 <= ALL_PANEL_BYTES:
            share = self.panels  # each row is then packed once
        self.part = self.full
        if not self.one_block:
            rows = self.p.m_size
            most = MOST_ROWS if not isinstance(rows, int) else -(-rows // -(-rows // MOST_ROWS))
            self.part = -(-most // self.full) * self.full
            share = max(1, min(share, TILE_BYTES // (self.part * self.width * 4)))
        self.group = share
        self.clears = self.one_block

    def must_pack(self) -> bool:
        return self.p.ka != 1 or (super().must_pack() and self.panels > FEW_PANELS)

    @property
    def lie_as_rows(self) -> bool:
        return self.p.ka == 1

    @property
    def row_room(self) -> int:
        """From one packed row to the next, or from one step to the next."""
        # a cache line more, or packed rows would evict each other too
        return self.K + 16 if self.lie_as_rows else -(-self.full // self.lanes) * self.lanes

    def make_room(self) -> None:
        self.room("tile", self.full * self.width if self.one_block else self.part * self.group * self.width)
        if self.p.plain is not None:
            self.room("panels", self.group * self.K * self.width)
        if self.packs:
            self.room("packed", (self.full if self.lie_as_rows else self.K) * self.row_room)

    def shares_panels(self) -> bool:
        rows = self.p.m_size
        return not isinstance(rows, int) or rows <= self.p.n_size

    # ---- loops

    def groups(self, panels: tuple[Value, Value], rows: tuple[Value, Value]) -> None:
        e, b = self.e, self.e.index

        def group(first: Value, state: list[Value]) -> list[Value]:
            within = first, b.minimum(b.add(first, e.i64(self.group)), panels[1])
            if self.one_block:
                self.k_block(e.i64(0), e.i64(self.steps), rows, within)
            else:
                self.parts(rows, within)
            return state

        e.loop(*panels, e.i64(self.group), [], [], group)

    def parts(self, rows: tuple[Value, Value], panels: tuple[Value, Value]) -> None:
        e, b = self.e, self.e.index
        steps = e.integer(self.p.k.size)

        def part(first: Value, state: list[Value]) -> list[Value]:
            within = first, b.minimum(b.add(first, e.i64(self.part)), rows[1])
            size = b.mul(b.sub(within[1], first), e.i64(self.group * self.width))
            self.packer.clear(e.env["tile"], size)

            def k_block(k: Value, state: list[Value]) -> list[Value]:
                self.k_block(k, b.minimum(e.i64(self.steps), b.sub(steps, k)), within, panels)
                return state

            def finish(row: Value, size: int) -> None:
                def panel(number: Value, state: list[Value]) -> list[Value]:
                    self.epilogue(row, size, number, [self.waiting(row, size, number, first, panels[0])])
                    return state

                e.loop(*panels, e.i64(1), [], [], panel)

            e.loop(e.i64(0), steps, e.i64(self.steps), [], [], k_block)
            self.row_blocks(within, finish)
            return state

        e.loop(*rows, e.i64(self.part), [], [], part)

    def waiting(self, row: Value, size: int, panel: Value, first_row: Value, first_panel: Value) -> Value:
        """Where a tile is that waits for the next block of k: those of a block of rows side by side."""
        e, b = self.e, self.e.index
        before = b.mul(b.sub(row, first_row), e.i64(self.group * self.width))
        return self.advance(e.env["tile"], b.add(before, b.mul(b.sub(panel, first_panel), e.i64(size * self.width))))

    def k_block(self, k: Value, steps: Value, rows: tuple[Value, Value], panels: tuple[Value, Value]) -> None:
        """All rows times the panels, for some steps from `k` on."""
        e = self.e
        if self.p.plain is not None:
            self.pack_panels(self.p.plain, k, steps, panels)

        def block(row: Value, size: int) -> None:
            a, lda, ka = self.packed_rows(row, size, k, steps)

            def panel(number: Value, state: list[Value]) -> list[Value]:
                tile = e.env["tile"] if self.one_block else self.waiting(row, size, number, rows[0], panels[0])
                self.multiply_tile(size, a, lda, ka, self.panel_at(number, panels[0], k), tile, steps)
                if self.one_block:
                    self.epilogue(row, size, number, [tile])
                return state

            e.loop(*panels, e.i64(1), [], [], panel)

        self.row_blocks(rows, block)

    def panel_at(self, number: Value, first: Value, k: Value) -> Value:
        """Where a panel is, from step `k` on; `first` is the group's first."""
        e, b = self.e, self.e.index
        if self.p.plain is not None:
            return self.packer.panel_at(e.env["panels"], b.sub(number, first))
        ((_, columns),) = self.p.totals
        before = b.add(b.mul(number, e.i64(self.p.k_size)), k)
        return self.advance(e.env["base", columns.operand], b.mul(before, e.i64(self.width)))

    def pack_panels(self, strides: tuple[Int, Int], k: Value, steps: Value, panels: tuple[Value, Value]) -> None:
        e, b = self.e, self.e.index
        ((_, columns),) = self.p.totals
        base = self.advance(e.env["base", columns.operand], e.integer(columns.address.rest))
        base = self.advance(base, b.mul(k, e.integer(strides[1])))

        self.packer.panels(base, strides, panels, self.p.n_size, steps, e.env["panels"])

    def packed_rows(self, row: Value, size: int, k: Value, steps: Value) -> tuple[Value, Value, Value]:
        """A block's rows for some steps from `k` on: the address, and the strides from row to row and from step to step."""
        e, b = self.e, self.e.index
        along, down = e.integer(self.p.lda), e.integer(self.p.ka)
        a = self.advance(self.rows_at(row), b.mul(k, down))
        if not self.packs:
            return a, along, down
        to, room = e.env["packed"], self.row_room
        if self.lie_as_rows:
            self.packer.rows(a, along, size, steps, to, room)
            return to, e.i64(room), e.i64(1)
        if self.p.lda == 1:
            self.packer.steps_of_rows(a, down, size, steps, to, room)
        else:
            self.packer.scattered_rows(a, (along, down), size, steps, to, room)
        return to, e.i64(1), e.i64(room)

"""A gemm with its epilogue as functions in MLIR text: blocks of rows, panels of columns, tiles in registers.

for group of panels (they stay in the second-level cache):      threads share the panels
  for block of rows:
    pack the block's rows, k outermost                          where their stride would make them evict each other
    for panel in group:
      tile = rows @ panel                                       all of it in registers, one pass over k
      epilogue over the tile                                    from a scratch still in the first-level cache

After Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008). The panels are packed before.
"""

from collections.abc import Iterator

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.ops.movement.panels import PANEL
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.emitter.memory import store
from mlirc.lowering.cpu.emitter.scratch import DECLARATION, opening, take, takes
from mlirc.lowering.cpu.loops.entry import LIBGOMP, PART_FUNCTION, decode_indices, entry_text, load_words, thread_part
from mlirc.lowering.cpu.loops.function import KernelText
from mlirc.lowering.cpu.loops.threads import ThreadSplit
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.cpu.matmul.match import Gemm
from mlirc.lowering.cpu.matmul.prefetch import Fetch
from mlirc.lowering.cpu.matmul.tile import Floats, GemmTile, Pairs
from mlirc.lowering.kernel.axes import Vector
from mlirc.lowering.target import CpuTarget

GROUP_BYTES = 512 << 10  # of panels: half of a second-level cache
MANY_PANELS = 8  # from here on threads share panels, below it rows
CONFLICT = 4096  # rows this many bytes apart fall into the same lines of the first-level cache


def registers(target: CpuTarget) -> int:
    return 32 if target.vector_bytes == 64 or target.arch == "aarch64" else 16


def panel_width(target: CpuTarget) -> int:
    """Columns of a panel that is packed as the product runs: so many that tiles get by with few loads."""
    vectors = {64: 2, 32: 3}.get(target.vector_bytes, 6 if target.arch == "aarch64" else 3)
    return vectors * target.vector_bytes // 4


def row_block(target: CpuTarget, width: int = PANEL) -> int:
    """Rows of a tile: as many as leave registers for a panel's vectors and one broadcast element."""
    vectors = width * 4 // target.vector_bytes
    return max(1, (registers(target) - vectors - 1) // vectors)


class GemmWriter:
    """Writes the functions of a product of float32; matmul/bf16.py has those of other factors.

    source    what the strides of the rows in memory count, a type's text
    factors   what a tile multiplies
    tiles     the functions that are called, by their rows and columns
    """

    source = "f32"
    factors: Floats | Pairs = Floats()

    def __init__(self, gemm: Gemm, name: str, target: CpuTarget):
        self.p, self.name, self.target = gemm, name, target
        self.lanes = target.vector_bytes // 4
        self.width = PANEL if gemm.plain is None else panel_width(target)
        self.vectors = self.width // self.lanes
        self.vector = f"vector<{self.lanes}xf32>"
        self.tiles: dict[tuple, GemmTile] = {}
        self.panels = -(-gemm.n_size // self.width)
        self.full, self.rests = self.blocks()
        self.packs = self.must_pack()
        self.e = VectorEmitter(Vector(gemm.n, self.lanes), target)
        self.plan()

    def plan(self) -> None:
        """How far to go along k at once, and along the panels."""
        self.K = self.steps = self.p.k_size
        # packed rows pay when several panels pass over them
        most = GROUP_BYTES // (self.K * self.width * self.p.dtype.itemsize)
        self.group = min(self.panels, max(8 if self.packs else 1, most))

    def must_pack(self) -> bool:
        p = self.p
        return p.ka != 1 or (isinstance(p.lda, int) and p.lda * p.dtype.itemsize % CONFLICT == 0)

    def blocks(self) -> tuple[int, list[int]]:
        """Rows of the full blocks, and of the blocks that may be left: the largest first."""
        most, rows = row_block(self.target, self.width), self.p.m_size
        if not isinstance(rows, int):
            rests = [1 << k for k in reversed(range(most.bit_length())) if 1 << k < most]
            return most, rests
        count = max(1, -(-rows // most))
        full = max(1, -(-rows // count))
        return full, [rows % full] if rows % full else []

    def write(self) -> KernelText:
        p, e, kernel = self.p, self.e, self.p.kernel
        names = kernel.symbols
        e.env["thread"], e.env["threads"] = Value("%thread", torch.int64), Value("%threads", torch.int64)
        load_words(e, kernel, names, "%args")
        self.make_room()
        e.nodes = [n for n in p.epilogue if not n.dims and n.depth == 0]
        e.enter()
        e.nodes = ()
        by_panels = self.shares_panels()
        rows = e.integer(p.m_size)
        every = (e.i64(0), e.i64(self.panels)), (e.i64(0), rows)
        if by_panels:
            self.all_panels(every[1])
            units = self.panels
        else:
            step = e.i64(self.full)
            count = e.index.binary("arith.divui", e.index.add(rows, e.i64(self.full - 1)), step)
            lo, hi = thread_part(e, count)
            self.groups(every[0], (e.index.mul(lo, step), e.index.minimum(e.index.mul(hi, step), rows)))
            units = symbols.floordiv(p.m_size + self.full - 1, self.full)
        head = f"llvm.func internal @{self.name}_body(%frame: !llvm.ptr, %thread: i64, %threads: i64) {{"
        body = "\n".join([head, *opening(e), *e.text.preamble, *e.lines, "llvm.return", "}"])
        work = symbols.product([p.m_size, p.n_size, p.k.size])
        split = ThreadSplit(Vector(None, 1), units=units, work=symbols.floordiv(work, 8))
        parts = [
            *(tile.text(self.name) for tile in self.tiles.values()),
            *e.text.functions.values(),
            body,
            entry_text(kernel, split, names, self.name, self.target, e.scratch_bytes),
            PART_FUNCTION.replace("KERNEL", self.name),
        ]
        return KernelText("\n".join(parts), e.text.declarations + LIBGOMP + [DECLARATION] * takes(e), names)

    def make_room(self) -> None:
        """Takes scratch memory."""
        self.room("tile", self.full * self.width * len(self.p.totals))
        if self.packs:
            self.room("packed", self.full * self.steps)

    def room(self, name: str, floats: int) -> None:
        self.e.env[name] = take(self.e, floats, "f32", 4)

    def shares_panels(self) -> bool:
        """Whether threads share the panels, not the rows."""
        return self.panels >= MANY_PANELS

    # ---- loops

    def all_panels(self, rows: tuple[Value, Value]) -> None:
        """A thread's share of the panels, with all rows."""
        self.groups(thread_part(self.e, self.e.i64(self.panels)), rows)

    def groups(self, panels: tuple[Value, Value], rows: tuple[Value, Value]) -> None:
        e, b = self.e, self.e.index

        with e.each(*panels, self.group) as first:
            last = b.minimum(b.add(first, e.i64(self.group)), panels[1])
            for row, size in self.row_blocks(rows):
                self.block(row, size, (first, last))

    def row_blocks(self, rows: tuple[Value, Value]) -> Iterator[tuple[Value, int]]:
        """The first row, and how many: of the full blocks, and of each size of what is left."""
        e, b = self.e, self.e.index
        start, end = rows
        for size in [self.full, *self.rests]:
            left = b.sub(end, start)
            count = b.mul(b.binary("arith.divui", left, e.i64(size)), e.i64(size))
            stop = b.add(start, count)

            with e.each(start, stop, size) as row:
                yield row, size
            start = stop

    def block(self, row: Value, size: int, panels: tuple[Value, Value]) -> None:
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
                columns = self.advance(e.env["base", panels_of.operand], offset, self.factors.panel)
                self.multiply_tile((size, self.width), (a, lda, ka), columns, self.tile(t), e.i64(self.steps))
            self.finish(row, size, number, [self.tile(t) for t in range(len(p.totals))])

    def rows_at(self, row: Value) -> Value:
        """The address of a row's first element."""
        e, b, rows = self.e, self.e.index, self.p.rows
        base = self.advance(e.env["base", rows.operand], e.integer(rows.address.rest), self.source)
        return self.advance(base, b.mul(row, e.integer(self.p.lda)), self.source)

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
        e = self.e
        lda, ka = (e.text.constant_values.get(stride) for stride in rows[1:])
        made = GemmTile(*shape, self.width, self.lanes, self.factors, lda, ka, run)  # type: ignore[arg-type]  # integers
        tile = self.tiles.setdefault((shape, lda, ka, run), made)
        adds = adds or e.builder(torch.bool).constant(False, torch.bool)
        arguments = [*rows, panel, to, apart or e.i64(self.width), steps, adds, *(fetch or ())]
        e.lines.append(f"llvm.call @{tile.name(self.name)}({', '.join(arguments)}) : {tile.types}")

    def tile_strides(self, size: int, lda: Value) -> tuple[Value, Value]:
        """Those of the rows that a tile's function gets, from row to row and from step to step: packed ones or not."""
        return (self.e.i64(1), self.e.i64(size)) if self.packs else (lda, self.e.i64(1))

    def pack(self, a: Value, size: int, lda: Value, ka: Value) -> None:
        """packed[k * size + i] = a[i, k]"""
        e, b = self.e, self.e.index

        with e.each(0, self.K) as k:
            source = self.advance(a, b.mul(k, ka), self.source)
            target = self.advance(e.env["packed"], b.mul(k, e.i64(size)))
            for i in range(size):
                x = self.load_scalar(self.advance(source, b.mul(lda, e.i64(i)), self.source) if i else source)
                address = self.advance(target, e.i64(i))
                e.lines.append(f"llvm.store {x}, {address} {{alignment = 4 : i64}} : f32, !llvm.ptr")

    def whole_or_rest(self, panel: Value) -> Iterator[int]:
        """How many columns a panel has, the last maybe fewer: code for each."""
        rest = self.p.n_size % self.width
        if not rest or self.panels == 1:
            yield rest or self.width
        else:
            yield from self.e.either(self.e.index.ne(panel, self.e.i64(self.panels - 1)), self.width, rest)

    def finish(self, row: Value, size: int, panel: Value, tiles: list[Value]) -> None:
        for columns in self.whole_or_rest(panel):
            self.epilogue(row, size, panel, tiles, columns)

    def epilogue(self, row: Value, size: int, panel: Value, tiles: list[Value], columns: int) -> None:
        """The scalar work on so many columns of a tile, row by row, vector by vector."""
        e, b = self.e, self.e.index
        first = b.mul(panel, e.i64(self.width))

        with e.each(0, size) as i:
            self.bind_rows(b.add(row, i))
            lines = [self.advance(tile, b.mul(i, e.i64(self.width))) for tile in tiles]
            for start in range(0, columns, self.lanes):
                at = e.i64(start)
                with e.scope():
                    self.columns(b.add(first, at), [self.advance(line, at) for line in lines], columns - start)

    def bind_rows(self, row: Value) -> None:
        e = self.e
        if self.p.m:
            decode_indices(e, self.p.m, row)
        names = [axis.name for axis in self.p.m]
        e.nodes = [n for n in self.p.epilogue if n.depth == 0]
        e.enter(*names)
        e.nodes = ()

    def columns(self, column: Value, sources: list[Value], left: int) -> None:
        """The scalar work on a vector, of which `left` elements are columns."""
        e, p = self.e, self.p
        wide = e.builder(torch.float32, True)
        for (total, _), source in zip(p.totals, sources, strict=True):
            text = f"llvm.load {source} {{alignment = 64 : i64}} : !llvm.ptr -> {self.vector}"
            e.env[total] = wide.emit(text, torch.float32)
        e.env[p.n.name] = column
        e.bound.add(p.n.name)
        if left < self.lanes:
            e.mask = e.builder(torch.int64, True).lt(e.lane_numbers(), e.splat(e.i64(left)))
        for output in p.kernel.outputs:
            e.value(output.node)
        for output in p.kernel.outputs:
            store(e, output.access, output.node)

    # ---- text

    def tile(self, number: int) -> Value:
        """The scratch of one of the products."""
        return (
            self.advance(self.e.env["tile"], self.e.i64(number * self.full * self.width))
            if number
            else self.e.env["tile"]
        )

    def advance(self, address: Value, offset: Value, element: str = "f32") -> Value:
        return self.e.index.emit(
            f"llvm.getelementptr {address}[{offset}] : (!llvm.ptr, i64) -> !llvm.ptr, {element}", torch.int64
        )

    def load_scalar(self, address: Value) -> Value:
        return self.e.builder(torch.float32).emit(
            f"llvm.load {address} {{alignment = 4 : i64}} : !llvm.ptr -> f32", torch.float32
        )

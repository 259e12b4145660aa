"""A matrix product with its epilogue as functions in MLIR text: blocks of rows, panels of columns, tiles in registers.

for group of panels (they stay in the second-level cache):      threads share the panels
  for block of rows:
    pack the block's rows, k outermost                          where their stride would make them evict each other
    for panel in group:
      tile = rows @ panel                                       all of it in registers, one pass over k
      epilogue over the tile                                    from a scratch still in the first-level cache

After Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008); the panels come packed.
"""

from collections.abc import Callable

import torch

from mlirc.dialects import symbols
from mlirc.dialects.ops.panels import PANEL
from mlirc.lowering.cpu_target import CpuTarget
from mlirc.lowering.kernel_axes import Vector
from mlirc.lowering.kernel_emitter import Emitter
from mlirc.lowering.kernel_function import _LIBGOMP, _PART, KernelText, _decode, _entry, _load_words, _part
from mlirc.lowering.kernel_memory import store
from mlirc.lowering.kernel_threads import Split
from mlirc.lowering.product_match import Product
from mlirc.lowering.vector_builder import Value

GROUP_BYTES = 512 << 10  # of panels: half of a second-level cache
BLOCK = 256  # products that are summed before they are added to the tile
TILE_ARGUMENTS = "%a: !llvm.ptr, %lda: i64, %ka: i64, %b: !llvm.ptr, %c: !llvm.ptr, %all: i64"
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


class ProductWriter:
    """Writes the functions of a product of float32; product_bf16.py has those of other factors.

    source    what the strides of the rows in memory count, a type's text
    row       what the strides count that a tile's function gets
    panel     what a panel holds PANEL of at each step along k
    clears    whether a tile starts from 0, or what it holds is added to
    """

    source, row, panel = "f32", "f32", "f32"
    clears = True

    def __init__(self, product: Product, name: str, target: CpuTarget):
        self.p, self.name, self.target = product, name, target
        self.lanes = target.vector_bytes // 4
        self.width = PANEL if product.plain is None else panel_width(target)
        self.vectors = self.width // self.lanes
        self.vector = f"vector<{self.lanes}xf32>"
        self.short = BLOCK  # steps along k that are summed in registers
        self.panels = -(-product.n_size // self.width)
        self.full, self.rests = self.blocks()
        self.packs = self.must_pack()
        self.e = Emitter(Vector(product.n, self.lanes), target)
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
        _load_words(e, kernel, names, "%args")
        self.make_room()
        e.nodes = [n for n in p.epilogue if not n.dims and n.depth == 0]
        e.enter()
        e.nodes = ()
        by_panels = self.shares_panels()
        rows = e.integer(p.m_size)
        every = (e.i64(0), e.i64(self.panels)), (e.i64(0), rows)
        if by_panels:
            self.groups(_part(e, e.i64(self.panels)), every[1])
            units = self.panels
        else:
            step = e.i64(self.full)
            count = e.index.binary("arith.divui", e.index.add(rows, e.i64(self.full - 1)), step)
            lo, hi = _part(e, count)
            self.groups(every[0], (e.index.mul(lo, step), e.index.minimum(e.index.mul(hi, step), rows)))
            units = symbols.floordiv(p.m_size + self.full - 1, self.full)
        head = f"llvm.func internal @{self.name}_body(%frame: !llvm.ptr, %thread: i64, %threads: i64) {{"
        args = "%args = llvm.load %frame : !llvm.ptr -> !llvm.ptr"
        body = "\n".join([head, args, *e.text.preamble, *e.lines, "llvm.return", "}"])
        work = symbols.product([p.m_size, p.n_size, p.k.size])
        split = Split(Vector(None, 1), units=units, work=symbols.floordiv(work, 8))
        tiles = [self.tile_function(rows) for rows in dict.fromkeys([self.full, *self.rests])]
        parts = [
            *tiles,
            *e.text.functions.values(),
            body,
            _entry(kernel, split, names, self.name, self.target, 0),
            _PART.replace("KERNEL", self.name),
        ]
        return KernelText("\n".join(parts), e.text.declarations + _LIBGOMP, names)

    def make_room(self) -> None:
        """Takes scratch memory from the stack."""
        self.room("tile", self.full * self.width * len(self.p.totals))
        if self.packs:
            self.room("packed", self.full * self.steps)

    def room(self, name: str, floats: int) -> None:
        text = f"llvm.alloca {self.e.i64(floats)} x f32 {{alignment = 64 : i64}} : (i64) -> !llvm.ptr"
        self.e.env[name] = self.e.index.emit(text, torch.int64)

    def shares_panels(self) -> bool:
        """Whether threads share the panels, not the rows."""
        return self.panels >= MANY_PANELS

    # ---- loops

    def groups(self, panels: tuple[Value, Value], rows: tuple[Value, Value]) -> None:
        e, b = self.e, self.e.index

        def group(first: Value, state: list[Value]) -> list[Value]:
            last = b.minimum(b.add(first, e.i64(self.group)), panels[1])
            self.row_blocks(rows, lambda row, size: self.block(row, size, (first, last)))
            return state

        e.loop(*panels, e.i64(self.group), [], [], group)

    def row_blocks(self, rows: tuple[Value, Value], body: Callable[[Value, int], None]) -> None:
        """`body(first row, how many)` for each block of rows."""
        e, b = self.e, self.e.index
        start, end = rows
        for size in [self.full, *self.rests]:
            left = b.sub(end, start)
            count = b.mul(b.binary("arith.divui", left, e.i64(size)), e.i64(size))
            stop = b.add(start, count)

            def block(row: Value, state: list[Value], size: int = size) -> list[Value]:
                body(row, size)
                return state

            e.loop(start, stop, e.i64(size), [], [], block)
            start = stop

    def block(self, row: Value, size: int, panels: tuple[Value, Value]) -> None:
        e, b, p = self.e, self.e.index, self.p
        lda, ka = e.integer(p.lda), e.integer(p.ka)
        a = self.rows_at(row)
        if self.packs:
            self.pack(a, size, lda, ka)
            a = e.env["packed"]
        lda, ka = self.tile_strides(size, lda)

        def panel(number: Value, state: list[Value]) -> list[Value]:
            for t, (_, panels_of) in enumerate(p.totals):
                offset = b.mul(number, e.i64(self.steps * self.width))
                columns = self.advance(e.env["base", panels_of.operand], offset, self.panel)
                self.multiply_tile(size, a, lda, ka, columns, self.tile(t), e.i64(self.steps))
            self.epilogue(row, size, number, [self.tile(t) for t in range(len(p.totals))])
            return state

        e.loop(*panels, e.i64(1), [], [], panel)

    def rows_at(self, row: Value) -> Value:
        """The address of a row's first element."""
        e, b, rows = self.e, self.e.index, self.p.rows
        base = self.advance(e.env["base", rows.operand], e.integer(rows.address.rest), self.source)
        return self.advance(base, b.mul(row, e.integer(self.p.lda)), self.source)

    def multiply_tile(self, size: int, a: Value, lda: Value, ka: Value, panel: Value, c: Value, steps: Value) -> None:
        self.e.lines.append(
            f"llvm.call @{self.name}_tile{size}({a}, {lda}, {ka}, {panel}, {c}, {steps}) : "
            "(!llvm.ptr, i64, i64, !llvm.ptr, !llvm.ptr, i64) -> ()"
        )

    def tile_strides(self, size: int, lda: Value) -> tuple[Value, Value]:
        """Those of the rows that a tile's function gets, from row to row and from step to step: packed ones or not."""
        return (self.e.i64(1), self.e.i64(size)) if self.packs else (lda, self.e.i64(1))

    def pack(self, a: Value, size: int, lda: Value, ka: Value) -> None:
        """packed[k * size + i] = a[i, k]"""
        e, b = self.e, self.e.index

        def column(k: Value, state: list[Value]) -> list[Value]:
            source = self.advance(a, b.mul(k, ka), self.source)
            target = self.advance(e.env["packed"], b.mul(k, e.i64(size)))
            for i in range(size):
                x = self.load_scalar(self.advance(source, b.mul(lda, e.i64(i)), self.source) if i else source)
                address = self.advance(target, e.i64(i))
                e.lines.append(f"llvm.store {x}, {address} {{alignment = 4 : i64}} : f32, !llvm.ptr")
            return state

        e.loop(e.i64(0), e.i64(self.K), e.i64(1), [], [], column)

    def epilogue(self, row: Value, size: int, panel: Value, tiles: list[Value]) -> None:
        """The scalar work on a tile, row by row, vector by vector; the last panel may have fewer columns."""
        e, b = self.e, self.e.index
        first = b.mul(panel, e.i64(self.width))

        def one_row(i: Value, state: list[Value]) -> list[Value]:
            self.bind_rows(b.add(row, i))
            lines = [self.advance(tile, b.mul(i, e.i64(self.width))) for tile in tiles]
            for v in range(self.vectors):
                at = e.i64(v * self.lanes)
                with e.scope():
                    self.columns(b.add(first, at), [self.advance(line, at) for line in lines])
            return state

        e.loop(e.i64(0), e.i64(size), e.i64(1), [], [], one_row)

    def bind_rows(self, row: Value) -> None:
        e = self.e
        if self.p.m:
            _decode(e, self.p.m, row)
        names = [axis.name for axis in self.p.m]
        e.nodes = [n for n in self.p.epilogue if n.depth == 0]
        e.enter(*names)
        e.nodes = ()

    def columns(self, column: Value, sources: list[Value]) -> None:
        e, p = self.e, self.p
        wide = e.builder(torch.float32, True)
        for (total, _), source in zip(p.totals, sources, strict=True):
            text = f"llvm.load {source} {{alignment = 64 : i64}} : !llvm.ptr -> {self.vector}"
            e.env[total] = wide.emit(text, torch.float32)
        e.env[p.n.name] = column
        e.bound.add(p.n.name)
        if p.n_size % self.width:
            left = e.index.sub(e.i64(p.n_size), column)
            e.mask = e.builder(torch.int64, True).lt(e.lane_numbers(), e.splat(left))
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

    def tile_function(self, rows: int) -> str:
        """tile[rows, self.width] = a[rows, all] @ panel[all, self.width]; added to the tile unless it `clears`.

        SHORT SUMS: a block of k is summed in registers, then added to the tile, so that rounding errors do not grow
        with K. Few rows sum several k side by side.
        """
        vectors, vector = self.vectors, self.vector
        unroll = max(1, min(8 // (rows * vectors), 4)) if rows * vectors < 8 else 1
        cells = [(u, i, j) for u in range(unroll) for i in range(rows) for j in range(vectors)]
        first = [(0, i, j) for i in range(rows) for j in range(vectors)]
        types = ", ".join([vector] * len(cells))
        out = [
            f"llvm.func internal @{self.name}_tile{rows}({TILE_ARGUMENTS}) {{",
            f"%zero = arith.constant dense<0.0> : {vector}",
            "%k0 = arith.constant 0 : i64\n%one = arith.constant 1 : i64",
            f"%step = arith.constant {unroll} : i64\n%block = arith.constant {self.short} : i64",
            f"%width = arith.constant {self.width} : i64",
        ]
        for i in range(rows):
            out.append(f"%i{i} = arith.constant {i} : i64\n%ao{i} = arith.muli %i{i}, %lda : i64")
            out.append(f"%a{i} = llvm.getelementptr %a[%ao{i}] : (!llvm.ptr, i64) -> !llvm.ptr, {self.row}")
        for _, i, j in first:
            out.append(
                f"%p{i}_{j} = llvm.getelementptr %c[{i * self.width + j * self.lanes}] : (!llvm.ptr) -> !llvm.ptr, f32"
            )
            if self.clears:
                out.append(f"llvm.store %zero, %p{i}_{j} {{alignment = 64 : i64}} : {vector}, !llvm.ptr")
        out.append("scf.for %kb = %k0 to %all step %block : i64 {")
        out.append("%far = arith.addi %kb, %block : i64\n%end = arith.minsi %far, %all : i64")
        main = "%end"
        if unroll > 1:
            out.append("%len = arith.subi %end, %kb : i64\n%over = arith.remui %len, %step : i64")
            out.append("%main = arith.subi %end, %over : i64")
            main = "%main"
        starts = ", ".join(f"%c{u}_{i}_{j} = %zero" for u, i, j in cells)
        out.append(
            f"%sum:{len(cells)} = scf.for %k = %kb to {main} step %step iter_args({starts}) -> ({types}) : i64 {{"
        )
        names = {cell: f"%c{cell[0]}_{cell[1]}_{cell[2]}" for cell in cells}
        for u in range(unroll):
            self.rank_one(out, rows, u, names, "%k", f"m{u}_")
        out.append(f"scf.yield {', '.join(names[c] for c in cells)} : {types}\n}}")
        totals = {c: f"%sum#{n}" for n, c in enumerate(cells)}
        for u, i, j in cells[len(first) :]:
            out.append(f"%t{u}_{i}_{j} = arith.addf {totals[0, i, j]}, {totals[u, i, j]} : {vector}")
            totals[0, i, j] = f"%t{u}_{i}_{j}"
        if unroll > 1:
            starts = ", ".join(f"%r0_{i}_{j} = {totals[0, i, j]}" for _, i, j in first)
            kinds = ", ".join([vector] * len(first))
            out.append(
                f"%rest:{len(first)} = scf.for %kr = %main to %end step %one iter_args({starts}) -> ({kinds}) : i64 {{"
            )
            names = {c: f"%r0_{c[1]}_{c[2]}" for c in first}
            self.rank_one(out, rows, 0, names, "%kr", "r")
            out.append(f"scf.yield {', '.join(names[c] for c in first)} : {kinds}\n}}")
            totals = {c: f"%rest#{n}" for n, c in enumerate(first)}
        for _, i, j in first:
            out.append(f"%q{i}_{j} = llvm.load %p{i}_{j} {{alignment = 64 : i64}} : !llvm.ptr -> {vector}")
            out.append(f"%s{i}_{j} = arith.addf %q{i}_{j}, {totals[0, i, j]} : {vector}")
            out.append(f"llvm.store %s{i}_{j}, %p{i}_{j} {{alignment = 64 : i64}} : {vector}, !llvm.ptr")
        return "\n".join([*out, "}", "llvm.return\n}"])

    def rank_one(self, out: list[str], rows: int, u: int, names: dict, k: str, tag: str) -> None:
        """Every cell of copy `u` plus a[:, k + u] times row k + u of the panel; `names` then holds the new values."""
        at = k
        if u:
            out.append(f"%{tag}u = arith.constant {u} : i64\n%{tag}k = arith.addi {k}, %{tag}u : i64")
            at = f"%{tag}k"
        out.append(f"%{tag}bo = arith.muli {at}, %width : i64\n%{tag}ko = arith.muli {at}, %ka : i64")
        out.append(f"%{tag}bk = llvm.getelementptr %b[%{tag}bo] : (!llvm.ptr, i64) -> !llvm.ptr, {self.panel}")
        for j in range(self.vectors):
            at = f"%{tag}bk[{j * self.lanes}]"
            out.append(f"%{tag}bp{j} = llvm.getelementptr {at} : (!llvm.ptr) -> !llvm.ptr, {self.panel}")
            self.load_columns(out, f"%{tag}b{j}", f"%{tag}bp{j}")
        for i in range(rows):
            out.append(f"%{tag}ap{i} = llvm.getelementptr %a{i}[%{tag}ko] : (!llvm.ptr, i64) -> !llvm.ptr, {self.row}")
            self.load_row(out, f"%{tag}av{i}", f"%{tag}ap{i}")
            for j in range(self.vectors):
                self.multiply(out, f"%{tag}n{i}_{j}", f"%{tag}av{i}", f"%{tag}b{j}", names[u, i, j])
                names[u, i, j] = f"%{tag}n{i}_{j}"

    # The instructions of one step along k: each appends the definition of `name`.

    def load_columns(self, out: list[str], name: str, address: str) -> None:
        out.append(f"{name} = llvm.load {address} {{alignment = 4 : i64}} : !llvm.ptr -> {self.vector}")

    def load_row(self, out: list[str], name: str, address: str) -> None:
        """One element in every lane."""
        out.append(f"{name}s = llvm.load {address} {{alignment = 4 : i64}} : !llvm.ptr -> f32")
        out.append(f"{name} = vector.broadcast {name}s : f32 to {self.vector}")

    def multiply(self, out: list[str], name: str, a: str, b: str, c: str) -> None:
        out.append(f"{name} = math.fma {a}, {b}, {c} : {self.vector}")

"""What the code for a convolution and for its gradients has in common: blocks of windows, tiles of filters, the function."""

from collections.abc import Callable

import torch

from mlirc.dialects.symbols import Int
from mlirc.lowering.attention_memory import advance, store_vector
from mlirc.lowering.convolution_plan import Plan, Windows
from mlirc.lowering.convolution_tile import Tile
from mlirc.lowering.cpu_target import CpuTarget
from mlirc.lowering.kernel_axes import Vector
from mlirc.lowering.kernel_emitter import Emitter
from mlirc.lowering.kernel_function import _LIBGOMP, _PART, KernelText, _entry, _load_words, _part
from mlirc.lowering.kernel_nodes import Kernel
from mlirc.lowering.kernel_threads import Split
from mlirc.lowering.product_packing import Packer
from mlirc.lowering.product_vectors import Vectors
from mlirc.lowering.vector_builder import Value


class ConvolutionWriter:
    """What the code for a convolution and for its gradients has in common."""

    def __init__(self, c: Plan, name: str, target: CpuTarget):
        self.c, self.name, self.target = c, name, target
        self.e = Emitter(Vector(None, target.vector_bytes // 4), target)
        self.lanes = self.e.lanes
        self.tiles: dict[str, Tile] = {}

    def function(self, operands: list[str], units: Int) -> KernelText:
        e, names = self.e, list(self.c.words)
        kernel = Kernel({}, {}, [], [], len(operands))
        e.env["thread"], e.env["threads"] = Value("%thread", torch.int64), Value("%threads", torch.int64)
        _load_words(e, kernel, names, "%args")
        for number, name in enumerate(operands):
            e.env[name] = e.env["base", number]
        self.body(*_part(e, e.integer(units)))
        head = f"llvm.func internal @{self.name}_body(%frame: !llvm.ptr, %thread: i64, %threads: i64) {{"
        args = "%args = llvm.load %frame : !llvm.ptr -> !llvm.ptr"
        body = "\n".join([head, args, *e.text.preamble, *e.lines, "llvm.return", "}"])
        split = Split(Vector(None, 1), units=units, work=self.c.work)
        entry = _entry(kernel, split, names, self.name, self.target, 0)
        tiles = [tile.text for tile in self.tiles.values()]
        parts = [*tiles, *e.text.functions.values(), body, entry, _PART]
        return KernelText("\n".join(parts).replace("KERNEL", self.name), e.text.declarations + _LIBGOMP, names)

    def body(self, lo: Value, hi: Value) -> None:
        """The units lo to hi."""
        raise NotImplementedError

    def each_tile(self, tiles: tuple[Value, Value], body: Callable[[Value, int, Value], None]) -> None:
        """`body`, given the first column, the vectors and the number after the first, of each tile of columns."""
        e, b = self.e, self.e.index
        before: Int = 0
        first: Int = 0
        for count, vectors in zip(self.c.tiles, self.c.widths, strict=True):
            width = vectors * self.lanes

            def one(t: Value, state: list[Value], vectors=vectors, start=first - before * width) -> list[Value]:
                body(self.sum_of((t, vectors * self.lanes), start), vectors, b.sub(t, tiles[0]))
                return state

            lo, hi = b.maximum(tiles[0], self.of(before)), b.minimum(tiles[1], self.of(before + count))
            e.loop(lo, hi, e.i64(1), [], [], one)
            before, first = before + count, first + count * width

    def tile(self, rows: int, vectors: int, loops: int, neighbours: bool) -> Tile:
        name = f"{self.name}_tile_{rows}_{vectors}"
        return self.tiles.setdefault(name, Tile(name, rows, vectors, self.lanes, loops, neighbours))

    def packer(self, room: int, vectors: int) -> Packer:
        return Packer(self.e, room, vectors * self.lanes, Vectors(self.e, self.name))

    def clear(self, address: Value, count: Value) -> None:
        """Zeros, for `count` elements: whole vectors."""
        e = self.e

        def vector(k: Value, state: list[Value]) -> list[Value]:
            store_vector(e, e.builder(torch.float32, True).constant(0.0), advance(e, address, k))
            return state

        e.loop(e.i64(0), count, e.i64(self.lanes), [], [], vector)

    def scratch(self, count: Int) -> Value:
        """Memory on the stack for so many elements."""
        text = f"llvm.alloca {self.of(count)} x f32 {{alignment = 64 : i64}} : (i64) -> !llvm.ptr"
        return self.e.index.emit(text, torch.int64)

    # ---- index arithmetic

    def of(self, size: Int) -> Value:
        return self.e.integer(size)

    def sum_of(self, *terms: Value | tuple[Value, Int] | Int) -> Value:
        """Terms added up, each a value, a value times a size, or a size."""
        b, total = self.e.index, None
        for term in terms:
            if isinstance(term, tuple):
                term = term[0] if term[1] == 1 else b.mul(term[0], self.of(term[1]))
            elif not isinstance(term, Value):
                term = self.of(term)
            total = term if total is None else b.add(total, term)
        assert total is not None
        return total

    def up(self, x: Value, y: Int) -> Value:
        """x / y rounded up, for x of at least 0."""
        return self.down(self.sum_of(x, y - 1), y) if y != 1 else x

    def down(self, x: Value, y: Int) -> Value:
        return self.e.index.binary("arith.divui", x, self.of(y)) if y != 1 else x

    def inside(self, axis: Windows, tap: Value, lo: Value, hi: Value) -> tuple[Value, Value]:
        """The windows from lo to hi whose element `tap` is inside the image: from where to where; none where to <= from."""
        e, b = self.e, self.e.index
        reach = b.mul(tap, self.of(axis.dilation))
        first = self.up(b.maximum(b.sub(self.of(axis.padding), reach), e.i64(0)), axis.stride)
        last = b.sub(self.of(axis.size - 1 + axis.padding + axis.stride), reach)
        end = self.down(b.maximum(last, e.i64(0)), axis.stride)
        return b.maximum(first, lo), b.minimum(end, hi)

"""The common part of convolution kernels and their gradients: blocks of windows, tiles of filters, functions.

    kernel_0_body(%frame, %thread, %threads)                      where the operands and slots are, and its functions
    kernel_0_blocks(%args, %slots, %calls, %thread, %threads, %scratch)  loops over blocks, panels and parts of channels
    kernel_0_tile4x24, kernel_0_finish_3, ...                      what these call, by address

Loops over blocks are the longest code, and the same for each convolution of a kind, whatever its tiles are and whatever follows:
as they know no function by name, all kernels share them (codegen/llvm/shared_parts.py).
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from mlirc.dialects.core.symbols import Int
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.cpu.convolution.plan import ConvolutionPlan, WindowPlan
from mlirc.lowering.cpu.emitter.addresses import PTR
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.emitter.scratch import opening, take_floats, uses_scratch
from mlirc.lowering.cpu.loops.entry import load_slot
from mlirc.lowering.cpu.loops.frame import KernelText, begin, framed, operands_only
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.cpu.matmul.packing import Packer
from mlirc.lowering.kernel.axes import Vector
from mlirc.lowering.target import CpuTarget


@dataclass(frozen=True)
class Panel:
    """A tile of filters whose width is known when code runs: the elements of its rows; and whether that is the first of the
    plan's widths, where it has two."""

    width: Value
    is_wide: Value | None


class ConvolutionWriter:
    """What the code for a convolution and for its gradients has in common."""

    def __init__(self, c: ConvolutionPlan, name: str, target: CpuTarget):
        self.c, self.name, self.target = c, name, target
        self.e = VectorEmitter(Vector(None, target.vector_bytes // 4), target)
        self.lanes = self.e.lanes

    def function(self, operands: list[str], items: Int, read: int = 3) -> KernelText:
        """The kernel; the loops over blocks read the first `read` of the operands."""
        e, names = self.e, list(self.c.slots)
        begin(e, operands_only(0), names, "%slots")
        for number, name in enumerate(operands[:read]):
            e.env[name] = load_slot(e, "%args", number, PTR)
        self.body(items)
        blocks = "\n".join([_BLOCKS, *e.text.preamble, *e.lines, "llvm.return", "}"]).replace("KERNEL", self.name)
        blocks, called = by_address(blocks, self.name)
        body = "\n".join([blocks, _body(e, called, len(operands))])
        given = operands_only(len(operands))
        return framed(e, self.name, self.target, given, names, self.c.work, items, body=body)

    @contextmanager
    def beside(self, e: VectorEmitter) -> Iterator[None]:
        """What is written inside goes to another function."""
        saved, self.e = self.e, e
        yield
        self.e = saved

    def body(self, items: Int) -> None:
        """This thread's part of the work items."""
        raise NotImplementedError

    def each_tile(self, tiles: tuple[Value, Value]) -> Iterator[tuple[Value, int, Value]]:
        """Loops over the tiles of columns, with code for each width of a tile.

        Gives a tile's first column, its width in vectors, and its number, counted from the first tile of the range `tiles`.
        """
        e, b = self.e, self.e.index
        before: Int = 0
        first: Int = 0
        for count, vectors in zip(self.c.tiles, self.c.widths, strict=True):
            width = vectors * self.lanes
            lo, hi = b.maximum(tiles[0], self.of(before)), b.minimum(tiles[1], self.of(before + count))
            with e.each(lo, hi) as t:
                yield self.sum_of((t, width), first - before * width), vectors, b.sub(t, tiles[0])
            before, first = before + count, first + count * width

    @contextmanager
    def each_panel(self, panels: tuple[Value, Value]) -> Iterator[tuple[Value, Panel, Value]]:
        """Loops over the tiles of columns as `each_tile` does, with one code for all widths: the width is a value."""
        e, b, c = self.e, self.e.index, self.c
        wide, *narrow = (e.i64(vectors * self.lanes) for vectors in c.widths)

        with e.each(*panels) as t:
            panel, column = Panel(wide, None), b.mul(t, wide)
            if narrow:
                before = self.of(c.tiles[0])
                is_wide = b.lt(t, before)
                panel = Panel(b.select(is_wide, wide, narrow[0]), is_wide)
                behind = b.add(b.mul(before, wide), b.mul(b.sub(t, before), narrow[0]))
                column = b.select(is_wide, column, behind)
            yield column, panel, b.sub(t, panels[0])

    def by_width(self, panel: Panel) -> Iterator[int]:
        """The number of a panel's vectors: code for each."""
        return iter(self.c.widths) if panel.is_wide is None else self.e.either(panel.is_wide, *self.c.widths)

    def packer(self, room: int, vectors: int) -> Packer:
        return Packer(self.e, room, vectors * self.lanes)

    def scratch(self, count: Int) -> Value:
        """The address of scratch for `count` float32 elements."""
        return take_floats(self.e, count)

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

    def taps_met(self, axis: WindowPlan, window: Value) -> tuple[Value, Value]:
        """The taps of a window that meet the image: the first, and an end of at least the last, past which the window may have none."""
        e, b = self.e, self.e.index
        first = b.mul(window, self.of(axis.stride))
        before = b.maximum(b.sub(self.of(axis.padding), first), e.i64(0))
        after = b.maximum(b.sub(self.of(axis.size - 1 + axis.padding + axis.dilation), first), e.i64(0))
        return self.up(before, axis.dilation), self.down(after, axis.dilation)

    def inside(self, axis: WindowPlan, tap: Value, lo: Value, hi: Value) -> tuple[Value, Value]:
        """The windows from lo to hi whose element `tap` is inside the image: from where to where; none where to <= from."""
        e, b = self.e, self.e.index
        reach = b.mul(tap, self.of(axis.dilation))
        first = self.up(b.maximum(b.sub(self.of(axis.padding), reach), e.i64(0)), axis.stride)
        last = b.sub(self.of(axis.size - 1 + axis.padding + axis.stride), reach)
        end = self.down(b.maximum(last, e.i64(0)), axis.stride)
        return b.maximum(first, lo), b.minimum(end, hi)


_BLOCKS = (
    "llvm.func internal @KERNEL_blocks(%args: !llvm.ptr, %slots: !llvm.ptr, %calls: !llvm.ptr, %thread: i64, "
    "%threads: i64, %scratch: !llvm.ptr) {"
)


def by_address(text: str, name: str) -> tuple[str, list[str]]:
    """The function `text`, with a load from %calls for each of kernel `name`'s functions that it calls, and these in order."""
    called: list[str] = []

    def call(match: re.Match) -> str:
        if match[1] not in called:
            called.append(match[1])
        return f"llvm.call %call_{match[1]}({match[2]}) : !llvm.ptr, ("

    head, body = text.split("\n", 1)
    body = re.sub(rf"llvm\.call @{name}_(\w+)\((.*?)\) : \(", call, body)
    loads = [
        f"%at_{callee} = llvm.getelementptr %calls[{k}] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr\n"
        f"%call_{callee} = llvm.load %at_{callee} : !llvm.ptr -> !llvm.ptr"
        for k, callee in enumerate(called)
    ]
    return "\n".join([head, *loads, body]), called


def _body(e: VectorEmitter, called: list[str], operands: int) -> str:
    """The function that knows where the operands and slots are, and which functions are called."""
    lines = [
        "llvm.func internal @KERNEL_body(%frame: !llvm.ptr, %thread: i64, %threads: i64) {",
        *opening(e),
        *([] if uses_scratch(e) else ["%scratch = llvm.mlir.zero : !llvm.ptr"]),
        f"%slots = llvm.getelementptr %args[{operands}] : (!llvm.ptr) -> !llvm.ptr, i64",
        f"%count = arith.constant {len(called)} : i64",
        "%calls = llvm.alloca %count x !llvm.ptr : (i64) -> !llvm.ptr",
    ]
    for k, callee in enumerate(called):
        lines.append(f"%call_{callee} = llvm.mlir.addressof @KERNEL_{callee} : !llvm.ptr")
        lines.append(f"%at_{callee} = llvm.getelementptr %calls[{k}] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr")
        lines.append(f"llvm.store %call_{callee}, %at_{callee} : !llvm.ptr, !llvm.ptr")
    types = "(!llvm.ptr, !llvm.ptr, !llvm.ptr, i64, i64, !llvm.ptr) -> ()"
    lines.append(f"llvm.call @KERNEL_blocks(%args, %slots, %calls, %thread, %threads, %scratch) : {types}")
    return "\n".join([*lines, "llvm.return", "}"])

"""The frame of every attention kernel: chunks of heads that threads share, the entry and the body."""

from collections.abc import Callable, Sequence

import torch

from mlirc.dialects.core.symbols import Int
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.emitter.scratch import DECLARATION, opening, takes
from mlirc.lowering.cpu.loops.entry import LIBGOMP, PART_FUNCTION, entry_text, load_words, shared_memory
from mlirc.lowering.cpu.loops.function import KernelText
from mlirc.lowering.cpu.loops.threads import ThreadSplit
from mlirc.lowering.cpu.loops.work_stealing import WorkStealing
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.kernel.axes import Vector
from mlirc.lowering.kernel.nodes import Kernel
from mlirc.lowering.target import CpuTarget


def begin(e: VectorEmitter, operands: Sequence[str], symbols: list[str]) -> None:
    """Reads the words that the function is called with: `e.env` has each operand's address by its name from here on."""
    e.env["thread"], e.env["threads"] = Value("%thread", torch.int64), Value("%threads", torch.int64)
    load_words(e, _kernel(operands), symbols, "%args")
    for number, name in enumerate(operands):
        e.env[name] = e.env["base", number]


def each_unit(e: VectorEmitter, units: Int, body: Callable[[Value], None]) -> None:
    """`body(unit)` for a thread's part of them, and for those that it helps others with."""

    def one(number: Value, state: list[Value]) -> list[Value]:
        body(number)
        return state

    def some(first: Value, end: Value) -> None:
        e.loop(first, end, e.i64(1), [], [], one)

    WorkStealing(e, shared_memory(e), e.integer(units), e.i64(1)).each(some)


def each_head(e: VectorEmitter, batch: Int, heads: Int, body: Callable[[Value, Value], None]) -> None:
    """`body(batch, head)` for a thread's part of them."""
    each_unit(e, batch * heads, lambda number: body(*divided(e, number, e.integer(heads))))


def divided(e: VectorEmitter, x: Value, by: Value) -> tuple[Value, Value]:
    """Quotient and remainder of what is not negative."""
    return e.index.binary("arith.divui", x, by), e.index.binary("arith.remui", x, by)


def kernel_text(
    e: VectorEmitter,
    name: str,
    target: CpuTarget,
    operands: Sequence[str],
    symbols: list[str],
    shared: tuple[Int, Int],
    tiles: Sequence[str] = (),
) -> KernelText:
    """The functions of kernel `name`: `tiles`, what `e` has written as its body, and its entry; `shared` are units and work."""
    units, work = shared
    head = f"llvm.func internal @{name}_body(%frame: !llvm.ptr, %thread: i64, %threads: i64) {{"
    body = "\n".join([head, *opening(e), *e.text.preamble, *e.lines, "llvm.return", "}"])
    split = ThreadSplit(Vector(None, 1), chunk=1, units=units, work=work)
    entry = entry_text(_kernel(operands), split, symbols, name, target, e.scratch_bytes)
    parts = [*tiles, *e.text.functions.values(), body, entry, PART_FUNCTION]
    return KernelText(
        "\n".join(parts).replace("KERNEL", name), e.text.declarations + LIBGOMP + [DECLARATION] * takes(e), symbols
    )


def _kernel(operands: Sequence[str]) -> Kernel:
    return Kernel({}, {}, [], [], len(operands))

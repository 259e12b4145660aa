"""What the functions of a kernel that is written by hand share: how its body begins, and what stands around it."""

from dataclasses import dataclass

import torch

from mlirc.dialects.core.symbols import Int
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.emitter.scratch import DECLARATION, opening, uses_scratch
from mlirc.lowering.cpu.loops.entry import LIBGOMP, PART_FUNCTION, entry_text, load_slots
from mlirc.lowering.cpu.loops.threads import ThreadSplit
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.kernel.axes import Vector
from mlirc.lowering.kernel.nodes import Kernel
from mlirc.lowering.target import CpuTarget


@dataclass(frozen=True)
class KernelText:
    """functions      MLIR text
    declarations   the external functions that it calls, each a line
    symbols        those whose values the slots hold, in order
    """

    functions: str
    declarations: list[str]
    symbols: list[str]


def operands_only(count: int) -> Kernel:
    """A kernel that is known by its operands alone."""
    return Kernel({}, {}, [], [], count)


def begin(e: VectorEmitter, kernel: Kernel, names: list[str], slots: str = "%args") -> None:
    """How a body begins: the thread's number, how many there are, the operands' addresses and the symbols' values."""
    e.env["thread"], e.env["threads"] = Value("%thread", torch.int64), Value("%threads", torch.int64)
    load_slots(e, kernel, names, slots)


def body_text(e: VectorEmitter) -> str:
    """The body that `e` has written."""
    head = "llvm.func internal @KERNEL_body(%frame: !llvm.ptr, %thread: i64, %threads: i64) {"
    return "\n".join([head, *opening(e), *e.text.preamble, *e.lines, "llvm.return", "}"])


def framed(
    e: VectorEmitter,
    name: str,
    target: CpuTarget,
    kernel: Kernel,
    names: list[str],
    work: Int,
    items: Int,
    chunk: int = 0,
    body: str = "",
) -> KernelText:
    """The functions of kernel `name`: the body, what it calls, and the entry.

    names         the symbols that its slots hold
    work, items   scalar operations; work items, of which threads take `chunk` at a time (0: equal parts)
    body          the text of the body, where that is not all that `e` has written
    """
    split = ThreadSplit(Vector(None, 1), chunk=chunk, items=items, work=work, least=2)
    entry = entry_text(kernel, split, names, name, target, e.scratch_bytes)
    parts = [*e.text.functions.values(), body or body_text(e), entry, PART_FUNCTION]
    declarations = e.text.declarations + LIBGOMP + [DECLARATION] * uses_scratch(e)
    return KernelText("\n".join(parts).replace("KERNEL", name), declarations, names)

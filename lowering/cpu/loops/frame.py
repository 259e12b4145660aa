"""What the functions of a kernel that is written by hand share: how its body begins, and what stands around it."""

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.emitter.scratch import DECLARATION, opening, uses_scratch
from mlirc.lowering.cpu.loops.entry import LIBGOMP, STATUS, entry_text, load_slot, load_slots, part_text
from mlirc.lowering.cpu.loops.threads import ThreadSplit
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.kernel.axes import Vector
from mlirc.lowering.kernel.nodes import Kernel
from mlirc.lowering.target import CpuTarget


@dataclass(frozen=True)
class KernelText:
    """A kernel as MLIR text, with what it needs around it.

    functions      MLIR text
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
    parts = [*e.text.functions.values(), body or body_text(e), entry, part_text(name, target)]
    if any(node.kind == "check_index" for node in kernel.nodes):
        parts.append(bad_index_text(kernel, names, name, target))
    declarations = e.text.declarations + LIBGOMP + [DECLARATION] * uses_scratch(e)
    return KernelText("\n".join(parts).replace("KERNEL", name), declarations, names)


def bad_index_text(kernel: Kernel, names: list[str], name: str, target: CpuTarget) -> str:
    """The function that reports an index out of range. The first thread to report one wins, so that number, index and size belong together.

    A check may be done ahead of the loops; where these turn out to have no point nobody asked for the index.
    """
    e = VectorEmitter(Vector(None, 1), target)
    for k, symbol in enumerate(names):
        e.env[symbol] = load_slot(e, "%args", kernel.operand_count + k, "i64")
    points = e.integer(symbols.product([*kernel.parallel.values(), *kernel.inner.values()]))
    asked = e.index.ne(points, e.i64(0))
    out = kernel.operand_count + len(names) + 1
    lines = [
        f"llvm.func internal @{name}_bad_index(%frame: !llvm.ptr, %number: i64, %index: i64, %size: i64) {{",
        "%args = llvm.load %frame : !llvm.ptr -> !llvm.ptr",
        *e.text.preamble,
        *e.lines,
        f"""scf.if {asked} {{
%zero = arith.constant 0 : i64
%status = llvm.getelementptr %frame[{STATUS}] : (!llvm.ptr) -> !llvm.ptr, i64
%old = llvm.cmpxchg %status, %zero, %number acq_rel monotonic : !llvm.ptr, i64
%won = llvm.extractvalue %old[1] : !llvm.struct<(i64, i1)>
scf.if %won {{
%index_out = llvm.getelementptr %args[{out}] : (!llvm.ptr) -> !llvm.ptr, i64
llvm.store %index, %index_out : i64, !llvm.ptr
%size_out = llvm.getelementptr %args[{out + 1}] : (!llvm.ptr) -> !llvm.ptr, i64
llvm.store %size, %size_out : i64, !llvm.ptr
}}
}}
llvm.return
}}""",
    ]
    return "\n".join(lines)

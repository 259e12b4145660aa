"""A kernel as functions in MLIR text: the entry, with docs/forms.md's ABI, and the body, which threads share.

    func.func @kernel_0(%args) -> i64              decides how many threads: body(frame, 0, 1), or GOMP_parallel
    llvm.func @kernel_0_part(%frame)               what each thread of libgomp runs: body(frame, thread, threads)
    llvm.func @kernel_0_body(%frame, %thread, %threads)
    llvm.func @kernel_0_bad_index(%frame, %number, %index, %size)

The frame holds the address of the arguments, the number of a check that failed, and that of memory for partial results.
"""

from collections.abc import Callable

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.emitter.scratch import (
    DECLARATION,
    MOST_PARTIAL,
    opening,
    take,
    take_for_each_thread,
    uses_scratch,
)
from mlirc.lowering.cpu.loops.blocks import BlockLoops
from mlirc.lowering.cpu.loops.bounds import use_bounds
from mlirc.lowering.cpu.loops.entry import (
    BARRIER,
    LIBGOMP,
    decode_indices,
    entry_text,
    part_text,
    shared_memory,
    thread_part,
)
from mlirc.lowering.cpu.loops.frame import KernelText, bad_index_text, begin
from mlirc.lowering.cpu.loops.loops import Loops
from mlirc.lowering.cpu.loops.non_temporal_stores import FENCE, choose_non_temporal
from mlirc.lowering.cpu.loops.partial_reductions import Partials, partial_bytes
from mlirc.lowering.cpu.loops.pipelined_epilogue import PipelinedEpilogue, has_pipelined_epilogue
from mlirc.lowering.cpu.loops.schedule import LoopSchedule, make_schedule
from mlirc.lowering.cpu.loops.segments import known_by_segments
from mlirc.lowering.cpu.loops.threads import ThreadSplit, choose_split
from mlirc.lowering.cpu.loops.work_stealing import WorkStealing
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.kernel.axes import choose_vector, make_axes
from mlirc.lowering.kernel.division import divide_axes
from mlirc.lowering.kernel.nodes import Kernel
from mlirc.lowering.target import CpuTarget


def empty_text(name: str) -> KernelText:
    """A kernel without a point: it reads, writes and checks nothing."""
    lines = [f"func.func @{name}(%args: !llvm.ptr) -> i64 {{", "%0 = arith.constant 0 : i64", "return %0 : i64", "}"]
    return KernelText("\n".join(lines), [], [])


def kernel_text(kernel: Kernel, name: str, target: CpuTarget) -> KernelText:
    names = kernel.symbols
    divide_axes(kernel, "cpu")
    axes = make_axes(kernel)
    known = known_by_segments(kernel.nodes, axes, target.vector_bytes)
    vector = choose_vector(kernel, axes, target.vector_bytes, known)
    use_bounds(kernel, vector)
    schedule = make_schedule(kernel, axes, vector)
    split = choose_split(kernel, schedule)
    body, declarations, scratch = _body(kernel, schedule, split, names, name, target)
    parts = [body, entry_text(kernel, split, names, name, target, scratch, partial_bytes(schedule))]
    if split.work is not None:
        parts.append(part_text(name, target))
        declarations += LIBGOMP + [BARRIER] * split.combines
    if any(n.kind == "check_index" for n in kernel.nodes):
        parts.append(bad_index_text(kernel, names, name, target))
    return KernelText("\n".join(parts), declarations, names)


def _body(
    kernel: Kernel, schedule: LoopSchedule, split: ThreadSplit, names: list[str], name: str, target: CpuTarget
) -> tuple[str, list[str], Int]:
    e = VectorEmitter(schedule.vector, target)
    begin(e, kernel, names)
    for number, (count, dtype) in schedule.scratch.items():
        element = "i8" if dtype == torch.bool else e.builder(dtype).type_text(dtype)
        e.env["base", number] = take(e, count, element, dtype.itemsize)
    each, partials = partial_bytes(schedule), None
    if split.combines:
        e.env["partial"], apart = (
            take_for_each_thread(e, each) if each > MOST_PARTIAL else (shared_memory(e), e.i64(each))
        )
        partials = Partials(e, schedule.vector, apart)
    loops = (BlockLoops if schedule.block else Loops)(e, schedule, partials)
    loops.prepare()
    choose_non_temporal(e, kernel, schedule)
    e.nodes = [n for n in kernel.nodes if n.depth == 0]
    e.enter()
    _split_loops(e, loops, split)
    head = f"llvm.func internal @{name}_body(%frame: !llvm.ptr, %thread: i64, %threads: i64) {{"
    lines = [head, *opening(e), *e.text.preamble, *e.lines, *[FENCE] * bool(e.non_temporal), "llvm.return", "}"]
    lines += e.text.functions.values()
    return (
        "\n".join(lines).replace("@KERNEL_", f"@{name}_"),
        e.text.declarations + [DECLARATION] * uses_scratch(e),
        e.scratch_bytes,
    )


def _split_loops(e: VectorEmitter, loops: Loops, split: ThreadSplit) -> None:
    """The loops, over this thread's part."""
    if split.axes:

        def enter(point: Value) -> None:
            decode_indices(e, split.axes, point)
            e.enter(*(a.name for a in split.axes))
            loops.skip = len(split.axes)

        def body(point: Value, state: list[Value]) -> list[Value]:
            enter(point)
            loops.start()
            return state

        def points(lo: Value, hi: Value) -> None:
            if has_pipelined_epilogue(loops, split.axes):
                PipelinedEpilogue(loops, enter).emit(lo, hi)
            else:
                e.loop(lo, hi, e.i64(1), [], [], body)

        _parts(e, split, e.integer(symbols.product(a.size for a in split.axes)), points)
        return
    axis = split.axis
    if axis is not None:
        b, step = e.index, split.step
        size = loops.size(axis)
        chunks = b.binary("arith.divui", b.add(size, e.i64(step - 1)), e.i64(step)) if step > 1 else size

        def chunk(lo: Value, hi: Value) -> None:
            b = e.index
            with loops.part(axis, b.mul(lo, e.i64(step)), b.minimum(b.mul(hi, e.i64(step)), size), step):
                loops.start()

        _parts(e, split, chunks, chunk)
        return
    loops.start()


def _parts(e: VectorEmitter, split: ThreadSplit, count: Value, body: Callable[[Value, Value], None]) -> None:
    """`body(first, end)` for what this thread does of `count` work items."""
    if split.chunk:
        WorkStealing(e, shared_memory(e), count, e.i64(split.chunk)).each(body)
    else:
        body(*thread_part(e, count))

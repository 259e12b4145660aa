"""A kernel as functions in MLIR text: the entry, with docs/architecture.md's ABI, and the body, which threads share.

    func.func @kernel_0(%args) -> i64              decides how many threads: body(frame, 0, 1), or GOMP_parallel
    llvm.func @kernel_0_part(%frame)               what each thread of libgomp runs: body(frame, thread, threads)
    llvm.func @kernel_0_body(%frame, %thread, %threads)
    llvm.func @kernel_0_bad_index(%frame, %number, %index, %size)

The frame holds the address of the arguments, the number of a check that failed, and that of memory for partial results.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.lowering.cpu.emitter.emitter import Emitter
from mlirc.lowering.cpu.emitter.non_temporal_stores import FENCE, choose_streams
from mlirc.lowering.cpu.emitter.scratch import DECLARATION, MOST_PARTIAL, opening, partial, reserve, take, takes
from mlirc.lowering.cpu.loops.blocks import BlockLoops
from mlirc.lowering.cpu.loops.loops import Loops
from mlirc.lowering.cpu.loops.partial_reductions import Partials, partial_bytes
from mlirc.lowering.cpu.loops.pipelined_epilogue import RowBehind, has_row_behind
from mlirc.lowering.cpu.loops.schedule import Schedule, make_schedule
from mlirc.lowering.cpu.loops.threads import GRAIN, Split, choose_split
from mlirc.lowering.cpu.loops.two_row_epilogue import RowPairs, has_row_pairs
from mlirc.lowering.cpu.loops.work_stealing import SHARE_BYTES, Shares, part_of
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.kernel.axes import Axis, Vector, choose_vector, make_axes
from mlirc.lowering.kernel.bounds import use_bounds
from mlirc.lowering.kernel.division import divide_axes
from mlirc.lowering.kernel.nodes import Kernel
from mlirc.lowering.target import CpuTarget

# words of the frame: the arguments' address, the number of a check that failed, where threads leave partial results or count
# pieces, the number of the next group of panels to be taken; then two of emitter/scratch.py
STATUS, PARTIAL, NEXT, FRAME_WORDS = 1, 2, 3, 6


@dataclass(frozen=True)
class KernelText:
    """functions      MLIR text
    declarations   the external functions that it calls, each a line
    symbols        those whose values the words hold, in order
    """

    functions: str
    declarations: list[str]
    symbols: list[str]


def empty_text(name: str) -> KernelText:
    """A kernel without a point: it reads, writes and checks nothing."""
    lines = [f"func.func @{name}(%args: !llvm.ptr) -> i64 {{", "%0 = arith.constant 0 : i64", "return %0 : i64", "}"]
    return KernelText("\n".join(lines), [], [])


def kernel_text(kernel: Kernel, name: str, target: CpuTarget) -> KernelText:
    names = kernel.symbols
    divide_axes(kernel)
    axes = make_axes(kernel)
    vector = choose_vector(kernel, axes, target.vector_bytes)
    use_bounds(kernel, vector)
    schedule = make_schedule(kernel, axes, vector)
    split = choose_split(kernel, schedule)
    body, declarations, scratch = _body(kernel, schedule, split, names, name, target)
    parts = [body, _entry(kernel, split, names, name, target, scratch, partial_bytes(schedule))]
    if split.work is not None:
        parts.append(_PART.replace("KERNEL", name))
        declarations += _LIBGOMP + [_BARRIER] * split.combines
    if any(n.kind == "check_index" for n in kernel.nodes):
        parts.append(_bad_index(kernel, names, name, target))
    return KernelText("\n".join(parts), declarations, names)


def _body(
    kernel: Kernel, schedule: Schedule, split: Split, names: list[str], name: str, target: CpuTarget
) -> tuple[str, list[str], Int]:
    e = Emitter(schedule.vector, target)
    e.env["thread"], e.env["threads"] = Value("%thread", torch.int64), Value("%threads", torch.int64)
    _load_words(e, kernel, names, "%args")
    for number, (count, dtype) in schedule.scratch.items():
        element = "i8" if dtype == torch.bool else e.builder(dtype).type_text(dtype)
        e.env["base", number] = take(e, count, element, dtype.itemsize)
    each, partials = partial_bytes(schedule), None
    if split.combines:
        e.env["partial"], apart = partial(e, each) if each > MOST_PARTIAL else (_shared(e), e.i64(each))
        partials = Partials(e, schedule.vector, apart)
    loops = (BlockLoops if schedule.block else Loops)(e, schedule, partials)
    loops.prepare()
    choose_streams(e, kernel, schedule)
    e.nodes = [n for n in kernel.nodes if n.depth == 0]
    e.enter()
    _share(e, loops, schedule, split)
    head = f"llvm.func internal @{name}_body(%frame: !llvm.ptr, %thread: i64, %threads: i64) {{"
    lines = [head, *opening(e), *e.text.preamble, *e.lines, *[FENCE] * bool(e.streams), "llvm.return", "}"]
    lines += e.text.functions.values()
    return (
        "\n".join(lines).replace("@KERNEL_", f"@{name}_"),
        e.text.declarations + [DECLARATION] * takes(e),
        e.scratch_bytes,
    )


def _share(e: Emitter, loops: Loops, schedule: Schedule, split: Split) -> None:
    """The loops, over this thread's part."""
    if split.axes:

        def enter(unit: Value) -> None:
            _decode(e, split.axes, unit)
            e.enter(*(a.name for a in split.axes))
            loops.skip = len(split.axes)

        def body(unit: Value, state: list[Value]) -> list[Value]:
            enter(unit)
            loops.start()
            return state

        def units(lo: Value, hi: Value) -> None:
            for fits, rows in ((has_row_behind, RowBehind), (has_row_pairs, RowPairs)):
                if fits(loops, split.axes):
                    rows(loops, enter).emit(lo, hi)
                    return
            e.loop(lo, hi, e.i64(1), [], [], body)

        _parts(e, split, e.integer(symbols.product(a.size for a in split.axes)), units)
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


def _parts(e: Emitter, split: Split, count: Value, body: Callable[[Value, Value], None]) -> None:
    """`body(first, end)` for what this thread does of `count` units."""
    if split.piece:
        Shares(e, _shared(e), count, e.i64(split.piece)).each(body)
    else:
        body(*_part(e, count))


def _shared(e: Emitter) -> Value:
    """Memory that all threads have."""
    place = e.index.emit(f"llvm.getelementptr %frame[{PARTIAL}] : (!llvm.ptr) -> !llvm.ptr, i64", torch.int64)
    return e.index.emit(f"llvm.load {place} : !llvm.ptr -> !llvm.ptr", torch.int64)


def _part(e: Emitter, count: Value) -> tuple[Value, Value]:
    """This thread's share of `count` units."""
    return part_of(e, count, e.env["thread"])


def _decode(e: Emitter, axes: list[Axis], unit: Value) -> None:
    """The indices of several axes from one number, the last axis fastest."""
    b = e.index
    for axis in reversed(axes[1:]):
        size = e.integer(axis.size)
        e.env[axis.name] = b.binary("arith.remui", unit, size)
        unit = b.binary("arith.divui", unit, size)
    e.env[axes[0].name] = unit


def _load_words(e: Emitter, kernel: Kernel, names: list[str], args: str) -> None:
    for k in range(kernel.operand_count):
        e.env["base", k] = _load_word(e, args, k, "!llvm.ptr")
    for k, name in enumerate(names):
        e.env[name] = _load_word(e, args, kernel.operand_count + k, "i64")


def _load_word(e: Emitter, args: str, k: int, type_: str) -> Value:
    address = e.index.emit(f"llvm.getelementptr {args}[{k}] : (!llvm.ptr) -> !llvm.ptr, i64", torch.int64)
    return e.index.emit(f"llvm.load {address} {{alignment = 8 : i64}} : !llvm.ptr -> {type_}", torch.int64)


def _entry(
    kernel: Kernel, split: Split, names: list[str], name: str, target: CpuTarget, scratch: Int, left: int = 0
) -> str:
    """`scratch` are the bytes of it that each thread takes, `left` those that it leaves for the others."""
    e = Emitter(split.vector, target)
    zero, one = e.i64(0), e.i64(1)
    frame = e.index.emit(
        f"llvm.alloca {e.i64(FRAME_WORDS)} x i64 {{alignment = 8 : i64}} : (i64) -> !llvm.ptr", torch.int64
    )
    status = e.index.emit(f"llvm.getelementptr {frame}[{STATUS}] : (!llvm.ptr) -> !llvm.ptr, i64", torch.int64)
    e.lines.append(f"llvm.store %args, {frame} : !llvm.ptr, !llvm.ptr")
    e.lines.append(f"llvm.store {zero}, {status} : i64, !llvm.ptr")
    ticket = e.index.emit(f"llvm.getelementptr {frame}[{NEXT}] : (!llvm.ptr) -> !llvm.ptr, i64", torch.int64)
    e.lines.append(f"llvm.store {zero}, {ticket} : i64, !llvm.ptr")
    has_scratch = not (isinstance(scratch, int) and scratch == 0)
    if split.work is not None or has_scratch:
        for k, symbol in enumerate(names):
            e.env[symbol] = _load_word(e, "%args", kernel.operand_count + k, "i64")
    call = f"llvm.call @{name}_body({frame}, {zero}, {one}) : (!llvm.ptr, i64, i64) -> ()"
    if split.work is None:
        if has_scratch:
            reserve(e, frame, scratch, one)
        e.lines.append(call)
    else:
        b = e.index
        threads = _load_word(e, "%args", kernel.operand_count + len(names), "i64")
        worth = b.binary("arith.divui", e.integer(split.work), e.i64(GRAIN))
        threads = b.minimum(b.minimum(threads, worth), e.integer(split.units))
        if has_scratch:
            threads = reserve(e, frame, scratch, threads)
        if split.piece or (split.combines and left <= MOST_PARTIAL):
            bytes_ = b.mul(b.maximum(threads, one), e.i64(SHARE_BYTES if split.piece else left))
            buffer = b.emit(f"llvm.alloca {bytes_} x i8 {{alignment = 64 : i64}} : (i64) -> !llvm.ptr", torch.int64)
            place = b.emit(f"llvm.getelementptr {frame}[{PARTIAL}] : (!llvm.ptr) -> !llvm.ptr, i64", torch.int64)
            e.lines.append(f"llvm.store {buffer}, {place} : !llvm.ptr, !llvm.ptr")
            if split.piece:
                byte = e.text.constant("0", "i8", torch.int8, 0)
                e.lines.append(
                    f'"llvm.intr.memset"({buffer}, {byte}, {bytes_}) <{{isVolatile = false}}> : (!llvm.ptr, i8, i64) -> ()'
                )
        many = b.gt(threads, one)
        e.lines.append(f"scf.if {many} {{")
        part = b.emit(f"llvm.mlir.addressof @{name}_part : !llvm.ptr", torch.int64)
        count = b.emit(f"arith.trunci {threads} : i64 to i32", torch.int32)
        flags = e.builder(torch.int32).constant(0, torch.int32)
        e.lines.append(
            f"llvm.call @GOMP_parallel({part}, {frame}, {count}, {flags}) : (!llvm.ptr, !llvm.ptr, i32, i32) -> ()"
        )
        e.lines += ["} else {", call, "}"]
    result = e.index.emit(f"llvm.load {status} : !llvm.ptr -> i64", torch.int64)
    lines = [
        f"func.func @{name}(%args: !llvm.ptr) -> i64 {{",
        *e.text.preamble,
        *e.lines,
        f"return {result} : i64",
        "}",
    ]
    return "\n".join(lines)


_LIBGOMP = [
    "llvm.func @GOMP_parallel(!llvm.ptr, !llvm.ptr, i32, i32)",
    "llvm.func @omp_get_thread_num() -> i32",
    "llvm.func @omp_get_num_threads() -> i32",
]

_BARRIER = "llvm.func @GOMP_barrier()"

# libgomp may give fewer threads than asked for: what counts is how many there are
_PART = """llvm.func internal @KERNEL_part(%frame: !llvm.ptr) {
%thread32 = llvm.call @omp_get_thread_num() : () -> i32
%threads32 = llvm.call @omp_get_num_threads() : () -> i32
%thread = arith.extsi %thread32 : i32 to i64
%threads = arith.extsi %threads32 : i32 to i64
llvm.call @KERNEL_body(%frame, %thread, %threads) : (!llvm.ptr, i64, i64) -> ()
llvm.return
}"""


def _bad_index(kernel: Kernel, names: list[str], name: str, target: CpuTarget) -> str:
    """The first thread to report a check wins: number, index and size then belong together.

    A check may be done ahead of the loops; where these turn out to have no point nobody asked for the index.
    """
    e = Emitter(Vector(None, 1), target)
    for k, symbol in enumerate(names):
        e.env[symbol] = _load_word(e, "%args", kernel.operand_count + k, "i64")
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

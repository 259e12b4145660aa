"""What the functions of every kernel share: the entry, what libgomp's threads run, the frame, and how the body reads its arguments.

func.func @kernel_0(%args) -> i64                       entry_text: the frame, threads, scratch; calls the body
llvm.func @kernel_0_part(%frame)                        part_text, with LIBGOMP declared: what each thread of the team runs
llvm.func @kernel_0_body(%frame, %thread, %threads)     its writer begins with load_slots, and takes thread_part of its iterations
"""

import torch

from mlirc.dialects.core.symbols import Int
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.emitter.scratch import MOST_PARTIAL, reserve
from mlirc.lowering.cpu.loops.threads import GRAIN, ThreadSplit
from mlirc.lowering.cpu.loops.work_stealing import COUNTER_BYTES, part_of
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.kernel.axes import Axis
from mlirc.lowering.kernel.nodes import Kernel
from mlirc.lowering.target import CpuTarget

# slots of the frame: the arguments' address, the number of a check that failed, where threads leave partial results or count
# chunks, the number of the next group of panels to be taken; two of emitter/scratch.py; how many threads have work; the calling
# thread's floating-point mode
STATUS, PARTIAL, NEXT, ACTIVE, MODE, FRAME_SLOTS = 1, 2, 3, 6, 7, 8


def shared_memory(e: VectorEmitter) -> Value:
    """The address of memory that all threads of a call have, in its body."""
    place = e.index.emit(f"llvm.getelementptr %frame[{PARTIAL}] : (!llvm.ptr) -> !llvm.ptr, i64", torch.int64)
    return e.index.emit(f"llvm.load {place} : !llvm.ptr -> !llvm.ptr", torch.int64)


def thread_part(e: VectorEmitter, count: Value) -> tuple[Value, Value]:
    """[begin, end) of this thread's part of `count` work items."""
    return part_of(e, count, e.env["thread"])


def decode_indices(e: VectorEmitter, axes: list[Axis], number: Value) -> None:
    """The indices of several axes from one number, the last axis fastest."""
    b = e.index
    for axis in reversed(axes[1:]):
        size = e.integer(axis.size)
        e.env[axis.name] = b.binary("arith.remui", number, size)
        number = b.binary("arith.divui", number, size)
    e.env[axes[0].name] = number


def load_slots(e: VectorEmitter, kernel: Kernel, names: list[str], args: str) -> None:
    """The addresses of the operands and the values of the symbols, into the environment, of the arguments at `args`."""
    for k in range(kernel.operand_count):
        e.env["base", k] = load_slot(e, args, k, "!llvm.ptr")
    for k, name in enumerate(names):
        e.env[name] = load_slot(e, args, kernel.operand_count + k, "i64")


def load_slot(e: VectorEmitter, args: str, k: int, type_: str) -> Value:
    """Slot `k` of the arguments at `args`, of type "i64" or "!llvm.ptr"."""
    address = e.index.emit(f"llvm.getelementptr {args}[{k}] : (!llvm.ptr) -> !llvm.ptr, i64", torch.int64)
    return e.index.emit(f"llvm.load {address} {{alignment = 8 : i64}} : !llvm.ptr -> {type_}", torch.int64)


def entry_text(
    kernel: Kernel, split: ThreadSplit, names: list[str], name: str, target: CpuTarget, scratch: Int, left: int = 0
) -> str:
    """The function that the host program calls: it decides how many threads run the body.

    `scratch` are the bytes of it that each thread takes, `left` those that it leaves for the others.

    libgomp's team is all of PyTorch's threads, or the calling thread alone, as PyTorch's own teams are. A team of another size than
    the last one ends threads or starts new ones, which takes longer than most kernels. Threads without work return at once.
    """
    e = VectorEmitter(split.vector, target)
    zero, one = e.i64(0), e.i64(1)
    frame = e.index.emit(
        f"llvm.alloca {e.i64(FRAME_SLOTS)} x i64 {{alignment = 8 : i64}} : (i64) -> !llvm.ptr", torch.int64
    )
    status = e.index.emit(f"llvm.getelementptr {frame}[{STATUS}] : (!llvm.ptr) -> !llvm.ptr, i64", torch.int64)
    e.lines.append(f"llvm.store %args, {frame} : !llvm.ptr, !llvm.ptr")
    e.lines.append(f"llvm.store {zero}, {status} : i64, !llvm.ptr")
    ticket = e.index.emit(f"llvm.getelementptr {frame}[{NEXT}] : (!llvm.ptr) -> !llvm.ptr, i64", torch.int64)
    e.lines.append(f"llvm.store {zero}, {ticket} : i64, !llvm.ptr")
    has_scratch = not (isinstance(scratch, int) and scratch == 0)
    if split.work is not None or has_scratch:
        for k, symbol in enumerate(names):
            e.env[symbol] = load_slot(e, "%args", kernel.operand_count + k, "i64")
    call = f"llvm.call @{name}_body({frame}, {zero}, {one}) : (!llvm.ptr, i64, i64) -> ()"
    if split.work is None:
        if has_scratch:
            reserve(e, frame, scratch, one)
        e.lines.append(call)
    else:
        b = e.index
        team = load_slot(e, "%args", kernel.operand_count + len(names), "i64")
        if target.cores:
            team = b.minimum(team, e.i64(target.cores))
        worth = b.binary("arith.divui", e.integer(split.work), e.i64(GRAIN))
        enough = b.ge(worth, e.i64(split.least))
        if split.combines:  # the whole team meets at barriers, and each thread has a part
            threads = team
            enough = b.and_(enough, b.ge(e.integer(split.items), team))
        else:
            threads = b.minimum(b.minimum(team, worth), e.integer(split.items))
        threads = b.select(enough, threads, one)
        if has_scratch:
            threads = reserve(e, frame, scratch, threads)
        if split.chunk or (split.combines and left <= MOST_PARTIAL):
            bytes_ = b.mul(b.maximum(threads, one), e.i64(COUNTER_BYTES if split.chunk else left))
            buffer = b.emit(f"llvm.alloca {bytes_} x i8 {{alignment = 64 : i64}} : (i64) -> !llvm.ptr", torch.int64)
            place = b.emit(f"llvm.getelementptr {frame}[{PARTIAL}] : (!llvm.ptr) -> !llvm.ptr, i64", torch.int64)
            e.lines.append(f"llvm.store {buffer}, {place} : !llvm.ptr, !llvm.ptr")
            if split.chunk:
                byte = e.text.constant("0", "i8", torch.int8, 0)
                e.lines.append(
                    f'"llvm.intr.memset"({buffer}, {byte}, {bytes_}) <{{isVolatile = false}}> : (!llvm.ptr, i8, i64) -> ()'
                )
        many = b.gt(threads, one)
        e.lines.append(f"scf.if {many} {{")
        part = b.emit(f"llvm.mlir.addressof @{name}_part : !llvm.ptr", torch.int64)
        active = b.emit(f"llvm.getelementptr {frame}[{ACTIVE}] : (!llvm.ptr) -> !llvm.ptr, i64", torch.int64)
        e.lines.append(f"llvm.store {threads}, {active} : i64, !llvm.ptr")
        mode = b.emit(f"llvm.getelementptr {frame}[{MODE}] : (!llvm.ptr) -> !llvm.ptr, i64", torch.int64)
        e.lines.append(_mode_to_memory(target, mode))
        count = b.emit(f"arith.trunci {team} : i64 to i32", torch.int32)
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


LIBGOMP = [
    "llvm.func @GOMP_parallel(!llvm.ptr, !llvm.ptr, i32, i32)",
    "llvm.func @omp_get_thread_num() -> i32",
    "llvm.func @omp_get_num_threads() -> i32",
]

BARRIER = "llvm.func @GOMP_barrier()"


def part_text(name: str, target: CpuTarget) -> str:
    """What each thread of libgomp's team runs: the body, in the calling thread's floating-point mode.

    A thread of the team has the mode of the thread that started it, at that time, and PyTorch sets another one (`torch.set_flush_denormal`)
    for the calling thread alone. Without this a result would depend on which thread computes it. The body is not inlined, so that no
    arithmetic moves across a change of the mode.

    libgomp may give fewer threads than asked for: what counts is how many there are.
    """
    return f"""llvm.func internal @{name}_part(%frame: !llvm.ptr) {{
%slots = arith.constant 1 : i64
%own = llvm.alloca %slots x i64 : (i64) -> !llvm.ptr
%callers = llvm.getelementptr %frame[{MODE}] : (!llvm.ptr) -> !llvm.ptr, i64
{_mode_to_memory(target, "%own")}
{_mode_from_memory(target, "%callers")}
llvm.call @{name}_share(%frame) : (!llvm.ptr) -> ()
{_mode_from_memory(target, "%own")}
llvm.return
}}
llvm.func internal @{name}_share(%frame: !llvm.ptr) attributes {{passthrough = ["noinline"]}} {{
%thread32 = llvm.call @omp_get_thread_num() : () -> i32
%team32 = llvm.call @omp_get_num_threads() : () -> i32
%thread = arith.extsi %thread32 : i32 to i64
%team = arith.extsi %team32 : i32 to i64
%active_at = llvm.getelementptr %frame[{ACTIVE}] : (!llvm.ptr) -> !llvm.ptr, i64
%active = llvm.load %active_at : !llvm.ptr -> i64
%threads = arith.minui %team, %active : i64
%has_work = arith.cmpi ult, %thread, %threads : i64
scf.if %has_work {{
llvm.call @{name}_body(%frame, %thread, %threads) : (!llvm.ptr, i64, i64) -> ()
}}
llvm.return
}}"""


def _mode_to_memory(target: CpuTarget, place: str) -> str:
    """Stores the floating-point mode of the thread: MXCSR, or FPCR."""
    if target.arch == "x86_64":
        return f'llvm.call_intrinsic "llvm.x86.sse.stmxcsr"({place}) : (!llvm.ptr) -> ()'
    return f"""%mode_of_{place[1:]} = llvm.call_intrinsic "llvm.aarch64.get.fpcr"() : () -> i64
llvm.store %mode_of_{place[1:]}, {place} : i64, !llvm.ptr"""


def _mode_from_memory(target: CpuTarget, place: str) -> str:
    """Sets what `_mode_to_memory` stored."""
    if target.arch == "x86_64":
        return f'llvm.call_intrinsic "llvm.x86.sse.ldmxcsr"({place}) : (!llvm.ptr) -> ()'
    return f"""%mode_in_{place[1:]} = llvm.load {place} : !llvm.ptr -> i64
llvm.call_intrinsic "llvm.aarch64.set.fpcr"(%mode_in_{place[1:]}) : (i64) -> ()"""

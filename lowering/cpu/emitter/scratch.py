"""Allocates scratch for a kernel's body: up to 8 KiB on the stack, more in memory that the calling thread owns.

    func.func @kernel_0(%args)             allocates `scratch_bytes` for each thread (codegen/runtime/thread_scratch.py), and
                                           stores the address in the frame
    llvm.func @kernel_0_body(%frame, ..)   %scratch is this thread's part, at a multiple of 64 bytes

Stacks may be small: 64 KiB for a user's thread, and for libgomp's threads (OMP_STACKSIZE). If the allocation fails, the kernel
runs on one thread, with scratch on its stack.
"""

from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.target import SCRATCH_FUNCTION

MOST_ON_STACK = 8 << 10  # bytes of a body's scratch
# bytes of a thread's partial results; if there are more, they are in scratch, else on the caller's stack
MOST_PARTIAL = 128
DECLARATION = f"llvm.func @{SCRATCH_FUNCTION}(i64, i64, !llvm.ptr) -> i64"
ALIGNED = 64

# slots of the frame: the address of the first thread's part, and the bytes from a thread's part to the next one's
SCRATCH, APART = 4, 5


def take(e: Any, count: Int, element: str, size: int) -> Value:
    """The address of memory for `count` elements of type `element`, `size` bytes each. It is valid during one call of the body."""
    bytes_ = count * size
    if isinstance(bytes_, int) and e.stack_bytes + bytes_ <= MOST_ON_STACK:
        e.stack_bytes += bytes_
        number = e.i64(max(bytes_ // size, 1))
        return _in_preamble(e, f"llvm.alloca {number} x {element} {{alignment = 64 : i64}} : (i64) -> !llvm.ptr")
    offset = take_bytes(e, bytes_)
    if isinstance(offset, int):
        return _in_preamble(e, _pointer_text("%scratch", offset))
    return e.index.emit(_pointer_text("%scratch", e.integer(offset)), torch.int64)


def take_floats(e: Any, count: Int) -> Value:
    """The address of memory for `count` elements of float32."""
    return take(e, count, "f32", 4)


def take_bytes(e: Any, bytes_: Int) -> Int:
    """Reserves bytes in a thread's part of the scratch, and returns their offset."""
    offset = e.scratch_bytes
    e.scratch_bytes = offset + symbols.floordiv(bytes_ + (ALIGNED - 1), ALIGNED) * ALIGNED
    return offset


def take_for_each_thread(e: Any, bytes_: int) -> tuple[Value, Value]:
    """Reserves bytes for each thread, which all threads can address. Returns the address of the first thread's bytes, and the
    distance in bytes from one thread's to the next thread's."""
    return _in_preamble(e, _pointer_text("%scratch_all", take_bytes(e, bytes_))), Value("%scratch_apart", torch.int64)


def opening(e: Any) -> list[str]:
    """The first lines of a body. Made last: they define %scratch if the other lines took any."""
    return ["%args = llvm.load %frame : !llvm.ptr -> !llvm.ptr", *(_OPENING if uses_scratch(e) else [])]


def uses_scratch(e: Any) -> bool:
    """Whether the body has taken scratch that is not on its stack."""
    return not (isinstance(e.scratch_bytes, int) and e.scratch_bytes == 0)


def reserve(e: Any, frame: Value, each: Int, threads: Value) -> Value:
    """Writes, into a kernel's entry, the allocation of `each` bytes for each of `threads` threads. Stores the address in the frame, and
    returns how many threads may run."""
    b = e.index
    bytes_, one = e.integer(each), e.i64(1)
    place = b.emit(f"llvm.getelementptr {frame}[{SCRATCH}] : (!llvm.ptr) -> !llvm.ptr, i64", torch.int64)
    got = b.emit(
        f"llvm.call @{SCRATCH_FUNCTION}({bytes_}, {b.maximum(threads, one)}, {place}) : (i64, i64, !llvm.ptr) -> i64",
        torch.int64,
    )
    has = b.ne(got, e.i64(0))
    e.lines += [
        f"scf.if {has} {{",
        "} else {",
        f"%own_scratch = llvm.alloca {bytes_} x i8 {{alignment = 64 : i64}} : (i64) -> !llvm.ptr",
        f"llvm.store %own_scratch, {place} : !llvm.ptr, !llvm.ptr",
        "}",
    ]
    return b.select(has, threads, one)


def _pointer_text(base: str, offset: Int | Value) -> str:
    if isinstance(offset, int) and not isinstance(offset, Value):
        return f"llvm.getelementptr {base}[{offset}] : (!llvm.ptr) -> !llvm.ptr, i8"
    return f"llvm.getelementptr {base}[{offset}] : (!llvm.ptr, i64) -> !llvm.ptr, i8"


def _in_preamble(e: Any, text: str) -> Value:
    """Adds an op to the function's beginning. An alloca inside a loop would allocate in each iteration."""
    name = e.text.new_name()
    e.text.preamble.append(f"{name} = {text}")
    return Value(name, torch.int64)


_OPENING = [
    f"%scratch_at = llvm.getelementptr %frame[{SCRATCH}] : (!llvm.ptr) -> !llvm.ptr, i64",
    "%scratch_all = llvm.load %scratch_at : !llvm.ptr -> !llvm.ptr",
    f"%apart_at = llvm.getelementptr %frame[{APART}] : (!llvm.ptr) -> !llvm.ptr, i64",
    "%scratch_apart = llvm.load %apart_at : !llvm.ptr -> i64",
    "%scratch_offset = arith.muli %thread, %scratch_apart : i64",
    "%scratch = llvm.getelementptr %scratch_all[%scratch_offset] : (!llvm.ptr, i64) -> !llvm.ptr, i8",
]

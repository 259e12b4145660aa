"""Notices writes to memory of Python's that was freed, such as a reference that is dropped twice.

    PYTHONMALLOC=malloc python ...     Python then takes its memory from the C library, which knows each block's size
    watch()                            from now on each freed block is filled, and kept for a while
    changed()                          how many of them were written to since `watch`

    echo 7042 | PYTHONMALLOC=malloc python -m tests.freed_memory aot_eager     what a fuzz program does under a backend
    python -m tests.fuzz --freed --programs 1000                               many of them under mlirc

A block is looked at when it is given back, and by `changed`. A write is not noticed where Python keeps what was freed for the
next object of its type, or where it comes after the block was given back.
"""

import ctypes
import os
import sys

from mlirc.codegen.llvm.machine_code import Code, compile_ir

KEPT = 200_000  # blocks: 20 MB
FILL = 0x5B
"""Not 0xDD, which Python 3.12 takes for the references of an immortal object, and leaves."""

TEXT = f"""
@blocks = global [{KEPT} x ptr] zeroinitializer   ; the last ones that were freed
@next = global i64 0                ; where the next one goes, in place of the oldest
@count = global i64 0               ; of blocks that were written to, or freed without the GIL

declare ptr @malloc(i64)
declare ptr @calloc(i64, i64)
declare void @free(ptr)
declare i64 @malloc_usable_size(ptr)
declare i32 @PyGILState_Check()
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)

define ptr @take(ptr %context, i64 %bytes) {{
  %some = call i64 @llvm.umax.i64(i64 %bytes, i64 1)
  %block = call ptr @malloc(i64 %some)
  ret ptr %block
}}

define ptr @take_zeros(ptr %context, i64 %n, i64 %bytes) {{
  %some = call i64 @llvm.umax.i64(i64 %bytes, i64 1)
  %most = call i64 @llvm.umax.i64(i64 %n, i64 1)
  %block = call ptr @calloc(i64 %most, i64 %some)
  ret ptr %block
}}

define ptr @resize(ptr %context, ptr %block, i64 %bytes) {{
entry:
  %new = call ptr @take(ptr %context, i64 %bytes)
  %no_memory = icmp eq ptr %new, null
  %no_block = icmp eq ptr %block, null
  %nothing = or i1 %no_memory, %no_block
  br i1 %nothing, label %done, label %move
move:
  %have = call i64 @malloc_usable_size(ptr %block)
  %common = call i64 @llvm.umin.i64(i64 %have, i64 %bytes)
  call void @llvm.memcpy.p0.p0.i64(ptr %new, ptr %block, i64 %common, i1 false)
  call void @give_back(ptr %context, ptr %block)
  br label %done
done:
  ret ptr %new
}}

define void @give_back(ptr %context, ptr %block) {{
entry:
  %none = icmp eq ptr %block, null
  br i1 %none, label %done, label %some
some:
  %locked = call i32 @PyGILState_Check()
  %unlocked = icmp eq i32 %locked, 0
  %fault = zext i1 %unlocked to i64
  call void @add(i64 %fault)
  %bytes = call i64 @malloc_usable_size(ptr %block)
  call void @llvm.memset.p0.i64(ptr %block, i8 {FILL}, i64 %bytes, i1 false)
  %k = load i64, ptr @next
  %after = add i64 %k, 1
  %around = urem i64 %after, {KEPT}
  store i64 %around, ptr @next
  %at = getelementptr ptr, ptr @blocks, i64 %k
  %oldest = load ptr, ptr %at
  store ptr %block, ptr %at
  call void @look(ptr %oldest)
  call void @free(ptr %oldest)
  br label %done
done:
  ret void
}}

define internal void @add(i64 %more) {{
  %before = load i64, ptr @count
  %now = add i64 %before, %more
  store i64 %now, ptr @count
  ret void
}}

; Counts %block if it was written to, and fills it again. The C library's blocks are multiples of 8 bytes.
define internal void @look(ptr %block) {{
entry:
  %none = icmp eq ptr %block, null
  br i1 %none, label %done, label %some
some:
  %bytes = call i64 @malloc_usable_size(ptr %block)
  br label %head
head:
  %i = phi i64 [ 0, %some ], [ %i_next, %body ]
  %more = icmp ult i64 %i, %bytes
  br i1 %more, label %body, label %done
body:
  %at = getelementptr i8, ptr %block, i64 %i
  %found = load i64, ptr %at
  %i_next = add i64 %i, 8
  %same = icmp eq i64 %found, {int.from_bytes(bytes([FILL]) * 8, "little")}
  br i1 %same, label %head, label %written
written:
  call void @add(i64 1)
  call void @llvm.memset.p0.i64(ptr %block, i8 {FILL}, i64 %bytes, i1 false)
  br label %done
done:
  ret void
}}

define i64 @changed() {{
entry:
  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %k_next, %body ]
  %more = icmp ult i64 %k, {KEPT}
  br i1 %more, label %body, label %done
body:
  %at = getelementptr ptr, ptr @blocks, i64 %k
  %block = load ptr, ptr %at
  call void @look(ptr %block)
  %k_next = add i64 %k, 1
  br label %head
done:
  %count = load i64, ptr @count
  ret i64 %count
}}
"""


class Allocator(ctypes.Structure):
    """PyMemAllocatorEx of Python's C interface."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("context", "malloc", "calloc", "realloc", "free")]


DOMAINS = (1, 2)  # PYMEM_DOMAIN_MEM and PYMEM_DOMAIN_OBJ, whose functions are called with the GIL held
_code: list[Code] = []


def watch() -> None:
    """To be called once, in a process that Python started with PYTHONMALLOC=malloc, by its only thread."""
    if os.environ.get("PYTHONMALLOC") != "malloc":
        raise RuntimeError(
            "start Python with PYTHONMALLOC=malloc: memory of its own allocator has no size that can be asked"
        )
    code = compile_ir(TEXT)
    code.keep_loaded()
    _code[:] = [code]
    functions = [code.address(name) for name in ("take", "take_zeros", "resize", "give_back")]
    install = ctypes.PYFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)(("PyMem_SetAllocator", ctypes.pythonapi))
    for domain in DOMAINS:
        install(domain, ctypes.byref(Allocator(None, *functions)))


def changed() -> int:
    """How many freed blocks were written to, or freed by a thread without the GIL, since `watch`."""
    return ctypes.PYFUNCTYPE(ctypes.c_int64)(_code[0].address("changed"))()


def main(backend: str) -> None:
    """Runs fuzz programs of the seeds that standard input has, a line each, and prints each after which `changed` gives more."""
    from tests.fuzz.judge import load, run
    from tests.fuzz.program import random_program

    watch()
    before = 0
    for line in sys.stdin:
        run(load(random_program(int(line))), backend)
        now = changed()
        if now != before:
            print(f"seed {line.strip()}: {now - before} writes to freed memory", flush=True)
        before = now


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Scratch memory of kernels, one block a calling thread: it grows to the largest request and ends with the thread.

`mlirc_scratch(each, threads, place)` writes where the memory of the first of `threads` threads is, and how many bytes apart theirs
are, `each` at least; it gives 0 where there is no memory. A thread's kernels all have their scratch at one address, which is
then in its cache.
"""

import ctypes
from functools import cache

from mlirc.codegen.runtime.runtime_code import runtime_code
from mlirc.lowering.target import SCRATCH_FUNCTION


@cache
def address() -> int:
    """The address of the function in this process."""
    code = runtime_code(TEXT)
    key = ctypes.c_uint32.from_address(code.address("scratch_key"))
    release = ctypes.c_void_p(code.address("release_scratch"))
    create = ctypes.CDLL(None).pthread_key_create
    if create(ctypes.byref(key), release) != 0:
        raise ValueError("this process has no more keys for memory of threads")
    code.keep_loaded()  # threads end after Python, too
    return code.address("grow_and_give")


IMPORTS = {SCRATCH_FUNCTION: address}
"""What kernels call that no library of this process has (machine_code.Imports)."""


TEXT = r"""
declare ptr @pthread_getspecific(i32)
declare i32 @pthread_setspecific(i32, ptr)
declare ptr @calloc(i64, i64)
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)

%record = type { ptr, i64, i64 }              ; memory, bytes from thread to thread, threads
@scratch_key = global i32 0

define void @release_scratch(ptr %record) {
  %memory = load ptr, ptr %record
  call void @free(ptr %memory)
  call void @free(ptr %record)
  ret void
}

define i64 @grow_and_give(i64 %each, i64 %threads, ptr %place) {
entry:
  %key = load i32, ptr @scratch_key
  %known = call ptr @pthread_getspecific(i32 %key)
  %none = icmp eq ptr %known, null
  br i1 %none, label %fresh, label %check
fresh:
  %new = call ptr @calloc(i64 1, i64 24)
  %no_record = icmp eq ptr %new, null
  br i1 %no_record, label %refused, label %keep
keep:
  %status = call i32 @pthread_setspecific(i32 %key, ptr %new)
  %stored = icmp eq i32 %status, 0
  br i1 %stored, label %check, label %lost
lost:
  call void @free(ptr %new)
  br label %refused
check:
  %record = phi ptr [ %known, %entry ], [ %new, %keep ]
  %apart_at = getelementptr %record, ptr %record, i32 0, i32 1
  %threads_at = getelementptr %record, ptr %record, i32 0, i32 2
  %apart = load i64, ptr %apart_at
  %count = load i64, ptr %threads_at
  %wide = icmp uge i64 %apart, %each
  %many = icmp uge i64 %count, %threads
  %enough = and i1 %wide, %many
  br i1 %enough, label %done, label %grow
grow:
  %padded = add i64 %each, 4095
  %rounded = and i64 %padded, -4096
  %new_apart = call i64 @llvm.umax.i64(i64 %rounded, i64 %apart)
  %new_count = call i64 @llvm.umax.i64(i64 %threads, i64 %count)
  %bytes = mul i64 %new_apart, %new_count
  %old = load ptr, ptr %record
  call void @free(ptr %old)
  %memory = call ptr @aligned_alloc(i64 4096, i64 %bytes)
  store ptr %memory, ptr %record
  %failed = icmp eq ptr %memory, null
  br i1 %failed, label %empty, label %grown
empty:
  store i64 0, ptr %apart_at
  store i64 0, ptr %threads_at
  br label %refused
grown:
  store i64 %new_apart, ptr %apart_at
  store i64 %new_count, ptr %threads_at
  br label %done
done:
  %found = load ptr, ptr %record
  %found_apart = load i64, ptr %apart_at
  store ptr %found, ptr %place
  %apart_place = getelementptr i64, ptr %place, i64 1
  store i64 %found_apart, ptr %apart_place
  ret i64 1
refused:
  %one_only = getelementptr i64, ptr %place, i64 1
  store i64 0, ptr %one_only
  ret i64 0
}

declare i64 @llvm.umax.i64(i64, i64)
"""

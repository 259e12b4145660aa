"""Native functions that host programs call for GPUs: entering a device, launching a kernel. Loaded once a process.

    enter_device(index, guard, stream)    from here on the thread works on that GPU, in its current stream; `guard` is a word
                                          that is 0 at first
    leave_device(guard)                   back to the device from before
    launch(record, x, y, z, stream, parameters)   a kernel (cuda_driver.Record) on a grid, none where the grid is empty

The first and the last give 0 or an error: of PyTorch's shim 1, of CUDA its number plus 1000.
"""

import ctypes
import threading
from functools import cache

from mlirc.codegen.cuda_driver import driver
from mlirc.codegen.llvm import Code, compile_ir, load_library

SIGNATURES = {
    "enter_device": "i32 (i32, ptr, ptr)",
    "leave_device": "void (ptr)",
    "launch": "i32 (ptr, i64, i64, i64, ptr, ptr)",
}
CUDA_ERRORS = 1000  # an error from here on is CUDA's

TEXT = r"""
declare i32 @aoti_torch_create_cuda_guard(i32, ptr)
declare i32 @aoti_torch_cuda_guard_set_index(ptr, i32)
declare i32 @aoti_torch_delete_cuda_guard(ptr)
declare i32 @aoti_torch_get_current_cuda_stream(i32, ptr)
declare i32 @cuCtxGetCurrent(ptr)
declare i32 @cuCtxSetCurrent(ptr)
declare i32 @cuDevicePrimaryCtxRetain(ptr, i32)
declare i32 @cuLaunchKernel(ptr, i32, i32, i32, i32, i32, i32, i32, ptr, ptr, ptr)

define i32 @enter_device(i32 %index, ptr %guard, ptr %stream) {
entry:
  %context_at = alloca ptr
  %known = load ptr, ptr %guard
  %first = icmp eq ptr %known, null
  br i1 %first, label %create, label %change
create:
  %created = call i32 @aoti_torch_create_cuda_guard(i32 %index, ptr %guard)
  br label %there
change:
  %changed = call i32 @aoti_torch_cuda_guard_set_index(ptr %known, i32 %index)
  br label %there
there:
  %status = phi i32 [ %created, %create ], [ %changed, %change ]
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %shim_failed, label %context
context:                                     ; a thread that has not used CUDA yet has none, and the driver makes none
  store ptr null, ptr %context_at
  %c0 = call i32 @cuCtxGetCurrent(ptr %context_at)
  %current = load ptr, ptr %context_at
  %none = icmp eq ptr %current, null
  br i1 %none, label %make, label %ask
make:
  %c1 = call i32 @cuDevicePrimaryCtxRetain(ptr %context_at, i32 %index)
  %failed = icmp ne i32 %c1, 0
  br i1 %failed, label %cuda_failed, label %set
set:
  %made = load ptr, ptr %context_at
  %c2 = call i32 @cuCtxSetCurrent(ptr %made)
  br label %ask
ask:
  %asked = call i32 @aoti_torch_get_current_cuda_stream(i32 %index, ptr %stream)
  ret i32 %asked
shim_failed:
  ret i32 1
cuda_failed:
  %number = add i32 %c1, 1000
  ret i32 %number
}

define void @leave_device(ptr %guard) {
  %known = load ptr, ptr %guard
  %none = icmp eq ptr %known, null
  br i1 %none, label %done, label %leave
leave:
  %code = call i32 @aoti_torch_delete_cuda_guard(ptr %known)
  br label %done
done:
  ret void
}

define i32 @launch(ptr %record, i64 %x, i64 %y, i64 %z, ptr %stream, ptr %parameters) {
entry:
  %some_x = icmp sgt i64 %x, 0
  %some_y = icmp sgt i64 %y, 0
  %some_z = icmp sgt i64 %z, 0
  %some_xy = and i1 %some_x, %some_y
  %some = and i1 %some_xy, %some_z
  br i1 %some, label %go, label %empty
go:
  %function = load ptr, ptr %record
  %threads_at = getelementptr i64, ptr %record, i64 1
  %threads = load i32, ptr %threads_at
  %shared_at = getelementptr i64, ptr %record, i64 2
  %shared = load i32, ptr %shared_at
  %gx = trunc i64 %x to i32
  %gy = trunc i64 %y to i32
  %gz = trunc i64 %z to i32
  %code = call i32 @cuLaunchKernel(ptr %function, i32 %gx, i32 %gy, i32 %gz, i32 %threads, i32 1, i32 1, i32 %shared,
                                   ptr %stream, ptr %parameters, ptr null)
  %bad = icmp ne i32 %code, 0
  br i1 %bad, label %failed, label %empty
failed:
  %number = add i32 %code, 1000
  ret i32 %number
empty:
  ret i32 0
}
"""

_lock = threading.Lock()


def functions() -> dict[str, int]:
    """The address of each function of SIGNATURES. Raises CudaError where there is no CUDA."""
    with _lock:
        return {name: _code().address(name) for name in SIGNATURES}


@cache
def _code() -> Code:
    driver()
    load_library("libcuda.so.1")
    return compile_ir(TEXT, opt_level=1)


def error_number(status: int) -> int | None:
    """CUDA's number of an error that one of the functions gave, or None: the shim left a text."""
    return status - CUDA_ERRORS if status >= CUDA_ERRORS else None

"""Native functions that host programs call for GPUs: entering a device, launching a kernel. Loaded once a process.

    enter_device(index, guard, stream)    from here on the thread works on that GPU, in its current stream; `guard` is a slot
                                          that is 0 at first
    leave_device(guard)                   back to the device from before
    launch(record, x, y, z, stream, parameters)   a kernel (cuda_driver.Record) on a grid, none where the grid is empty
    align(address, bytes, dtype, device type, index, place, stream, result)   the address if it is a multiple of 16, else
                                          that of a copy, which is freed with its handle at `place`
    copy_memory(to, from, bytes, stream)  within a GPU, none where both are one address
    read_memory(to, from, bytes, stream)  from a GPU to the host, and waits for the stream
    write_number(to, bits, bytes, stream) the low bytes of `bits`, 1, 2, 4 or 8 of them, to a GPU
    find_failure(slots, n, sites, site, index, size)   1 and the first failure that one of n launches noted, if any did

The others give 0 or an error: of PyTorch's shim 1, of CUDA its number plus 1000.
"""

from mlirc.codegen.cuda.driver import driver
from mlirc.codegen.llvm.machine_code import Code, load_library
from mlirc.codegen.runtime.runtime_code import Functions, runtime_code

SIGNATURES = {
    "enter_device": "i32 (i32, ptr, ptr)",
    "leave_device": "void (ptr)",
    "launch": "i32 (ptr, i64, i64, i64, ptr, ptr)",
    "align": "i32 (ptr, i64, i32, i32, i32, ptr, ptr, ptr)",
    "copy_memory": "i32 (ptr, ptr, i64, ptr)",
    "read_memory": "i32 (ptr, ptr, i64, ptr)",
    "write_number": "i32 (ptr, i64, i64, ptr)",
    "find_failure": "i32 (ptr, i64, ptr, ptr, ptr, ptr)",
}
CUDA_ERRORS = 1000  # an error from here on is CUDA's
# CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: not only when all before it in the stream has ended
EARLY_LAUNCH = 6

TEXT = r"""
declare i32 @aoti_torch_create_cuda_guard(i32, ptr)
declare i32 @aoti_torch_cuda_guard_set_index(ptr, i32)
declare i32 @aoti_torch_delete_cuda_guard(ptr)
declare i32 @aoti_torch_get_current_cuda_stream(i32, ptr)
declare i32 @aoti_torch_empty_strided(i64, ptr, ptr, i32, i32, i32, ptr)
declare i32 @aoti_torch_get_data_ptr(ptr, ptr)
declare i32 @aoti_torch_delete_tensor_object(ptr)
declare i32 @cuMemcpyDtoDAsync_v2(i64, i64, i64, ptr)
declare i32 @cuMemcpyDtoHAsync_v2(ptr, i64, i64, ptr)
declare i32 @cuMemsetD8Async(i64, i8 zeroext, i64, ptr)
declare i32 @cuMemsetD16Async(i64, i16 zeroext, i64, ptr)
declare i32 @cuMemsetD32Async(i64, i32, i64, ptr)
declare i32 @cuStreamSynchronize(ptr)
declare i32 @cuCtxGetCurrent(ptr)
declare i32 @cuCtxSetCurrent(ptr)
declare i32 @cuDevicePrimaryCtxRetain(ptr, i32)
declare i32 @cuLaunchKernelEx(ptr, ptr, ptr, ptr)

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

; CUlaunchConfig: the grid, the block, bytes of shared memory, stream, attributes, how many; CUlaunchAttribute: its number, its value
%config = type { [3 x i32], [3 x i32], i32, ptr, ptr, i32 }
%attribute = type { i32, i32, [8 x i64] }

define i32 @launch(ptr %record, i64 %x, i64 %y, i64 %z, ptr %stream, ptr %parameters) {
entry:
  %config = alloca %config
  %attribute = alloca %attribute
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
  %early_at = getelementptr i64, ptr %record, i64 3
  %early = load i32, ptr %early_at
  %gx = trunc i64 %x to i32
  %gy = trunc i64 %y to i32
  %gz = trunc i64 %z to i32
  %c0 = insertvalue %config zeroinitializer, i32 %gx, 0, 0
  %c1 = insertvalue %config %c0, i32 %gy, 0, 1
  %c2 = insertvalue %config %c1, i32 %gz, 0, 2
  %c3 = insertvalue %config %c2, i32 %threads, 1, 0
  %c4 = insertvalue %config %c3, i32 1, 1, 1
  %c5 = insertvalue %config %c4, i32 1, 1, 2
  %c6 = insertvalue %config %c5, i32 %shared, 2
  %c7 = insertvalue %config %c6, ptr %stream, 3
  %c8 = insertvalue %config %c7, ptr %attribute, 4
  %c9 = insertvalue %config %c8, i32 %early, 5       ; as many attributes
  store %config %c9, ptr %config
  %a0 = insertvalue %attribute zeroinitializer, i32 PROGRAMMATIC_STREAM_SERIALIZATION, 0
  %a1 = insertvalue %attribute %a0, i64 1, 2, 0
  store %attribute %a1, ptr %attribute
  %code = call i32 @cuLaunchKernelEx(ptr %config, ptr %function, ptr %parameters, ptr null)
  %bad = icmp ne i32 %code, 0
  br i1 %bad, label %failed, label %empty
failed:
  %number = add i32 %code, 1000
  ret i32 %number
empty:
  ret i32 0
}

define i32 @align(ptr %address, i64 %bytes, i32 %dtype, i32 %device, i32 %index, ptr %place, ptr %stream, ptr %result) {
entry:
  %size_at = alloca i64
  %one_at = alloca i64
  %from = ptrtoint ptr %address to i64
  %rest = and i64 %from, 15
  %aligned = icmp eq i64 %rest, 0
  br i1 %aligned, label %as_it_is, label %release
as_it_is:
  store ptr %address, ptr %result
  ret i32 0
release:                                     ; the copy of an earlier launch in a loop would leak
  %old = load ptr, ptr %place
  %none = icmp eq ptr %old, null
  br i1 %none, label %make, label %delete
delete:
  store ptr null, ptr %place
  %c0 = call i32 @aoti_torch_delete_tensor_object(ptr %old)
  br label %make
make:
  store i64 %bytes, ptr %size_at
  store i64 1, ptr %one_at
  %c1 = call i32 @aoti_torch_empty_strided(i64 1, ptr %size_at, ptr %one_at, i32 %dtype, i32 %device, i32 %index, ptr %place)
  %no_memory = icmp ne i32 %c1, 0
  br i1 %no_memory, label %shim_failed, label %copy
copy:
  %handle = load ptr, ptr %place
  %c2 = call i32 @aoti_torch_get_data_ptr(ptr %handle, ptr %result)
  %to = load i64, ptr %result
  %c3 = call i32 @cuMemcpyDtoDAsync_v2(i64 %to, i64 %from, i64 %bytes, ptr %stream)
  %failed = icmp ne i32 %c3, 0
  br i1 %failed, label %cuda_failed, label %done
done:
  ret i32 0
shim_failed:
  ret i32 1
cuda_failed:
  %number = add i32 %c3, 1000
  ret i32 %number
}

define i32 @copy_memory(ptr %to_at, ptr %from_at, i64 %bytes, ptr %stream) {
entry:
  %same = icmp eq ptr %to_at, %from_at
  %nothing = icmp eq i64 %bytes, 0
  %skip = or i1 %same, %nothing
  br i1 %skip, label %done, label %copy
copy:
  %to = ptrtoint ptr %to_at to i64
  %from = ptrtoint ptr %from_at to i64
  %code = call i32 @cuMemcpyDtoDAsync_v2(i64 %to, i64 %from, i64 %bytes, ptr %stream)
  %bad = icmp ne i32 %code, 0
  br i1 %bad, label %failed, label %done
failed:
  %number = add i32 %code, 1000
  ret i32 %number
done:
  ret i32 0
}

define i32 @read_memory(ptr %to, ptr %from_at, i64 %bytes, ptr %stream) {
entry:
  %from = ptrtoint ptr %from_at to i64
  %copied = call i32 @cuMemcpyDtoHAsync_v2(ptr %to, i64 %from, i64 %bytes, ptr %stream)
  %refused = icmp ne i32 %copied, 0
  br i1 %refused, label %failed, label %wait
wait:
  %waited = call i32 @cuStreamSynchronize(ptr %stream)
  %bad = icmp ne i32 %waited, 0
  br i1 %bad, label %failed, label %done
failed:
  %code = phi i32 [ %copied, %entry ], [ %waited, %wait ]
  %number = add i32 %code, 1000
  ret i32 %number
done:
  ret i32 0
}

define i32 @write_number(ptr %to_at, i64 %bits, i64 %bytes, ptr %stream) {
entry:
  %to = ptrtoint ptr %to_at to i64
  %low = trunc i64 %bits to i32
  switch i64 %bytes, label %eight [ i64 1, label %one  i64 2, label %two  i64 4, label %four ]
one:
  %byte = trunc i64 %bits to i8
  %c1 = call i32 @cuMemsetD8Async(i64 %to, i8 zeroext %byte, i64 1, ptr %stream)
  br label %written
two:
  %half = trunc i64 %bits to i16
  %c2 = call i32 @cuMemsetD16Async(i64 %to, i16 zeroext %half, i64 1, ptr %stream)
  br label %written
four:
  %c4 = call i32 @cuMemsetD32Async(i64 %to, i32 %low, i64 1, ptr %stream)
  br label %written
eight:
  %first = call i32 @cuMemsetD32Async(i64 %to, i32 %low, i64 1, ptr %stream)
  %refused = icmp ne i32 %first, 0
  br i1 %refused, label %failed, label %rest
rest:
  %shifted = lshr i64 %bits, 32
  %high = trunc i64 %shifted to i32
  %to_high = add i64 %to, 4
  %c8 = call i32 @cuMemsetD32Async(i64 %to_high, i32 %high, i64 1, ptr %stream)
  br label %written
written:
  %code = phi i32 [ %c1, %one ], [ %c2, %two ], [ %c4, %four ], [ %c8, %rest ]
  %bad = icmp ne i32 %code, 0
  br i1 %bad, label %failed, label %done
failed:
  %error = phi i32 [ %first, %eight ], [ %code, %written ]
  %number = add i32 %error, 1000
  ret i32 %number
done:
  ret i32 0
}

define i32 @find_failure(ptr %slots, i64 %n, ptr %sites, ptr %site, ptr %index, ptr %size) {
entry:
  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %body, label %none
body:
  %next = add i64 %k, 1
  %position = mul i64 %k, 3
  %check_at = getelementptr i64, ptr %slots, i64 %position
  %check = load volatile i64, ptr %check_at  ; a GPU writes it
  %good = icmp eq i64 %check, 0
  br i1 %good, label %head, label %found
found:
  %index_at = getelementptr i64, ptr %check_at, i64 1
  %size_at = getelementptr i64, ptr %check_at, i64 2
  %bad_index = load volatile i64, ptr %index_at
  %its_size = load volatile i64, ptr %size_at
  store volatile i64 0, ptr %check_at
  %first_at = getelementptr i64, ptr %sites, i64 %k
  %first = load i64, ptr %first_at
  %after = add i64 %first, %check
  %number = sub i64 %after, 1
  store i64 %number, ptr %site
  store i64 %bad_index, ptr %index
  store i64 %its_size, ptr %size
  ret i32 1
none:
  ret i32 0
}
"""


def _code() -> Code:
    """Raises CudaError where there is no CUDA."""
    driver()
    load_library("libcuda.so.1")
    return runtime_code(TEXT.replace("PROGRAMMATIC_STREAM_SERIALIZATION", str(EARLY_LAUNCH)))


functions = Functions(SIGNATURES, _code)


def error_number(status: int) -> int | None:
    """CUDA's number of an error that one of the functions gave, or None: the shim left a text."""
    return status - CUDA_ERRORS if status >= CUDA_ERRORS else None

"""Native function that host programs call for a convolution on a GPU. Loaded once a process.

    convolve(head, x, w, z, b, sizes, strides, dtype, device type, index, byte type, stream, place)

`head` is the address of the head of a convolution's list of plans (cudnn.CudnnPlans). x and w are its two inputs in the order of
CudnnConvolution.kind: of a gradient (dy, w) or (x, dy). z and b are null where there are none. The result is a new tensor of 4
dimensions, whose handle is left at `place`. `byte type` is the dtype of a workspace. Gives 0 when it is done, NO_PLAN where
Python has to make a plan first, ATEN where ATen has to convolve: cuDNN does not take it, or failed, an address is no
multiple of 16 bytes, or another thread uses the handle. Nothing is left at `place` then.
"""

from mlirc.codegen.libraries.cudnn import (
    ALIGNMENT,
    INT64,
    PACK_IDS,
    PACK_POINTERS,
    PACK_WORKSPACE,
    POINTER,
    VARIANT_PACK,
    CudnnPlan,
)
from mlirc.codegen.libraries.gpu_library import ATEN, NO_PLAN, WORKSPACE_TEXT
from mlirc.codegen.llvm.field_text import with_fields
from mlirc.codegen.runtime.runtime_code import Functions, runtime_code

SIGNATURES = {"convolve": "i32 (ptr, ptr, ptr, ptr, ptr, ptr, ptr, i32, i32, i32, i32, ptr, ptr)"}

TEXT = r"""
define i32 @convolve(ptr %head, ptr %x, ptr %w, ptr %z, ptr %b, ptr %sizes, ptr %strides, i32 %dtype, i32 %device,
                     i32 %index, i32 %byte, ptr %stream, ptr %place) {
entry:
  %pack_at = alloca ptr
  %handle_at = alloca ptr
  %scratch_at = alloca ptr
  %y_at = alloca ptr
  %pointers = alloca [5 x ptr]
  store ptr null, ptr %place
  store ptr null, ptr %handle_at
  %plan = load atomic ptr, ptr %head acquire, align 8
  %none = icmp eq ptr %plan, null
  br i1 %none, label %unknown, label %look
unknown:
  ret i32 NO_PLAN
look:
  FIELD(execute, ptr)
  %refused = icmp eq ptr %execute, null
  %x_bits = ptrtoint ptr %x to i64
  %w_bits = ptrtoint ptr %w to i64
  %z_bits = ptrtoint ptr %z to i64
  %b_bits = ptrtoint ptr %b to i64
  %xw = or i64 %x_bits, %w_bits
  %zb = or i64 %z_bits, %b_bits
  %all = or i64 %xw, %zb
  %rest = and i64 %all, REST
  %crooked = icmp ne i64 %rest, 0
  %not_ours = or i1 %refused, %crooked
  br i1 %not_ours, label %aten, label %take
aten:
  ret i32 ATEN

take:
  FIELD(lock, ptr)
  %pair = cmpxchg ptr %lock, i64 0, i64 1 acquire monotonic
  %taken = extractvalue { i64, i1 } %pair, 1
  br i1 %taken, label %allocate, label %aten
allocate:
  %c0 = call i32 @aoti_torch_empty_strided(i64 4, ptr %sizes, ptr %strides, i32 %dtype, i32 %device, i32 %index, ptr %place)
  %no_memory = icmp ne i32 %c0, 0
  br i1 %no_memory, label %unlock, label %workspace_needed
workspace_needed:
  %y_handle = load ptr, ptr %place
  %c1 = call i32 @aoti_torch_get_data_ptr(ptr %y_handle, ptr %y_at)
  %workspace_at = getelementptr i64, ptr %plan, i64 FIELD_workspace
  %c2 = call i32 @allocate_workspace(ptr %workspace_at, i32 %byte, i32 %device, i32 %index, ptr %handle_at, ptr %scratch_at)
  %no_scratch = icmp ne i32 %c2, 0
  br i1 %no_scratch, label %undo, label %describe

describe:                                    ; x, w, y, then z and b where there are any
  %y = load ptr, ptr %y_at
  store ptr %x, ptr %pointers
  %p1 = getelementptr ptr, ptr %pointers, i64 1
  store ptr %w, ptr %p1
  %p2 = getelementptr ptr, ptr %pointers, i64 2
  store ptr %y, ptr %p2
  %no_z = icmp eq ptr %z, null
  %third = select i1 %no_z, ptr %b, ptr %z
  %p3 = getelementptr ptr, ptr %pointers, i64 3
  store ptr %third, ptr %p3
  %p4 = getelementptr ptr, ptr %pointers, i64 4
  store ptr %b, ptr %p4
  FIELD(create, ptr)
  FIELD(set, ptr)
  FIELD(finalize, ptr)
  FIELD(destroy, ptr)
  FIELD(set_stream, ptr)
  FIELD(handle, ptr)
  FIELD(plan, ptr, of)
  FIELD(count, i64)
  %ids = getelementptr i64, ptr %plan, i64 FIELD_ids
  %made = call i32 %create(i32 VARIANT_PACK, ptr %pack_at)
  %not_made = icmp ne i32 %made, 0
  br i1 %not_made, label %undo, label %fill
fill:
  %pack = load ptr, ptr %pack_at
  %s0 = call i32 %set(ptr %pack, i32 PACK_POINTERS, i32 POINTER, i64 %count, ptr %pointers)
  %s1 = call i32 %set(ptr %pack, i32 PACK_IDS, i32 INT64, i64 %count, ptr %ids)
  %s2 = call i32 %set(ptr %pack, i32 PACK_WORKSPACE, i32 POINTER, i64 1, ptr %scratch_at)
  %s3 = call i32 %finalize(ptr %pack)
  %s4 = call i32 %set_stream(ptr %handle, ptr %stream)
  %s01 = or i32 %s0, %s1
  %s23 = or i32 %s2, %s3
  %s0123 = or i32 %s01, %s23
  %settings = or i32 %s0123, %s4
  %set_up = icmp eq i32 %settings, 0
  br i1 %set_up, label %go, label %leave
go:
  %executed = call i32 %execute(ptr %handle, ptr %plan_of, ptr %pack)
  br label %leave
leave:
  %status = phi i32 [ %settings, %fill ], [ %executed, %go ]
  %dropped = call i32 %destroy(ptr %pack)
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %undo, label %unlock

undo:
  %useless = load ptr, ptr %place
  %c4 = call i32 @aoti_torch_delete_tensor_object(ptr %useless)
  store ptr null, ptr %place
  br label %unlock
unlock:
  store atomic i64 0, ptr %lock release, align 8
  call void @free_workspace(ptr %handle_at)
  %result = load ptr, ptr %place
  %failed = icmp eq ptr %result, null
  %answer = select i1 %failed, i32 ATEN, i32 0
  ret i32 %answer
}
"""


def llvm_ir() -> str:
    """TEXT with the numbers of cuDNN and of its plans."""
    numbers = {"NO_PLAN": NO_PLAN, "ATEN": ATEN, "REST": ALIGNMENT - 1, "VARIANT_PACK": VARIANT_PACK}
    numbers |= {"PACK_POINTERS": PACK_POINTERS, "PACK_IDS": PACK_IDS, "PACK_WORKSPACE": PACK_WORKSPACE}
    numbers |= {"POINTER": POINTER, "INT64": INT64}
    return with_fields(WORKSPACE_TEXT + TEXT, CudnnPlan, numbers)


functions = Functions(SIGNATURES, lambda: runtime_code(llvm_ir()))

"""LLVM IR of the function that host programs call for a matmul by cuBLASLt. Compiled and loaded once a process.

    multiply(head, n, key, a, b, c, d, bias, dtype, device type, index, stream) -> 0, NO_PLAN or ATEN

head        the address of the list head of this matmul's plans, the newest first (cublas_plans.CublasPlans.slots)
key         n slots of 8 bytes: the alignment, which is stored here, then the values of the matmul's symbols.
            The alignment is the largest power of two, at most 256, that divides all five addresses
dtype, device type, index   of the workspace
NO_PLAN     no plan has this key: Python makes one, and the call is repeated
ATEN        cuBLASLt refused this problem when it was planned, or fails now: ATen multiplies
"""

from mlirc.codegen.libraries.cublas import DESC_BIAS_POINTER, DESC_EPILOGUE, DESC_TRANSA, DESC_TRANSB, KEY, CublasPlan
from mlirc.codegen.libraries.gpu_library import ATEN, NO_PLAN, WORKSPACE_TEXT
from mlirc.codegen.llvm.field_text import with_fields
from mlirc.codegen.runtime.runtime_code import Functions, runtime_code

SIGNATURES = {"multiply": "i32 (ptr, i64, ptr, ptr, ptr, ptr, ptr, ptr, i32, i32, i32, ptr)"}

TEXT = r"""
@one = private constant float 1.0

define i32 @multiply(ptr %head, i64 %n, ptr %key, ptr %a, ptr %b, ptr %c, ptr %d, ptr %bias, i32 %dtype, i32 %device,
                     i32 %index, ptr %stream) {
entry:
  %desc_at = alloca ptr
  %bias_at = alloca ptr
  %handle_at = alloca ptr
  %address_at = alloca ptr
  %a_bits = ptrtoint ptr %a to i64
  %b_bits = ptrtoint ptr %b to i64
  %c_bits = ptrtoint ptr %c to i64
  %d_bits = ptrtoint ptr %d to i64
  %bias_bits = ptrtoint ptr %bias to i64
  %ab = or i64 %a_bits, %b_bits
  %cd = or i64 %c_bits, %d_bits
  %abcd = or i64 %ab, %cd
  %all = or i64 %abcd, %bias_bits
  %bits = or i64 %all, 256
  %negative = sub i64 0, %bits          ; x & -x: the lowest set bit
  %alignment = and i64 %bits, %negative
  store i64 %alignment, ptr %key
  %newest = load atomic ptr, ptr %head acquire, align 8     ; another thread may be publishing a plan
  br label %next_plan
next_plan:
  %plan = phi ptr [ %newest, %entry ], [ %older, %mismatch ]
  %none = icmp eq ptr %plan, null
  br i1 %none, label %no_plan, label %compare_keys
no_plan:
  ret i32 NO_PLAN
compare_keys:
  %k = phi i64 [ 0, %next_plan ], [ %k_next, %compare_slot ]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %compare_slot, label %found
compare_slot:
  %k_next = add i64 %k, 1
  %place = add i64 %k, KEY
  %have_at = getelementptr i64, ptr %plan, i64 %place
  %have = load i64, ptr %have_at
  %want_at = getelementptr i64, ptr %key, i64 %k
  %want = load i64, ptr %want_at
  %same = icmp eq i64 %have, %want
  br i1 %same, label %compare_keys, label %mismatch
mismatch:
  %older = load ptr, ptr %plan
  br label %next_plan

found:
  FIELD(matmul, ptr)
  %refused = icmp eq ptr %matmul, null    ; the plan records that cuBLASLt does not take this problem
  br i1 %refused, label %aten, label %describe
aten:
  ret i32 ATEN
describe:
  FIELD(desc, ptr)
  FIELD(has_bias, i64)
  %no_bias = icmp eq i64 %has_bias, 0
  br i1 %no_bias, label %memory, label %biased
biased:                                      ; the bias is an attribute of the descriptor: the plan's own is shared by threads
  store ptr %bias, ptr %bias_at
  FIELD(desc_create, ptr)
  FIELD(desc_set, ptr)
  FIELD(compute, i64)
  %compute_type = trunc i64 %compute to i32
  %made = call i32 %desc_create(ptr %desc_at, i32 %compute_type, i32 0)
  %not_made = icmp ne i32 %made, 0
  br i1 %not_made, label %aten, label %fill
fill:
  %own_desc = load ptr, ptr %desc_at
  %ta_at = getelementptr i64, ptr %plan, i64 FIELD_transpose_a
  %tb_at = getelementptr i64, ptr %plan, i64 FIELD_transpose_b
  %s0 = call i32 %desc_set(ptr %own_desc, i32 TRANSA, ptr %ta_at, i64 4)
  %s1 = call i32 %desc_set(ptr %own_desc, i32 TRANSB, ptr %tb_at, i64 4)
  %epilogue_at = getelementptr i64, ptr %plan, i64 FIELD_epilogue
  %s2 = call i32 %desc_set(ptr %own_desc, i32 EPILOGUE, ptr %epilogue_at, i64 4)
  %s3 = call i32 %desc_set(ptr %own_desc, i32 BIAS_POINTER, ptr %bias_at, i64 8)
  %s01 = or i32 %s0, %s1
  %s23 = or i32 %s2, %s3
  %settings = or i32 %s01, %s23
  %not_set = icmp ne i32 %settings, 0
  br i1 %not_set, label %abandon, label %memory
abandon:
  FIELD(desc_destroy, ptr, early)
  %abandoned = call i32 %desc_destroy_early(ptr %own_desc)
  ret i32 ATEN

memory:
  %call_desc = phi ptr [ %desc, %describe ], [ %own_desc, %fill ]
  %workspace_at = getelementptr i64, ptr %plan, i64 FIELD_workspace
  %workspace = load i64, ptr %workspace_at
  %allocated = call i32 @allocate_workspace(ptr %workspace_at, i32 %dtype, i32 %device, i32 %index, ptr %handle_at, ptr %address_at)
  %no_memory = icmp ne i32 %allocated, 0
  br i1 %no_memory, label %done, label %go
go:
  %scratch = load ptr, ptr %address_at
  FIELD(handle, ptr)
  FIELD(a, ptr, layout)
  FIELD(b, ptr, layout)
  FIELD(c, ptr, layout)
  FIELD(d, ptr, layout)
  ; row-major C = A B is column-major C^T = B^T A^T
  FIELD(swapped, i64)
  %operands_swapped = icmp ne i64 %swapped, 0
  %lhs = select i1 %operands_swapped, ptr %b, ptr %a
  %rhs = select i1 %operands_swapped, ptr %a, ptr %b
  %beta_at = getelementptr i64, ptr %plan, i64 FIELD_beta
  %algorithm_at = getelementptr i64, ptr %plan, i64 FIELD_algorithm
  %status = call i32 %matmul(ptr %handle, ptr %call_desc, ptr @one, ptr %lhs, ptr %a_layout, ptr %rhs, ptr %b_layout,
      ptr %beta_at, ptr %c, ptr %c_layout, ptr %d, ptr %d_layout, ptr %algorithm_at, ptr %scratch, i64 %workspace, ptr %stream)
  br label %done
done:
  %result = phi i32 [ %status, %go ], [ %allocated, %memory ]
  call void @free_workspace(ptr %handle_at)
  br i1 %no_bias, label %end, label %drop
drop:
  FIELD(desc_destroy, ptr)
  %dropped = call i32 %desc_destroy(ptr %call_desc)
  br label %end
end:
  %bad = icmp ne i32 %result, 0
  %code = select i1 %bad, i32 ATEN, i32 0
  ret i32 %code
}
"""


def llvm_ir() -> str:
    """TEXT with the enum values of cuBLASLt and the offsets of a plan's fields."""
    numbers = {"NO_PLAN": NO_PLAN, "ATEN": ATEN, "KEY": KEY}
    numbers |= {
        "BIAS_POINTER": DESC_BIAS_POINTER,
        "EPILOGUE": DESC_EPILOGUE,
        "TRANSA": DESC_TRANSA,
        "TRANSB": DESC_TRANSB,
    }
    return with_fields(WORKSPACE_TEXT + TEXT, CublasPlan, numbers)


functions = Functions(SIGNATURES, lambda: runtime_code(llvm_ir()))

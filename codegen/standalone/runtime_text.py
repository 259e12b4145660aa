"""What code of a standalone program calls beside C's library, as LLVM IR text: scratch memory, copies, SLEEF's functions.

libgomp is called where the process has it: without it, kernels run on one thread.
"""

import re
from collections.abc import Iterable

from mlirc.codegen.runtime import thread_scratch
from mlirc.lowering.target import SCRATCH_FUNCTION

OPTIONAL = ("GOMP_parallel", "GOMP_barrier", "omp_get_thread_num", "omp_get_num_threads")
"""Functions of libgomp, which the process may not have."""

_SLEEF = re.compile(r"^declare (<(\d+) x (float|double)>) @Sleef_([a-z0-9]*?)[fd]\2(?:_u\d+)?\((.*?)\)", re.MULTILINE)

MATH = frozenset([
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh", "erf",
    "erfc", "exp", "exp2", "expm1", "fmod", "hypot", "lgamma", "log", "log10", "log1p", "log2",
    "pow", "sin", "sinh", "sqrt", "tan", "tanh", "tgamma",
])  # fmt: skip
"""Functions of C's library that SLEEF has under the same names."""

SCRATCH = (
    thread_scratch.TEXT.replace("define void @release_scratch", "define internal void @release_scratch")
    .replace("@scratch_key = global", "@scratch_key = internal global")
    .replace("define i64 @grow_and_give", f"define internal i64 @{SCRATCH_FUNCTION}")
    + r"""
@scratch_once = internal global i32 0
@scratch_made = internal global i32 0
declare i32 @pthread_once(ptr, ptr)
declare i32 @pthread_key_create(ptr, ptr)

define internal void @make_scratch_key() {
  %status = call i32 @pthread_key_create(ptr @scratch_key, ptr @release_scratch)
  %made = icmp eq i32 %status, 0
  %flag = zext i1 %made to i32
  store i32 %flag, ptr @scratch_made
  ret void
}

; 1 where threads can have scratch memory; called before any kernel
define i32 @make_ready() {
  %once = call i32 @pthread_once(ptr @scratch_once, ptr @make_scratch_key)
  %made = load i32, ptr @scratch_made
  ret i32 %made
}
"""
)

COPY = r"""
; Copies a tensor of elements of %bytes, by recursion over its dimensions, outermost first. Strides are in elements.
define internal void @copy_strided(ptr %to, ptr %from, i64 %rank, ptr %sizes, ptr %to_strides, ptr %from_strides, i64 %bytes) {
entry:
  %none = icmp eq i64 %rank, 0
  br i1 %none, label %element, label %rows
element:
  call void @llvm.memmove.p0.p0.i64(ptr %to, ptr %from, i64 %bytes, i1 false)
  ret void
rows:
  %count = load i64, ptr %sizes
  %to_step = load i64, ptr %to_strides
  %from_step = load i64, ptr %from_strides
  %to_bytes = mul i64 %to_step, %bytes
  %from_bytes = mul i64 %from_step, %bytes
  %rest = sub i64 %rank, 1
  %next_sizes = getelementptr i64, ptr %sizes, i64 1
  %next_to = getelementptr i64, ptr %to_strides, i64 1
  %next_from = getelementptr i64, ptr %from_strides, i64 1
  %last = icmp eq i64 %rank, 1
  %to_dense = icmp eq i64 %to_step, 1
  %from_dense = icmp eq i64 %from_step, 1
  %dense = and i1 %to_dense, %from_dense
  %block = and i1 %last, %dense
  br i1 %block, label %whole, label %head
whole:
  %positive = call i64 @llvm.smax.i64(i64 %count, i64 0)
  %size = mul i64 %positive, %bytes
  call void @llvm.memmove.p0.p0.i64(ptr %to, ptr %from, i64 %size, i1 false)
  ret void
head:
  %k = phi i64 [ 0, %rows ], [ %next, %body ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %body, label %done
body:
  %to_offset = mul i64 %k, %to_bytes
  %from_offset = mul i64 %k, %from_bytes
  %to_at = getelementptr i8, ptr %to, i64 %to_offset
  %from_at = getelementptr i8, ptr %from, i64 %from_offset
  call void @copy_strided(ptr %to_at, ptr %from_at, i64 %rest, ptr %next_sizes, ptr %next_to, ptr %next_from, i64 %bytes)
  %next = add i64 %k, 1
  br label %head
done:
  ret void
}

declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @llvm.smax.i64(i64, i64)
"""


def without_libraries(text: str) -> str:
    """The kernels' LLVM IR text, changed to need C's library alone: libgomp is optional, and each function of SLEEF's calls C's for each
    lane. Raises ValueError for a function of SLEEF's that C does not have."""
    text = re.sub(rf"^declare (?=.*@(?:{'|'.join(OPTIONAL)})\()", "declare extern_weak ", text, flags=re.MULTILINE)
    needed: dict[str, str] = {}

    def lane_by_lane(match: re.Match) -> str:
        vector, lanes, element, function, operands = match.groups()
        if function not in MATH:
            raise ValueError(f"SLEEF's {function} has no namesake in C's library")
        name = f"{function}f" if element == "float" else function
        count = len(operands.split(">,"))
        needed[name] = f"declare {element} @{name}({', '.join([element] * count)})"
        head = re.search(r"@\w+", match[0])
        assert head is not None
        return loop_over_lanes(head[0], name, vector, int(lanes), element, count)

    text = _SLEEF.sub(lane_by_lane, text)
    known = set(re.findall(r"^declare .*?@(\w+)\(", text, re.MULTILINE))
    return "\n".join([text, *(line for name, line in needed.items() if name not in known)])


def loop_over_lanes(symbol: str, function: str, vector: str, lanes: int, element: str, count: int) -> str:
    """A vector function that calls a scalar one for each lane."""
    lines = [f"define internal {vector} {symbol}({', '.join(f'{vector} %x{k}' for k in range(count))}) {{"]
    result = "poison"
    for lane in range(lanes):
        for k in range(count):
            lines.append(f"  %a{k}_{lane} = extractelement {vector} %x{k}, i64 {lane}")
        given = ", ".join(f"{element} %a{k}_{lane}" for k in range(count))
        lines.append(f"  %r{lane} = call {element} @{function}({given})")
        lines.append(f"  %v{lane} = insertelement {vector} {result}, {element} %r{lane}, i64 {lane}")
        result = f"%v{lane}"
    return "\n".join([*lines, f"  ret {vector} {result}", "}"])


def declared(text: str) -> list[str]:
    """Names of the functions that LLVM IR text declares and does not define."""
    defined = set(re.findall(r"^define .*?@(\w+)\(", text, re.MULTILINE))
    names: Iterable[str] = re.findall(r"^declare .*?@([\w.]+)\(", text, re.MULTILINE)
    return sorted({name for name in names if not name.startswith("llvm.")} - defined)

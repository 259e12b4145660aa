"""Matmuls on a GPU in a host program: `mlircx.call` of CALLEES, by cuBLASLt with a plan (cublas.py).

Python makes a plan when native code meets sizes or an alignment for the first time. The C shim's routine computes the matmul where cuBLASLt
refuses it or fails. Both are out-of-line calls.
"""

from typing import Any

from mlirc.codegen.aten.library_routine import call_shim
from mlirc.codegen.cuda import launch as cuda_launch
from mlirc.codegen.frame.frame import Frame, HostBuffer
from mlirc.codegen.frame.gpu_calls import MATMULS, CublasMatmul
from mlirc.codegen.libraries import cublas, cublas_runtime
from mlirc.codegen.libraries.cublas import CUDA_TYPES
from mlirc.codegen.runtime.python_side import MATMUL_PLANS
from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.tensor_types import info_of

CALLEES = ("matmul", "addmm", "addmm_gelu")
TUNED = "mlirc.tuned"  # of a call: which algorithm is fastest is to be measured


def matmul_of(op: Any) -> CublasMatmul | None:
    """The matmul of a call, for cuBLASLt; None where the routine, device, dtype or layout is not cuBLASLt's."""
    callee = attribute_value(op.attributes["callee"])
    if callee not in CALLEES:
        return None
    if not all(isinstance(x.type, ir.RankedTensorType) for x in op.operands):
        return None
    *addend, a, b, out = infos = [info_of(x) for x in op.operands]
    if (
        not out.device.startswith("cuda")
        or len({(x.device, x.dtype) for x in infos}) > 1
        or out.dtype not in CUDA_TYPES
    ):
        return None
    if any(x.rank != out.rank for x in (a, b)) or out.rank not in (2, 3):
        return None
    if addend and addend[0].shape != out.shape and (addend[0].shape != out.shape[1:] or out.rank == 3):
        return None
    sizes = [size for info in infos for size in (*info.shape, *info.stride)]
    names = sorted({name for size in sizes for name in symbols.free_symbols(size)})
    return CublasMatmul(tuple(infos), tuple(names), TUNED in op.attributes, callee == "addmm_gelu")


def multiply(frame: Frame, op: Any, matmul: CublasMatmul) -> None:
    """Writes the call of cuBLASLt, and the shim's call for where that fails."""
    text, number, device = frame.text, len(frame.gpus.matmuls), matmul.device
    frame.gpus.matmuls.append(matmul)
    buffers = [frame.values[x] for x in op.operands]
    cuda_launch.enter(frame, device)
    frame.op = attribute_value(op.attributes["callee"])
    *addend, a, b, out = [frame.address(x) for x in buffers]
    bias = addend[0] if addend and matmul.operands[0].rank == 1 else "null"
    c = addend[0] if addend and bias == "null" else out
    values = [frame.sizes.of(symbols.symbol(name)) for name in matmul.symbols]
    count = len(values) + 1
    key = text.place(f"[{count} x i64]", "key")
    for k, value in enumerate(values):
        text.line(f"store i64 {value}, ptr {frame.at(key, k + 1)}")
    head = frame.at(text.link(MATMULS), number)
    workspace = map(str, cublas.codes(device))
    arguments = (head, str(count), key, a, b, c, out, bias, *workspace, f"%stream_{device}")
    status = frame.runtime("multiply", *arguments)
    again, done = text.fresh("again"), text.fresh("done")
    text.line(f"br i1 {text.value(f'icmp eq i32 {status}, 0')}, label %{done}, label %{again}")
    known, blobs = dict(frame.sizes.known), [x.blob if isinstance(x, HostBuffer) else "" for x in buffers]
    with frame.out_of_line():
        text.block(again)
        aten, plan = text.fresh("aten"), text.fresh("plan")
        text.line(
            f"br i1 {text.value(f'icmp eq i32 {status}, {cublas_runtime.NO_PLAN}')}, label %{plan}, label %{aten}"
        )
        text.block(plan)
        make_plan(frame, number, key, count)
        second = frame.runtime("multiply", *arguments)
        text.line(f"br i1 {text.value(f'icmp eq i32 {second}, 0')}, label %{done}, label %{aten}")
        text.block(aten)
        call_shim(frame, op)
        text.line(f"br label %{done}")
    frame.sizes.known = known  # what was written out of line is not known in line
    for x, blob in zip(buffers, blobs, strict=True):
        if isinstance(x, HostBuffer):
            x.blob = blob
    text.block(done)


def make_plan(frame: Frame, number: int, key: str, count: int) -> None:
    """Writes a call of Python, which makes the plan of matmul `number` for the alignment and sizes at `key`."""
    text = frame.text
    slots = text.place(f"[{count + 1} x i64]", "operands")
    text.line(f"store i64 {number}, ptr {slots}")
    for k in range(count):
        text.line(f"store i64 {frame.load('i64', frame.at(key, k))}, ptr {frame.at(slots, k + 1)}")
    frame.at_site()
    callable_ = frame.python_object(MATMUL_PLANS)
    letters = text.letters("i" * (count + 1))
    frame.check(
        frame.runtime(
            "call_python", "%thread", callable_, "%name", "%inputs",
            letters, str(count + 1), slots, "null", "0", "null", "null",
        )
    )  # fmt: skip

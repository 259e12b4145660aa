"""Matmuls by cuBLASLt, called from host programs with plans, each made once for its sizes and alignments.

An ATen call costs some 13 us of host time a matmul: tensors for its operands, dispatch, descriptors, a search for the
algorithm. All of it depends on sizes, strides and alignment alone; a plan holds what comes out, and native code
(cublas_runtime.py) calls `cublasLtMatmul` with it. Matrices are as cuBLAS sees them (cublas_problem.py). Source: cublasLt.h of CUDA 12,
and ATen/cuda/CUDABlas.cpp for what PyTorch asks of it.
"""

import ctypes
import logging
from functools import cache
from typing import Any

import torch

from mlirc.codegen.abi import shim
from mlirc.codegen.abi.tf32 import allows_tf32
from mlirc.codegen.libraries.cublas_problem import CublasMatrix
from mlirc.codegen.libraries.gpu_library import Handles, NoPlan, loaded

log = logging.getLogger("mlirc")

CUDA_TYPES = {torch.float32: 0, torch.float16: 2, torch.bfloat16: 14}  # cudaDataType
COMPUTE_32F, COMPUTE_32F_FAST_TF32 = 68, 77  # cublasComputeType_t
DESC_TRANSA, DESC_TRANSB, DESC_EPILOGUE, DESC_BIAS_POINTER = 3, 4, 7, 8  # cublasLtMatmulDescAttributes_t
LAYOUT_BATCH_COUNT, LAYOUT_BATCH_STRIDE = 5, 6  # cublasLtMatrixLayoutAttribute_t
PREF_WORKSPACE, PREF_REDUCTIONS, PREF_ALIGNMENTS = 1, 3, (5, 6, 7, 8)  # cublasLtMatmulPreferenceAttributes_t
REDUCTION_COMPUTE_TYPE = 2  # cublasLtReductionScheme_t: parts are summed in float32
EPILOGUE_BIAS, EPILOGUE_GELU_BIAS = 4, 36  # cublasLtEpilogue_t
WORKSPACE = 32 << 20  # bytes that an algorithm may ask for, as PyTorch allows on Hopper
SMALL = 256  # rows and columns of a matmul that is planned and never computed, and what its addresses are multiples of
NAMES = ("libcublasLt.so.13", "libcublasLt.so.12")


# ---- plans


class CublasPlan(ctypes.Structure):
    """What `multiply` of cublas_runtime.py takes, in slots of 8 bytes; `matmul` is null where ATen is to do it.

    key   follows in memory: the alignment in bytes, and the values of the matmul's symbols
    """

    _fields_ = [(name, ctypes.c_int64) for name in (
        "next", "matmul", "desc_create", "desc_set", "desc_destroy", "handle", "desc", "a", "b", "c", "d", "workspace", "beta",
        "has_bias", "swapped", "transpose_a", "transpose_b", "compute", "epilogue",
    )] + [("algorithm", ctypes.c_int64 * 8)]  # fmt: skip


KEY = ctypes.sizeof(CublasPlan) // 8  # the slot at which the key begins


class Algorithm(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [
        ("algorithm", ctypes.c_int64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    ]


def algorithms(
    plan: CublasPlan, alignment: int, dtype: torch.dtype, most: int = 1, workspace: int = WORKSPACE
) -> list[Algorithm]:
    """What cuBLAS would take, at most `most`, the best by its own estimate first. Raises NoPlan if there is nothing."""
    preference = made("MatmulPreferenceCreate")
    set_attribute("MatmulPreference", preference, PREF_WORKSPACE, ctypes.c_uint64(workspace))
    if not may_round_parts(dtype):
        set_attribute("MatmulPreference", preference, PREF_REDUCTIONS, ctypes.c_uint32(REDUCTION_COMPUTE_TYPE))
    for which in PREF_ALIGNMENTS:
        set_attribute("MatmulPreference", preference, which, ctypes.c_uint32(alignment))
    found, count = (Algorithm * most)(), ctypes.c_int()
    pointers = [ctypes.c_void_p(x) for x in (plan.handle, plan.desc, plan.a, plan.b, plan.c, plan.d)]
    status = library().cublasLtMatmulAlgoGetHeuristic(*pointers, preference, most, found, ctypes.byref(count))
    library().cublasLtMatmulPreferenceDestroy(preference)
    good = [x for x in found[: count.value] if x.state == 0]
    if status or not good:
        raise NoPlan(f"cuBLASLt has no algorithm for it (status {status})")
    return good


def compute_type(dtype: torch.dtype) -> int:
    """cuBLASLt's compute type under PyTorch's settings, which Dynamo guards. Raises NoPlan where a setting asks for more than a multiplication."""
    if torch.are_deterministic_algorithms_enabled():
        raise NoPlan("deterministic algorithms are asked for")
    if dtype == torch.float16 and getattr(torch.backends.cuda.matmul, "allow_fp16_accumulation", False):
        raise NoPlan("float16 is to be summed in float16")
    return COMPUTE_32F_FAST_TF32 if dtype == torch.float32 and _allows_tf32() else COMPUTE_32F


def _allows_tf32() -> bool:
    try:
        return allows_tf32()
    except RuntimeError as reason:  # both of PyTorch's interfaces for this setting were used
        raise NoPlan(str(reason).partition("\n")[0]) from reason


def may_round_parts(dtype: torch.dtype) -> bool:
    """Whether parts of a sum over K may be rounded to the result's dtype before they are added."""
    settings = torch.backends.cuda.matmul
    name = {torch.float16: "fp16", torch.bfloat16: "bf16"}.get(dtype)
    return name is not None and bool(getattr(settings, f"allow_{name}_reduced_precision_reduction"))


# ---- the library


@cache
def library() -> ctypes.CDLL:
    """The cuBLASLt that PyTorch has loaded. Raises NoPlan where it has none."""
    return loaded("cuBLASLt", NAMES)


_handles: Handles[int] = Handles(lambda: made("Create"))


def handle(device: int) -> int:
    """cuBLASLt's handle for GPU number `device`; any number of threads may use it."""
    return _handles.of(device)


def made(name: str, *args: int) -> Any:
    made = ctypes.c_void_p()
    status = getattr(library(), f"cublasLt{name}")(ctypes.byref(made), *args)
    if status:
        raise NoPlan(f"cublasLt{name} failed with status {status}")
    return made if name == "MatmulPreferenceCreate" else made.value


def set_attribute(kind: str, what: Any, attribute: int, value: Any) -> None:
    pointer = what if isinstance(what, ctypes.c_void_p) else ctypes.c_void_p(what)
    size = ctypes.c_size_t(ctypes.sizeof(value))
    status = getattr(library(), f"cublasLt{kind}SetAttribute")(pointer, attribute, ctypes.byref(value), size)
    if status:
        raise NoPlan(f"cublasLt{kind}SetAttribute({attribute}) failed with status {status}")


def layout(kind: int, matrix: CublasMatrix, batch: int) -> int:
    made = ctypes.c_void_p()
    status = library().cublasLtMatrixLayoutCreate(
        ctypes.byref(made),
        kind,
        ctypes.c_uint64(matrix.rows),
        ctypes.c_uint64(matrix.columns),
        ctypes.c_int64(matrix.lead),
    )
    if status:
        raise NoPlan(f"cublasLtMatrixLayoutCreate failed with status {status}")
    if batch != 1:
        set_attribute("MatrixLayout", made.value, LAYOUT_BATCH_COUNT, ctypes.c_int32(batch))
        set_attribute("MatrixLayout", made.value, LAYOUT_BATCH_STRIDE, ctypes.c_int64(matrix.step))
    return made.value or 0


def float_bits(value: float) -> int:
    return ctypes.c_int32.from_buffer(ctypes.c_float(value)).value


def codes(device: int) -> tuple[int, int, int]:
    """dtype, device type and index of a workspace, as the shim takes them."""
    return shim.dtype_code(torch.uint8), *shim.device_codes(f"cuda:{device}")

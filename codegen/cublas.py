"""Matrix products by cuBLASLt, called straight from host programs: plans, which are made once for sizes and an alignment.

An ATen call costs some 13 us of host time a product: tensors for its operands, dispatch, descriptors, a search for the
algorithm. All of it depends on sizes, strides and alignment alone; a plan holds what comes out, and native code
(cublas_runtime.py) calls `cublasLtMatmul` with it. Matrices are as cuBLAS sees them (cublas_problem.py). Source: cublasLt.h of CUDA 12,
and ATen/cuda/CUDABlas.cpp for what PyTorch asks of it.
"""

import contextlib
import ctypes
import logging
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from mlirc.codegen import shim
from mlirc.codegen.abi.tf32 import allows_tf32
from mlirc.codegen.cublas_problem import Matrix, Problem, Product, problem_of
from mlirc.codegen.gpu_library import Handles, NoPlan, loaded
from mlirc.dialects.tensor_info import TensorInfo

log = logging.getLogger("mlirc")

CUDA_TYPES = {torch.float32: 0, torch.float16: 2, torch.bfloat16: 14}  # cudaDataType
COMPUTE_32F, COMPUTE_32F_FAST_TF32 = 68, 77  # cublasComputeType_t
DESC_TRANSA, DESC_TRANSB, DESC_EPILOGUE, DESC_BIAS_POINTER = 3, 4, 7, 8  # cublasLtMatmulDescAttributes_t
LAYOUT_BATCH_COUNT, LAYOUT_BATCH_STRIDE = 5, 6  # cublasLtMatrixLayoutAttribute_t
PREF_WORKSPACE, PREF_REDUCTIONS, PREF_ALIGNMENTS = 1, 3, (5, 6, 7, 8)  # cublasLtMatmulPreferenceAttributes_t
REDUCTION_COMPUTE_TYPE = 2  # cublasLtReductionScheme_t: parts are summed in float32
EPILOGUE_BIAS, EPILOGUE_GELU_BIAS = 4, 36  # cublasLtEpilogue_t
WORKSPACE = 32 << 20  # bytes that an algorithm may ask for, as PyTorch allows on Hopper
SMALL = 256  # rows and columns of a product that is planned and never computed, and what its addresses are multiples of
NAMES = ("libcublasLt.so.13", "libcublasLt.so.12")


# ---- plans


class Plan(ctypes.Structure):
    """What `multiply` of cublas_runtime.py takes, in words of 8 bytes; `multiply` is null where ATen is to do it.

    key   follows in memory: the alignment in bytes, and the values of the product's symbols
    """

    _fields_ = [(name, ctypes.c_int64) for name in (
        "next", "multiply", "create", "set", "destroy", "handle", "desc", "a", "b", "c", "d", "workspace", "beta",
        "bias", "swapped", "transpose_a", "transpose_b", "compute", "epilogue",
    )] + [("algorithm", ctypes.c_int64 * 8)]  # fmt: skip


KEY = ctypes.sizeof(Plan) // 8  # the word at which the key begins


class Plans:
    """Makes the plans of a program's products when native code meets a size or alignment for the first time.

    words     one for each product, 0 at first: the address of its newest plan, which has that of the next
    refused   reasons why products were left to ATen
    """

    def __init__(self, products: Sequence[Product], refused: list[str] | None = None):
        self.products = list(products)
        self.words = (ctypes.c_int64 * max(len(self.products), 1))()
        self.refused = [] if refused is None else refused
        self._memory: list[Any] = []  # of plans; a call in another thread may be reading them
        self._lock = threading.Lock()

    @property
    def address(self) -> int:
        return ctypes.addressof(self.words)

    def forget(self) -> None:
        """PyTorch's settings are others: plans are made anew. Their memory stays, as other threads may be reading it."""
        with self._lock:
            self.words[:] = [0] * len(self.words)

    def __call__(self, number: int, alignment: int, *values: int) -> tuple[()]:
        """Makes the plan of product `number` for operands at multiples of `alignment` bytes. Never raises NoPlan."""
        words = (ctypes.c_int64 * (KEY + 1 + len(values)))()
        words[KEY:] = [alignment, *values]
        plan = Plan.from_buffer(words)
        try:
            fill(plan, self.products[number], alignment, values)
        except NoPlan as reason:
            plan.multiply = 0
            self.refused.append(str(reason))
            log.info("mlirc: a product is left to ATen: %s", reason)
        with self._lock:
            self._memory.append(words)
            plan.next = self.words[number]
            self.words[number] = ctypes.addressof(words)
        return ()


def fill(plan: Plan, product: Product, alignment: int, values: Sequence[int]) -> None:
    """Makes descriptors and chooses an algorithm. Raises NoPlan."""
    lt, problem, dtype = library(), problem_of(product, values), product.operands[-1].dtype
    kind = CUDA_TYPES[dtype]
    plan.compute = compute_type(dtype)
    for name, address in (
        ("multiply", lt.cublasLtMatmul),
        ("create", lt.cublasLtMatmulDescCreate),
        ("set", lt.cublasLtMatmulDescSetAttribute),
        ("destroy", lt.cublasLtMatmulDescDestroy),
    ):
        setattr(plan, name, ctypes.cast(address, ctypes.c_void_p).value)
    plan.handle = handle(product.device)
    plan.desc = _made("MatmulDescCreate", plan.compute, CUDA_TYPES[torch.float32])
    plan.transpose_a, plan.transpose_b = problem.transpose_a, problem.transpose_b
    plan.bias, plan.swapped = problem.bias, problem.swapped
    plan.beta = _float_bits(1.0 if len(product.operands) == 4 and not problem.bias else 0.0)
    _set("MatmulDesc", plan.desc, DESC_TRANSA, ctypes.c_int32(problem.transpose_a))
    _set("MatmulDesc", plan.desc, DESC_TRANSB, ctypes.c_int32(problem.transpose_b))
    if problem.bias:  # an address of that alignment: nothing is read there
        plan.epilogue = EPILOGUE_GELU_BIAS if product.gelu else EPILOGUE_BIAS
        _set("MatmulDesc", plan.desc, DESC_EPILOGUE, ctypes.c_int32(plan.epilogue))
        _set("MatmulDesc", plan.desc, DESC_BIAS_POINTER, ctypes.c_int64(alignment))
    layouts = [_layout(kind, matrix, problem.batch) for matrix in (problem.a, problem.b, problem.c, problem.d)]
    plan.a, plan.b, plan.c, plan.d = layouts
    best = _best(plan, product, problem, alignment)
    plan.algorithm[:] = best.algorithm
    plan.workspace = best.workspace


class Algorithm(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [
        ("algorithm", ctypes.c_int64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    ]


_chosen: dict[tuple, Any] = {}  # Algorithms, by all that they depend on


def _best(plan: Plan, product: Product, problem: Problem, alignment: int) -> Algorithm:
    dtype = product.operands[-1].dtype
    key = (problem, product.gelu, plan.beta, plan.compute, alignment, dtype, product.device, may_round_parts(dtype))
    if key not in _chosen:  # layers are alike, and asking takes the library a fraction of a millisecond
        from mlirc.codegen.cublas_choice import chosen

        _chosen[key] = chosen(plan, problem, alignment, dtype, product.device)
    if not product.tuned:
        return _chosen[key]
    from mlirc.codegen.cublas_tuning import MOST, fastest

    return fastest(plan, product, problem, alignment, [_chosen[key], *algorithms(plan, alignment, dtype, MOST)])


def algorithms(
    plan: Plan, alignment: int, dtype: torch.dtype, most: int = 1, workspace: int = WORKSPACE
) -> list[Algorithm]:
    """What cuBLAS would take, at most `most`, the best by its own estimate first. Raises NoPlan if there is nothing."""
    preference = _made("MatmulPreferenceCreate")
    _set("MatmulPreference", preference, PREF_WORKSPACE, ctypes.c_uint64(workspace))
    if not may_round_parts(dtype):
        _set("MatmulPreference", preference, PREF_REDUCTIONS, ctypes.c_uint32(REDUCTION_COMPUTE_TYPE))
    for which in PREF_ALIGNMENTS:
        _set("MatmulPreference", preference, which, ctypes.c_uint32(alignment))
    found, count = (Algorithm * most)(), ctypes.c_int()
    pointers = [ctypes.c_void_p(x) for x in (plan.handle, plan.desc, plan.a, plan.b, plan.c, plan.d)]
    status = library().cublasLtMatmulAlgoGetHeuristic(*pointers, preference, most, found, ctypes.byref(count))
    library().cublasLtMatmulPreferenceDestroy(preference)
    good = [x for x in found[: count.value] if x.state == 0]
    if status or not good:
        raise NoPlan(f"cuBLASLt has no algorithm for it (status {status})")
    return good


def compute_type(dtype: torch.dtype) -> int:
    """As PyTorch's settings ask, which Dynamo guards. Raises NoPlan for those under which ATen does more than multiply."""
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


_handles: Handles[int] = Handles(lambda: _made("Create"))


def handle(device: int) -> int:
    """cuBLASLt's handle for GPU number `device`; any number of threads may use it."""
    return _handles.of(device)


def load(device: int, dtype: torch.dtype) -> None:
    """Lets the library load what it needs for its first product, for which it takes 0.1 s."""
    matrix = TensorInfo(dtype, (SMALL, SMALL), device=f"cuda:{device}")
    with contextlib.suppress(NoPlan):
        fill(Plan(), Product((matrix,) * 3, ()), SMALL, ())


def _made(name: str, *args: int) -> Any:
    made = ctypes.c_void_p()
    status = getattr(library(), f"cublasLt{name}")(ctypes.byref(made), *args)
    if status:
        raise NoPlan(f"cublasLt{name} failed with status {status}")
    return made if name == "MatmulPreferenceCreate" else made.value


def _set(kind: str, what: Any, attribute: int, value: Any) -> None:
    pointer = what if isinstance(what, ctypes.c_void_p) else ctypes.c_void_p(what)
    size = ctypes.c_size_t(ctypes.sizeof(value))
    status = getattr(library(), f"cublasLt{kind}SetAttribute")(pointer, attribute, ctypes.byref(value), size)
    if status:
        raise NoPlan(f"cublasLt{kind}SetAttribute({attribute}) failed with status {status}")


def _layout(kind: int, matrix: Matrix, batch: int) -> int:
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
        _set("MatrixLayout", made.value, LAYOUT_BATCH_COUNT, ctypes.c_int32(batch))
        _set("MatrixLayout", made.value, LAYOUT_BATCH_STRIDE, ctypes.c_int64(matrix.step))
    return made.value or 0


def _float_bits(value: float) -> int:
    return ctypes.c_int32.from_buffer(ctypes.c_float(value)).value


def codes(device: int) -> tuple[int, int, int]:
    """dtype, device type and index of a workspace, as the shim takes them."""
    return shim.dtype_code(torch.uint8), *shim.device_codes(f"cuda:{device}")

"""The cuBLASLt plans of a program's matmuls, made when native code meets new sizes or alignments."""

import contextlib
import ctypes
import logging
from collections.abc import Sequence
from typing import Any

import torch

from mlirc.codegen.frame.gpu_calls import CublasMatmul
from mlirc.codegen.libraries import cublas_choice, cublas_tuning
from mlirc.codegen.libraries.cublas import (
    CUDA_TYPES,
    DESC_BIAS_POINTER,
    DESC_EPILOGUE,
    DESC_TRANSA,
    DESC_TRANSB,
    EPILOGUE_BIAS,
    EPILOGUE_GELU_BIAS,
    KEY,
    SMALL,
    Algorithm,
    CublasPlan,
    algorithms,
    compute_type,
    float_bits,
    handle,
    layout,
    library,
    made,
    may_round_parts,
    set_attribute,
)
from mlirc.codegen.libraries.cublas_problem import Problem, problem_of
from mlirc.codegen.libraries.gpu_library import NoPlan
from mlirc.dialects.core.fork_locks import fork_lock
from mlirc.dialects.core.tensor_info import TensorInfo

log = logging.getLogger("mlirc")


class CublasPlans:
    """The plans of a program's matmuls.

    slots     for each matmul the address of its newest plan, 0 at first; a plan holds the address of the next older one
    refused   reasons why matmuls were left to ATen
    """

    def __init__(self, matmuls: Sequence[CublasMatmul], refused: list[str] | None = None):
        self.matmuls = list(matmuls)
        self.slots = (ctypes.c_int64 * max(len(self.matmuls), 1))()
        self.refused = [] if refused is None else refused
        self._memory: list[Any] = []  # of plans; a call in another thread may be reading them
        self._lock = fork_lock()

    @property
    def address(self) -> int:
        return ctypes.addressof(self.slots)

    def forget(self) -> None:
        """Drops all plans, after PyTorch's settings have changed. Their memory stays, because other threads may be reading it."""
        with self._lock:
            self.slots[:] = [0] * len(self.slots)

    def __call__(self, number: int, alignment: int, *values: int) -> tuple[()]:
        """Makes the plan of matmul `number` for operands at multiples of `alignment` bytes. Never raises NoPlan."""
        slots = (ctypes.c_int64 * (KEY + 1 + len(values)))()
        slots[KEY:] = [alignment, *values]
        plan = CublasPlan.from_buffer(slots)
        try:
            fill(plan, self.matmuls[number], alignment, values)
        except NoPlan as reason:
            plan.matmul = 0
            self.refused.append(str(reason))
            log.info("mlirc: a matmul is left to ATen: %s", reason)
        with self._lock:
            self._memory.append(slots)
            plan.next = self.slots[number]
            self.slots[number] = ctypes.addressof(slots)
        return ()


def fill(plan: CublasPlan, matmul: CublasMatmul, alignment: int, values: Sequence[int]) -> None:
    """Writes descriptors and the chosen algorithm into `plan`. Raises NoPlan."""
    lt, problem, dtype = library(), problem_of(matmul, values), matmul.operands[-1].dtype
    kind = CUDA_TYPES[dtype]
    plan.compute = compute_type(dtype)
    for name, address in (
        ("matmul", lt.cublasLtMatmul),
        ("desc_create", lt.cublasLtMatmulDescCreate),
        ("desc_set", lt.cublasLtMatmulDescSetAttribute),
        ("desc_destroy", lt.cublasLtMatmulDescDestroy),
    ):
        setattr(plan, name, ctypes.cast(address, ctypes.c_void_p).value)
    plan.handle = handle(matmul.device)
    plan.desc = made("MatmulDescCreate", plan.compute, CUDA_TYPES[torch.float32])
    plan.transpose_a, plan.transpose_b = problem.transpose_a, problem.transpose_b
    plan.has_bias, plan.swapped = problem.bias, problem.swapped
    plan.beta = float_bits(1.0 if len(matmul.operands) == 4 and not problem.bias else 0.0)
    set_attribute("MatmulDesc", plan.desc, DESC_TRANSA, ctypes.c_int32(problem.transpose_a))
    set_attribute("MatmulDesc", plan.desc, DESC_TRANSB, ctypes.c_int32(problem.transpose_b))
    if problem.bias:  # an address of that alignment: nothing is read there
        plan.epilogue = EPILOGUE_GELU_BIAS if matmul.gelu else EPILOGUE_BIAS
        set_attribute("MatmulDesc", plan.desc, DESC_EPILOGUE, ctypes.c_int32(plan.epilogue))
        set_attribute("MatmulDesc", plan.desc, DESC_BIAS_POINTER, ctypes.c_int64(alignment))
    layouts = [layout(kind, matrix, problem.batch) for matrix in (problem.a, problem.b, problem.c, problem.d)]
    plan.a, plan.b, plan.c, plan.d = layouts
    best = _best(plan, matmul, problem, alignment)
    plan.algorithm[:] = best.algorithm
    plan.workspace = best.workspace


_chosen: dict[tuple, Any] = {}  # Algorithms, by all that they depend on


def _best(plan: CublasPlan, matmul: CublasMatmul, problem: Problem, alignment: int) -> Algorithm:
    dtype = matmul.operands[-1].dtype
    key = (problem, matmul.gelu, plan.beta, plan.compute, alignment, dtype, matmul.device, may_round_parts(dtype))
    if key not in _chosen:  # layers are alike, and asking takes the library a fraction of a millisecond
        _chosen[key] = cublas_choice.chosen(plan, problem, alignment, dtype, matmul.device)
    if not matmul.tuned:
        return _chosen[key]
    return cublas_tuning.fastest(
        plan, matmul, problem, alignment, [_chosen[key], *algorithms(plan, alignment, dtype, cublas_tuning.MOST)]
    )


def load(device: int, dtype: torch.dtype) -> None:
    """Plans one small matmul, so that the library loads its kernels, which takes 0.1 s."""
    matrix = TensorInfo(dtype, (SMALL, SMALL), device=f"cuda:{device}")
    with contextlib.suppress(NoPlan):
        fill(CublasPlan(), CublasMatmul((matrix,) * 3, ()), SMALL, ())

"""Modes "max-autotune": measures cuBLASLt's algorithms for a matmul when its plan is made.

The first algorithm is the one that is taken without measuring (cublas_choice.py); the library proposes the others. Each multiplies matrices of
that size and alignment, with a cold cache. The choice is kept on disk, so that a second process measures nothing and
computes the same bits.
"""

import ctypes
import logging
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch

from mlirc.codegen.cache import environment
from mlirc.codegen.cache import folder as cache_folder
from mlirc.codegen.cache.entry import CacheEntry
from mlirc.codegen.frame.gpu_calls import CublasMatmul
from mlirc.codegen.libraries import cublas
from mlirc.codegen.libraries.cublas import Algorithm, CublasPlan
from mlirc.codegen.libraries.cublas_problem import CublasMatrix, Problem

log = logging.getLogger("mlirc")

KIND = "matmul"  # of entries of the cache folder
MOST = 8  # algorithms that are tried
GAIN, NOISE = (
    0.97,
    0.3,
)  # an algorithm is taken if it is faster than the first one by this part and by these microseconds; less may be noise
CACHE = 128 << 20  # bytes that are read before each run: more than any GPU's cache holds
FEW, MANY = 5, 25  # runs of each; and of the first one and the fastest, in turns
ALIGNED = 256  # bytes; PyTorch's memory begins at multiples of more

_known: dict[
    str, int
] = {}  # the key on disk, or what it is made of where nothing is kept -> the position of the fastest


def fastest(plan: Any, matmul: Any, problem: Any, alignment: int, found: Sequence[Any]) -> Any:
    """The Algorithm to take of a Plan for a Matmul: the first one where another is hardly faster, and while a CUDA graph is
    recorded, as nothing can be measured then."""
    device = torch.device("cuda", matmul.device)
    if len(found) == 1 or torch.cuda.is_current_stream_capturing():
        return found[0]
    algorithms = [list(x.algorithm) for x in found]
    name = torch.cuda.get_device_name(matmul.device)
    parts = [repr(problem), str(matmul.operands[-1].dtype), alignment, name, algorithms]
    key = environment.key_or_none(KIND, *parts)
    folder = cache_folder.folder() if key else None
    known = key or repr(parts)
    if known not in _known and folder and key and (entry := folder.get(KIND, key)):
        _known[known] = entry.data["place"]
    if known not in _known:
        with torch.no_grad(), torch.inference_mode(False), torch.cuda.device(device):
            _known[known] = measured(plan, matmul, problem, alignment, found)
        if folder and key:
            folder.put(KIND, [key], CacheEntry({"place": _known[known]}))
    return found[_known[known]]


def measured(
    plan: CublasPlan, matmul: CublasMatmul, problem: Problem, alignment: int, found: Sequence[Algorithm]
) -> int:
    """The position of the fastest."""
    time = _clock(plan, matmul, problem, alignment)
    times = [statistics.median(time(x) for _ in range(FEW)) for x in found]
    place = min(range(len(times)), key=times.__getitem__)
    if place:
        pairs = [(time(found[0]), time(found[place])) for _ in range(MANY)]
        first, best = map(statistics.median, zip(*pairs, strict=True))
        place = place if best < min(GAIN * first, first - NOISE) else 0
    log.info("mlirc: matmul %s: algorithm %d of %s us", problem, place, [f"{t:.1f}" for t in times])
    return place


def _clock(plan: CublasPlan, matmul: CublasMatmul, problem: Problem, alignment: int) -> Callable[[Algorithm], float]:
    """A function that times a run of an algorithm: microseconds, infinite if the library proposes the algorithm and then refuses it."""
    device, dtype = torch.device("cuda", matmul.device), matmul.operands[-1].dtype
    generator = torch.Generator(device).manual_seed(0)  # the user's stays as it is
    shift = min(alignment, ALIGNED) % ALIGNED // dtype.itemsize  # where an address that is a multiple of no more begins

    def memory(matrix: CublasMatrix) -> torch.Tensor:
        size = (matrix.columns - 1) * matrix.lead + matrix.rows + (problem.batch - 1) * matrix.step
        return torch.empty(size + shift, dtype=dtype, device=device).normal_(generator=generator)[shift:]

    tensors = [memory(x) for x in (problem.a, problem.b, problem.c, problem.d)]
    bias = memory(CublasMatrix(problem.d.rows, 1, problem.d.rows, 0))
    if problem.bias:
        cublas.set_attribute("MatmulDesc", plan.desc, cublas.DESC_BIAS_POINTER, ctypes.c_int64(bias.data_ptr()))
    flush = torch.zeros(CACHE // 4, device=device)
    workspace = torch.empty(max(cublas.WORKSPACE, 1), dtype=torch.uint8, device=device)
    stream = ctypes.c_void_p(torch.cuda.current_stream(device).cuda_stream)
    one, beta = ctypes.c_float(1.0), ctypes.c_int32(plan.beta)
    a, b, c, d = (ctypes.c_void_p(t.data_ptr()) for t in tensors)

    def multiply(algorithm: Algorithm) -> int:
        return cublas.library().cublasLtMatmul(
            ctypes.c_void_p(plan.handle), ctypes.c_void_p(plan.desc), ctypes.byref(one), a, ctypes.c_void_p(plan.a),
            b, ctypes.c_void_p(plan.b), ctypes.byref(beta), c, ctypes.c_void_p(plan.c), d, ctypes.c_void_p(plan.d),
            ctypes.byref(algorithm.algorithm), ctypes.c_void_p(workspace.data_ptr()),
            ctypes.c_size_t(algorithm.workspace), stream,
        )  # fmt: skip

    def time(algorithm: Algorithm, held: Any = (tensors, bias)) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.sum()  # read, not written: what is written would have to go to memory during the run
        start.record()
        status = multiply(algorithm)
        end.record()
        end.synchronize()
        return float("inf") if status else 1e3 * start.elapsed_time(end)

    return time

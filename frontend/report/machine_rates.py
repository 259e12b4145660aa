"""What this machine reaches: bytes a second of copies, by their size, and operations a second of large matmuls.

Measured once a process for each number of threads that PyTorch has.
"""

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

COPIES = (1 << 20, 1 << 23, 1 << 26, 1 << 27)
"""Bytes that are moved: within a core's cache, within the processor's, and out of it. Smaller copies would measure the call."""
ON_GPU = (1 << 25, 1 << 27)
"""Within a GPU's cache, and out of it."""
TOGETHER = 20  # calls on a GPU that are timed as one, so that no start of a kernel is
ALONE = 1 << 15
"""Elements that PyTorch copies with one thread."""
REPEATS = 12
LEAST = 0.03  # seconds


def copy_rate(bytes_: int, device: str = "cpu") -> float:
    """Bytes a second, read and written, of a copy that moves about so many."""
    size = min(
        COPIES if device == "cpu" else ON_GPU, key=lambda known: abs(known.bit_length() - max(bytes_, 1).bit_length())
    )
    return _copy_rate(size, device, torch.get_num_threads())


@cache
def _copy_rate(size: int, device: str, threads: int) -> float:
    source = torch.ones(size // 8, device=device)
    target = torch.empty_like(source)
    best = shortest(lambda: target.copy_(source), device)
    if device == "cpu":  # a thread that waits for its processor holds up the others, but not one alone
        pieces = list(zip(target.split(ALONE), source.split(ALONE), strict=True))
        best = min(best, shortest(lambda: [a.copy_(b) for a, b in pieces], device))
    return size / best


def matmul_rate(dtype: torch.dtype, size: int = 1024, repeats: int = REPEATS, device: str = "cpu") -> float:
    """Operations a second (1e9) of torch's best large matrix product: the arithmetic that the machine allows.

    One of half the size, an eighth of the operations, is tried too: it may end before another process gets its processor.
    """
    return _matmul_rate(dtype, size, repeats, device, torch.get_num_threads())


@cache
def _matmul_rate(dtype: torch.dtype, size: int, repeats: int, device: str, threads: int) -> float:
    return max(_rate_of_size(dtype, n, repeats, device) for n in (size // 2, size))


def _rate_of_size(dtype: torch.dtype, size: int, repeats: int, device: str) -> float:
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    return 2e-9 * size**3 / shortest(lambda: torch.mm(a, b), device, repeats)


def shortest(work: Callable[[], Any], device: str, repeats: int = REPEATS) -> float:
    """Seconds of the fastest of some calls: of more than `repeats` where they are short, as another process may disturb each."""
    best, number, first = float("inf"), 0, time.perf_counter()
    while number < repeats or time.perf_counter() - first < LEAST:
        number += 1
        best = min(best, seconds_of(work) if device == "cpu" else seconds_on_gpu(work))
    return best


def seconds_of(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def seconds_on_gpu(work: Callable[[], Any]) -> float:
    """Seconds a call, of TOGETHER calls one behind the other, by the GPU's clock."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(TOGETHER):
        work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / (1e3 * TOGETHER)

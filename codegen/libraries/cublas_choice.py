"""Chooses cuBLASLt's algorithm for a large matmul of half types on a Hopper GPU, by a model of its time.

The library proposes several algorithms, the best by its own estimate first. That one is often cooperative: two groups of warps share a
tile, and neither multiplies while they write it, which costs 10 to 17% at K = 768. In a ping-pong algorithm each group has tiles of
its own, and writes while the other multiplies.

    time ~ elements of a tile * (tiles of a multiprocessor * K * MULTIPLY + writes that nothing hides * WRITE)

An algorithm that needs no counter of tiles in memory also saves the launch that sets it to 0. The model is fitted to times of 16 matmuls on
an H200, with K from 768 to 5632. On other GPUs, and where a matrix is added, the library's first algorithm is taken.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import torch

from mlirc.codegen.libraries.cublas import Algorithm, algorithms, library
from mlirc.codegen.libraries.cublas_problem import Problem
from mlirc.codegen.libraries.gpu_library import NoPlan

MOST = 12  # algorithms that the library is asked for
COUNTER = 256  # bytes: what needs no more memory sums up no parts
FAMILY = 66  # of algorithms, on Hopper; the numbers below are its
ALGORITHM, TILE, CUSTOM = 0, 1, 5  # cublasLtMatmulAlgoConfigAttributes_t
# cublasLtMatmulTile_t: rows of d by columns, as the library lays them out
TILES = {
    20: (128, 128),
    23: (128, 256),
    24: (256, 128),
    31: (192, 128),
    32: (128, 192),
    197: (168, 128),
    201: (176, 128),
    209: (192, 192),
    227: (240, 128),
    248: (320, 128),
    495: (256, 96),
}
PING_PONG = (1, 2)  # the values of CUSTOM of ping-pong algorithms
MULTIPLY, WRITE = 0.365, 45.0  # picoseconds: an element for each of K, and its way to memory; only their ratio counts
GAIN = 0.97  # of the first algorithm's time: another one is taken if it is below that


def chosen(plan: Any, problem: Any, alignment: int, dtype: torch.dtype, device: int) -> Any:
    """The algorithm for a plan of this problem. Raises NoPlan if the library has none."""
    found = algorithms(plan, alignment, dtype, MOST)
    first = found[0]
    properties = torch.cuda.get_device_properties(device)
    if properties.major != 9 or dtype.itemsize != 2 or first.workspace > COUNTER:
        return first
    try:
        still = algorithms(plan, alignment, dtype, MOST, workspace=0)
    except NoPlan:
        still = []
    best = first if plan.beta else fastest(problem, [*still, *found], first, properties.multi_processor_count)
    return next((x for x in still if config(x) == config(best)), best)


def fastest(problem: Problem, found: Sequence[Algorithm], first: Algorithm, processors: int) -> Algorithm:
    """The ping-pong algorithm that is fastest by the model; `first` if it gains little, or has a tile that the model does not know: of
    few or odd tiles the library's estimate is better."""

    def cost(algorithm: Algorithm) -> float:
        tile = TILES.get(config(algorithm)[1])
        return time(problem, tile, is_ping_pong(algorithm), processors) if tile else float("inf")

    best = min(filter(is_ping_pong, found), key=cost, default=first)
    known = config(first)[1] in TILES and not is_ping_pong(first)
    return best if known and cost(best) < GAIN * cost(first) else first


def time(problem: Problem, tile: tuple[int, int], ping_pong: bool, processors: int) -> float:
    rows, columns = tile
    tiles = -(-problem.d.rows // rows) * -(-problem.d.columns // columns) * problem.batch
    waves = -(-tiles // processors)
    if ping_pong and waves < 2:
        return float("inf")  # a multiprocessor has one tile, and the second group of warps none
    inner = problem.a.rows if problem.transpose_a else problem.a.columns
    return rows * columns * (waves * inner * MULTIPLY + (1 if ping_pong else waves) * WRITE)


def is_ping_pong(algorithm: Algorithm) -> bool:
    family, _, custom = config(algorithm)
    return family == FAMILY and custom in PING_PONG


def config(algorithm: Algorithm) -> tuple[int, int, int]:
    """An algorithm's family, tile and custom option; -1 for one that the library does not tell."""
    return _attribute(algorithm, ALGORITHM), _attribute(algorithm, TILE), _attribute(algorithm, CUSTOM)


def _attribute(algorithm: Algorithm, which: int) -> int:
    value, written = ctypes.c_uint32(), ctypes.c_size_t()
    pointer, size = ctypes.byref(algorithm.algorithm), ctypes.c_size_t(ctypes.sizeof(value))
    ask = library().cublasLtMatmulAlgoConfigGetAttribute
    return -1 if ask(pointer, which, ctypes.byref(value), size, ctypes.byref(written)) else value.value

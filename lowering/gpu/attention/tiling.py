"""Chooses the tiles of a flex-attention kernel, by the dtype and the sizes of a head."""

from dataclasses import replace

import torch

from mlirc.dialects.core.symbols import Int
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.gpu.triton.builder import HALF
from mlirc.lowering.gpu.triton.schedule import next_power
from mlirc.lowering.kernel.flex_attention import FORWARD, KEYS, FlexProblem
from mlirc.lowering.kernel.nodes import UnsupportedKernelOp
from mlirc.lowering.target import GpuTarget

LEAST = 16  # the smallest side of a matmul on tensor cores
WIDEST = 256  # the largest size of a head, in elements
SUMS = 4096  # bytes of shared memory for all but the operands, such as sums of rows


@dataclass(frozen=True)
class FlexTiling:
    """Tile sizes of a kernel of flex_attention, and how Triton compiles it.

    queries, keys   sides of a tile of scores [queries, keys]: powers of 2, at least 16
    num_stages      depth of Triton's software pipeline: tiles of the loop's operands in shared memory at once
    """

    queries: int
    keys: int
    num_warps: int
    num_stages: int


# the largest head that an entry is for -> tilings of: forward, gradient of queries, gradients of keys and values
HALVES = {
    64: (FlexTiling(64, 64, 4, 3), FlexTiling(64, 64, 4, 3), FlexTiling(64, 64, 4, 3)),
    128: (FlexTiling(64, 64, 4, 3), FlexTiling(64, 64, 4, 2), FlexTiling(64, 64, 4, 2)),
    256: (FlexTiling(64, 32, 4, 3), FlexTiling(64, 32, 4, 2), FlexTiling(32, 64, 8, 2)),
}
# float32 is multiplied without tensor cores
FLOATS = {
    64: (FlexTiling(64, 32, 4, 2), FlexTiling(32, 32, 4, 2), FlexTiling(32, 32, 4, 2)),
    128: (FlexTiling(32, 32, 4, 2), FlexTiling(32, 32, 4, 1), FlexTiling(32, 32, 4, 1)),
    256: (FlexTiling(16, 32, 4, 1), FlexTiling(16, 16, 4, 1), FlexTiling(16, 16, 4, 1)),
}


SHARED_MEMORY = {
    80: 163,
    86: 99,
    87: 163,
    89: 99,
    120: 99,
    121: 99,
}  # KiB of shared memory that a program may have, by compute capability: 80 for 8.0
LARGE_SHARED_MEMORY = 227  # KiB, of 9.0, 10.0 and 10.3


def choose_tiling(problem: FlexProblem, gpu: GpuTarget) -> FlexTiling:
    """The tiling for a problem on this GPU: by the tables, smaller where shared memory or a mask's blocks need it.
    Raises UnsupportedKernelOp for a head that does not fit."""
    head = max(width(problem, "q"), width(problem, "v"))
    if head > WIDEST:
        raise UnsupportedKernelOp(f"a head of {head} elements; kernels of attention have up to {WIDEST}")
    table = HALVES if problem.info("q").dtype in HALF else FLOATS
    by_kind = next(table[size] for size in table if head <= size)
    chosen = by_kind[0 if problem.name == FORWARD else 2 if problem.name == KEYS else 1]
    _, _, rows, columns = problem.space
    queries, keys = fit(chosen.queries, problem.rows, rows), fit(chosen.keys, problem.columns, columns)
    tiling = FlexTiling(queries, keys, chosen.num_warps, chosen.num_stages)
    most = 1024 * SHARED_MEMORY.get(gpu.capability, LARGE_SHARED_MEMORY)
    while tiling.num_stages > 1 and shared_memory(problem, tiling) > most:
        tiling = replace(tiling, num_stages=tiling.num_stages - 1)
    while shared_memory(problem, tiling) > most:
        queries, keys = max(tiling.queries // 2, LEAST), max(tiling.keys // 2, LEAST)
        if (queries, keys) == (tiling.queries, tiling.keys):
            raise UnsupportedKernelOp(f"a head of {head} elements, which a program of this GPU has no memory for")
        tiling = replace(tiling, queries=queries, keys=keys)
    return tiling


def shared_memory(problem: FlexProblem, tiling: FlexTiling) -> int:
    """Bytes of shared memory that a program takes: its own tile of rows, and in each stage a tile of those it loops over."""
    q, v = (width(problem, name) for name in ("q", "v"))
    if problem.name == FORWARD:
        elements = tiling.queries * q + tiling.num_stages * tiling.keys * (q + v)
    elif problem.name == KEYS:
        elements = (tiling.keys + tiling.num_stages * tiling.queries) * (q + v)
    else:
        elements = (tiling.queries + tiling.num_stages * tiling.keys) * (q + v)
    return elements * problem.info("q").dtype.itemsize + SUMS


def fit(tile: int, block: int, size: Int) -> int:
    """`tile`, halved until it divides `block` (the side of a block of the mask) and is less than twice `size`, if that is known.
    Raises UnsupportedKernelOp where not even LEAST divides `block`."""
    while tile > LEAST and (block % tile or (isinstance(size, int) and size <= tile // 2)):
        tile //= 2
    if block % tile:
        raise UnsupportedKernelOp(f"a block mask with blocks of {block}, which {LEAST} does not divide")
    return tile


def width(problem: FlexProblem, name: str) -> int:
    """The size of a head of operand `name`, rounded up to a power of 2, at least LEAST. Raises UnsupportedKernelOp for a symbol,
    and for dtypes other than float16, bfloat16 and float32."""
    head = problem.info(name).shape[3]
    if not isinstance(head, int) or problem.info(name).dtype not in (*HALF, torch.float32):
        raise UnsupportedKernelOp(f"attention with heads of {head} elements in {problem.info(name).dtype}")
    return max(next_power(head), LEAST)

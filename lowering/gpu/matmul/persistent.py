"""Persistent matmuls on a Hopper GPU: the copy engine reads both factors by tensor descriptors. For large matrices whose rows are
multiples of 16 bytes.

    rows = tl.make_tensor_descriptor(p0, [8192, 768], [768, 1], [YBLOCK, KBLOCK])
    for tile in tl.range(tl.program_id(0), 768, tl.num_programs(0), flatten=True): ...

There is one program for each multiprocessor, which loops over tiles, so that the loads of a tile overlap with the stores of the tile
before. A tile is stored in halves, which takes half the registers and half the shared memory.
"""

from collections.abc import Collection
from typing import Any

import torch

from mlirc.dialects.core.symbols import free_symbols
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.gpu.matmul.function import GROUP, Tiling, TritonMatmul
from mlirc.lowering.gpu.triton.builder import TritonValue
from mlirc.lowering.gpu.triton.emitter import TritonEmitter
from mlirc.lowering.kernel.axes import Axis
from mlirc.lowering.kernel.nodes import Access, is_dim

ALIGNMENT = 16  # bytes
DESCRIPTOR = 128  # bytes of global memory for a tensor descriptor, in each program
ROWS, COLUMNS, STEPS = 128, 256, 64  # M, N and K of a tile
STAGES = 4, 3  # stages of the software pipeline: the second where the epilogue reads a tensor as large as the tile


@dataclass(frozen=True)
class StridedMatrix:
    """A factor or the result in memory: `strides` of two dimensions in elements, the second one 1, from `offset` on.

    transposed   whether the columns lie with n innermost (k x n), not with k innermost (n x k)
    """

    operand: int
    sizes: tuple[int, int]
    stride: int
    offset: int
    transposed: bool = False


@dataclass(frozen=True)
class Persistent:
    """A matmul of persistent programs. `result` is None where it is written by pointers, in one part."""

    rows: StridedMatrix
    columns: StridedMatrix
    result: StridedMatrix | None
    tiling: Tiling

    @property
    def parts(self) -> int:
        """The number of parts in which a tile of the result is written."""
        return 1 if self.result is None else 2

    @property
    def scratch(self) -> int:
        """Bytes of memory that a program takes for descriptors."""
        return DESCRIPTOR * (2 if self.result is None else 3)


def persistent(matmul: TritonMatmul, aligned: Collection[int], programs: int) -> Persistent | None:
    """How to compute the matmul with `programs` programs, or None where its factors do not lie so, or there are few tiles."""
    sizes = [a.known for a in (*matmul.m, *matmul.n)]
    if len(matmul.totals) != 1 or any(n is None for n in sizes):
        return None
    if -(-size_of(matmul.m) // ROWS) * -(-size_of(matmul.n) // COLUMNS) < programs:
        return None
    rows = _matrix(matmul.rows, matmul.m, (matmul.k,), aligned)
    access = matmul.totals[0][1]
    columns = _matrix(access, matmul.n, (matmul.k,), aligned)
    if columns is None:
        found = _matrix(access, (matmul.k,), matmul.n, aligned)
        columns = StridedMatrix(found.operand, found.sizes, found.stride, found.offset, True) if found else None
    if rows is None or columns is None:
        return None
    outputs = matmul.kernel.outputs
    result = _matrix(outputs[0].access, matmul.m, matmul.n, aligned) if len(outputs) == 1 else None
    down, across = ({a.name for a in axes} for axes in (matmul.m, matmul.n))
    large = any(x.access is not None and x.dims & down and x.dims & across for x in matmul.epilogue)
    stages = STAGES[1] if large or result is None else STAGES[0]
    width = COLUMNS if result is None else COLUMNS // 2
    return Persistent(rows, columns, result, Tiling(ROWS, width, STEPS, 8, stages))


def size_of(axes: tuple[Axis, ...]) -> int:
    """Points of axes whose sizes are known."""
    total = 1
    for axis in axes:
        assert axis.known is not None
        total *= axis.known
    return total


def _matrix(
    access: Access, down: tuple[Axis, ...], across: tuple[Axis, ...], aligned: Collection[int]
) -> StridedMatrix | None:
    """The access as a matrix of 16-byte rows; None where it is none."""
    address, size = access.address, access.dtype.itemsize
    offset = address.rest
    if not isinstance(offset, int) or any(map(is_dim, free_symbols(offset))) or access.mask or access.scalars:
        return None
    steps = [_step(address.strides, axes) for axes in (down, across)]
    if steps[1] != 1 or steps[0] is None or steps[0] * size % ALIGNMENT or offset * size % ALIGNMENT:
        return None
    if access.operand not in aligned or steps[0] < size_of(across):
        return None
    return StridedMatrix(access.operand, (size_of(down), size_of(across)), steps[0], offset)


def _step(strides: dict[str, Any], axes: tuple[Axis, ...]) -> int | None:
    """The stride of several axes, stepped through as one."""
    step = reach = None
    for axis in reversed(axes):
        stride = strides.get(axis.name, 0)
        if not isinstance(stride, int) or (reach is not None and stride != reach):
            return None
        step = stride if step is None else step
        reach = stride * (axis.known or 0)
    return step


# ---- the text


def write_persistent(e: TritonEmitter, matmul: TritonMatmul, strategy: Persistent) -> None:
    """The function's statements."""
    y, x = e.schedule.tiles
    down = -(-size_of(matmul.m) // ROWS)
    across = -(-size_of(matmul.n) // (x.block * strategy.parts))
    _describe(e, "rows", strategy.rows, "[YBLOCK, KBLOCK]")
    load = _describe_columns(e, strategy)
    if strategy.result is not None:
        _describe(e, "result", strategy.result, "[YBLOCK, XBLOCK]")
    add = e.lines.add
    add(f"for tile in tl.range(tl.program_id(0), {down * across}, tl.num_programs(0), flatten=True):")
    e.lines.depth += 1
    add(f"group = tile // {across * GROUP} * {GROUP}")
    add(f"height = tl.minimum({down} - group, {GROUP})")
    add(f"first_y = (group + tile % {across * GROUP} % height) * YBLOCK")
    add(f"first_x = tile % {across * GROUP} // height * ({'XBLOCK' if strategy.parts == 1 else '2 * XBLOCK'})")
    add(f"total = tl.zeros([YBLOCK, {'XBLOCK' if strategy.parts == 1 else '2 * XBLOCK'}], tl.float32)")
    add(f"for k in range(0, {-(-size_of((matmul.k,)) // STEPS)}):")
    add(f"    total = tl.dot(rows.load([first_y, k * KBLOCK]), {load}, total)")
    if strategy.parts == 2:
        add("total0, total1 = tl.split(tl.permute(tl.reshape(total, (YBLOCK, 2, XBLOCK)), (0, 2, 1)))")
    whole = frozenset(t.name for t in e.blocks)
    for part in range(strategy.parts):
        start = "first_x" if part == 0 else f"first_x + {part} * XBLOCK"
        e.env, e.indices.known, e.masks = {}, {}, {}
        e.bind(y, "first_y")
        e.bind(x, start)
        ((total, _),) = matmul.totals
        e.env[total] = TritonValue(f"total{part}" if strategy.parts == 2 else "total", torch.float32, whole)
        for output in matmul.kernel.outputs:
            if strategy.result is None:
                e.store(output)
            else:
                add(f"result.store([first_y, {start}], {e.full(e.value(output.node), whole)})")
    e.lines.depth -= 1


def _describe_columns(e: TritonEmitter, strategy: Persistent) -> str:
    """The columns' descriptor; returns what loads a step of them, k down and columns across."""
    columns = strategy.columns
    wide = "XBLOCK" if strategy.parts == 1 else "2 * XBLOCK"
    _describe(e, "columns", columns, f"[KBLOCK, {wide}]" if columns.transposed else f"[{wide}, KBLOCK]")
    return "columns.load([k * KBLOCK, first_x])" if columns.transposed else "columns.load([first_x, k * KBLOCK]).T"


def _describe(e: TritonEmitter, name: str, matrix: StridedMatrix, box: str) -> None:
    pointer = f"p{matrix.operand}" + (f" + {matrix.offset}" if matrix.offset else "")
    e.lines.add(f"{name} = tl.make_tensor_descriptor({pointer}, {list(matrix.sizes)}, [{matrix.stride}, 1], {box})")

"""Ping-pong matmuls on a Hopper GPU: one warp group's epilogue runs while the other multiplies. Written in Gluon, Triton's lower-level
language.

    gl.warp_specialize([(compute, (0, ...)), (compute, (1, ...)), (fetch, ...)], [4, 1], [240, 24])

There is one program for each multiprocessor, which loops over tiles, as in persistent.py. A program has two groups of four warps, which
take turns with its tiles, and one warp that loads the factors of both groups, in the order of tiles, into STAGES slots of shared
memory. While one group applies the epilogue to its sums, the tensor cores work for the other.

    fetch     waits until a slot is `empty`, starts the copy engine, which signals `ready` when the slot is full
    compute   multiplies a slot, signals `empty`, and writes a finished tile through shared memory of its own

The barriers `turns` say which group may multiply. A barrier has one bit of parity, so a group must
not wait for `ready` before its turn.
"""

import torch

from mlirc.lowering.gpu.matmul.function import GROUP, Tiling, TritonMatmul
from mlirc.lowering.gpu.matmul.persistent import Persistent, size_of
from mlirc.lowering.gpu.triton.builder import TritonValue
from mlirc.lowering.gpu.triton.emitter import TritonEmitter
from mlirc.lowering.gpu.triton.rounded import PTX
from mlirc.lowering.gpu.triton.schedule import TritonTile

IMPORTS = """from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
"""
ROWS, COLUMNS, STEPS = 128, 128, 64  # M, N and K of a tile
TILING = Tiling(ROWS, COLUMNS, STEPS, num_warps=4, num_stages=1)
STAGES = 5  # blocks of k in shared memory, 32 KiB each for both factors, beside 32 KiB of results for each group
DESCRIPTORS = 384  # bytes of global memory for a program's three tensor descriptors

FETCH = """@gluon.jit
def fetch(rows, columns, row_steps, column_steps, empty, ready, KBLOCK: gl.constexpr):
    at = 0
    for tile in range(gl.program_id(0), {tiles}, gl.num_programs(0)):
        first_y, first_x = place(tile)
        for k in range({steps}):
            slot = at % {stages}
            mbarrier.wait(empty.index(slot), at // {stages} % 2 ^ 1)
            bar = ready.index(slot)
            mbarrier.expect(bar, rows.block_type.nbytes + columns.block_type.nbytes)
            tma.async_copy_global_to_shared(rows, [first_y, k * KBLOCK], bar, row_steps.index(slot))
            tma.async_copy_global_to_shared(columns, {column_place}, bar, column_steps.index(slot))
            at += 1
"""
PLACE = """@gluon.jit
def place(tile):
    group = tile // {sweep} * {group}
    height = gl.minimum({down} - group, {group})
    return (group + tile % {sweep} % height) * {rows}, tile % {sweep} // height * {columns}
"""
COMPUTE = """@gluon.jit
def compute(
    which, {parameters}, result, row_steps, column_steps, tiles, empty, ready, turns,
    YBLOCK: gl.constexpr, XBLOCK: gl.constexpr, KBLOCK: gl.constexpr, PTX: gl.constexpr,
):
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, XBLOCK, 16])
    mine = tiles.index(which)
    at = which * {steps}
    turn = 0
    for tile in range(gl.program_id(0) + which * gl.num_programs(0), {tiles}, 2 * gl.num_programs(0)):
        total = gl.zeros([YBLOCK, XBLOCK], gl.float32, layout)
        mbarrier.wait(turns.index(which), turn % 2)
        turn += 1
        for k in range({steps}):
            slot = at % {stages}
            mbarrier.wait(ready.index(slot), at // {stages} % 2)
            total = warpgroup_mma(row_steps.index(slot), {columns}, total, is_async=True)
            total = warpgroup_mma_wait(1, deps=(total,))
            mbarrier.arrive(empty.index((at + {stages} - 1) % {stages}), pred=k > 0)
            at += 1
        mbarrier.arrive(turns.index(1 - which))
        total = warpgroup_mma_wait(0, deps=(total,))
        mbarrier.arrive(empty.index((at + {stages} - 1) % {stages}))
        at += {steps}
        first_y, first_x = place(tile)
"""
WRITE = """        tma.store_wait(0)
        mine.store({value})
        fence_async_shared()
        tma.async_copy_shared_to_global(result, [first_y, first_x], mine)
    tma.store_wait(0)
"""


def fits_ping_pong(matmul: TritonMatmul, strategy: Persistent) -> bool:
    """Whether the matmul can be written so: rows of the result lie as those of its factors do, and the epilogue reads
    nothing that is as large."""
    if strategy.tiling.rows != ROWS or strategy.result is None or matmul.kernel.symbols:
        return False
    down, across = ({a.name for a in axes} for axes in (matmul.m, matmul.n))
    return not any(x.access is not None and x.dims & down and x.dims & across for x in matmul.epilogue)


def write_ping_pong(e: TritonEmitter, matmul: TritonMatmul, strategy: Persistent) -> None:
    """The function's statements, and the functions that it calls."""
    down, across = -(-size_of(matmul.m) // ROWS), -(-size_of(matmul.n) // COLUMNS)
    numbers = {"tiles": down * across, "steps": -(-size_of((matmul.k,)) // STEPS), "stages": STAGES}
    given = ", ".join(f"p{k}" for k in range(_operands(matmul)))
    transposed = strategy.columns.transposed
    columns = "column_steps.index(slot)" + ("" if transposed else ".permute([1, 0])")
    place = "[k * KBLOCK, first_x]" if transposed else "[first_x, k * KBLOCK]"
    e.functions["place"] = PLACE.format(sweep=across * GROUP, group=GROUP, down=down, rows=ROWS, columns=COLUMNS)
    e.functions["fetch"] = FETCH.format(column_place=place, **numbers)
    value = _write_epilogue(e, matmul)
    epilogue, e.lines.text = "\n".join(e.lines.text), []
    text = COMPUTE.format(parameters=given, columns=columns, **numbers) + epilogue + "\n" + WRITE.format(value=value)
    e.functions["compute"] = text.replace("tl.full([], ", "tl.cast(")  # in Gluon a number has no layout
    _write_kernel(e, strategy, given)


def _operands(matmul: TritonMatmul) -> int:
    accesses = [matmul.rows, *(a for _, a in matmul.totals), *(o.access for o in matmul.kernel.outputs)]
    accesses += [n.access for n in matmul.epilogue if n.access is not None]
    return max(a.operand for a in accesses) + 1


def _write_epilogue(e: TritonEmitter, matmul: TritonMatmul) -> str:
    """What is done with the sums of a tile; returns the result."""
    y, x = e.schedule.tiles
    whole = frozenset((y.name, x.name))
    e.lines.depth = 2
    _bind(e, y, "first_y + gl.arange(0, YBLOCK, gl.SliceLayout(1, layout))[:, None]")
    _bind(e, x, "first_x + gl.arange(0, XBLOCK, gl.SliceLayout(0, layout))[None, :]")
    ((total, _),) = matmul.totals
    e.env[total] = TritonValue("total", torch.float32, whole)
    value = e.full(e.value(matmul.kernel.outputs[0].node), whole)
    e.lines.depth = 1
    return value


def _bind(e: TritonEmitter, tile: TritonTile, text: str) -> None:
    """The points of a tile dimension, and which of them are inside."""
    e.lines.add(f"{tile.name} = {text if e.indices.narrow else f'({text}).to(tl.int64)'}")
    e.indices.known[tile.name,] = TritonValue(tile.name, e.indices.dtype, frozenset((tile.name,)))
    if not tile.divides:
        e.lines.add(f"{tile.name}_mask = {tile.name} < {e.indices.number(tile.size)}")
        e.masks[tile.name] = f"{tile.name}_mask"


def _write_kernel(e: TritonEmitter, strategy: Persistent, given: str) -> None:
    """Writes the descriptors, the shared memory, and the functions of the warp groups."""
    add = e.lines.add
    assert strategy.result is not None
    for name, m, block, buffers, count in (
        ("rows", strategy.rows, "[YBLOCK, KBLOCK]", "row_steps", STAGES),
        (
            "columns",
            strategy.columns,
            "[KBLOCK, XBLOCK]" if strategy.columns.transposed else "[XBLOCK, KBLOCK]",
            "column_steps",
            STAGES,
        ),
        ("result", strategy.result, "[YBLOCK, XBLOCK]", "tiles", 2),
    ):
        pointer = f"p{m.operand}" + (f" + {m.offset}" if m.offset else "")
        add(
            f"{name}_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for({block}, p{m.operand}.dtype.element_ty)"
        )
        add(f"{name} = tma.make_tensor_descriptor({pointer}, {list(m.sizes)}, [{m.stride}, 1], {block}, {name}_layout)")
        add(f"{buffers} = gl.allocate_shared_memory({name}.dtype, [{count}] + {name}.block_type.shape, {name}.layout)")
    for name, count in (("empty", STAGES), ("ready", STAGES), ("turns", 2)):
        add(f"{name} = gl.allocate_shared_memory(gl.int64, [{count}, 1], mbarrier.MBarrierLayout())")
        add(f"for k in gl.static_range({count}):")
        add(f"    mbarrier.init({name}.index(k), count=1)")
    add("mbarrier.arrive(turns.index(0))")
    shared = f"{given}, result, row_steps, column_steps, tiles, empty, ready, turns, YBLOCK, XBLOCK, KBLOCK, {PTX}"
    add("gl.warp_specialize([")
    for which in range(2):
        add(f"    (compute, ({which}, {shared})),")
    add("    (fetch, (rows, columns, row_steps, column_steps, empty, ready, KBLOCK)),")
    add("], [4, 1], [240, 24])")

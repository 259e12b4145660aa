"""A matmul with scalar work on its results as a Triton kernel, on a GPU's tensor cores.

    parallel = "8192, 3072", inner = "768"
    %a = read(%x) {map = "d0, d2"}                   rows
    %b = read(%w) {map = "d2, d1"}                   columns, of one matrix or of several
    %m = mul(%a, %b);  %s = reduce(%m) {kind = "sum"};  then any outer values, the epilogue

A program (an instance of the Triton kernel) computes a tile of the result in float32: a loop goes along k, and multiplies a tile of
each factor at a time. The epilogue runs on the tile while it is in registers. Programs next to each other work on the same few blocks
of rows, which then stay in the L2 cache.
"""

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.gpu.triton.builder import HALF, TritonValue
from mlirc.lowering.gpu.triton.emitter import TritonEmitter
from mlirc.lowering.gpu.triton.schedule import TritonSchedule, TritonTile, next_power
from mlirc.lowering.kernel.axes import Axis
from mlirc.lowering.kernel.matmul import has_dims, read_matmuls
from mlirc.lowering.kernel.nodes import Access, Kernel, Linear, Node
from mlirc.lowering.kernel.typical_sizes import typical

GROUP = 8  # blocks of rows that neighbouring programs share
STEPS = "KBLOCK"  # the constant that holds Tiling.steps


@dataclass(frozen=True)
class Tiling:
    """The sizes of a program's tiles, and how Triton compiles it.

    rows, columns   size of the tile of the result, which each matmul of the kernel has; powers of 2, at least 16
    steps           size of a factor's tile along k, which is how far one iteration of the loop goes
    num_warps       4 hold 64 or 128 rows, 8 hold 128 or 256
    num_stages      how many tiles of the factors are on their way to shared memory at once
    """

    rows: int
    columns: int
    steps: int
    num_warps: int
    num_stages: int


@dataclass(eq=False)
class TritonMatmul:
    """A kernel that was recognized as a matmul, or as several that share their first factor.

    totals   the sums, each with the access of its second factor (columns)
    rows     the access of the first factor, which all share
    m, n     the axes of rows and of columns, outermost first
    k        the axis that is summed over
    epilogue the outer nodes: what is computed from the sums, and what it is computed with
    """

    kernel: Kernel
    totals: list[tuple[Node, Access]]
    rows: Access
    m: tuple[Axis, ...]
    n: tuple[Axis, ...]
    k: Axis
    epilogue: list[Node]

    @property
    def m_size(self) -> Int:
        return symbols.product(a.size for a in self.m)

    @property
    def n_size(self) -> Int:
        return symbols.product(a.size for a in self.n)


def match_matmul(kernel: Kernel) -> TritonMatmul | None:
    """The kernel as a TritonMatmul, or None where it is none. Leaves `kernel` as it was."""
    found = read_matmuls(kernel, HALF)
    if found is None or found.k.known is None:
        return None
    k, columns = found.k.name, [y for _, y in found.totals]
    if any(not isinstance(x.address.strides.get(k), int) or has_dims(x.address.rest) for x in (found.rows, *columns)):
        return None
    m = found.rows.address.dims - {k}
    n = set(kernel.parallel) - m
    if not m or not n or any(y.address.dims - {k} - n for y in columns):
        return None
    down, across = (tuple(Axis(d, kernel.parallel[d], False) for d in kernel.parallel if d in s) for s in (m, n))
    return TritonMatmul(kernel, found.totals, found.rows, down, across, found.k, found.epilogue)


def choose_tiling(matmul: TritonMatmul) -> Tiling:
    """Chooses tiles of 128 rows and 128 columns, of which a multiprocessor runs two programs; smaller ones for smaller matmuls.

    A matmul of at most 16 rows spends its time reading columns. Its tiles have 64 columns, and one more tile is on its way:
    4x50257x768 takes 23 us on an H200, and 37 us with 128 columns.
    """
    few = typical(matmul.m_size) <= 16
    columns = max(min(next_power(typical(matmul.n_size)), (64 if few else 128) // next_power(len(matmul.totals))), 16)
    rows = 128 if columns > 32 else 64
    rows = max(min(next_power(typical(matmul.m_size)), rows), 16)
    steps = max(min(next_power(matmul.k.hint), 64), 16)
    return Tiling(rows, columns, steps, num_warps=4, num_stages=4 if few else 3)


# ---- the text


def schedule_of(matmul: TritonMatmul, tiling: Tiling) -> TritonSchedule:
    tiles = (TritonTile("y", matmul.m, tiling.rows), TritonTile("x", matmul.n, tiling.columns))
    return TritonSchedule(tiles, (), False, tiling.num_warps)


def _blocks(size: Int, block: int) -> Int:
    return symbols.floordiv(size + block - 1, block)


def write_matmul(e: TritonEmitter, matmul: TritonMatmul, tiling: Tiling) -> None:
    """The function's statements up to the sums, which the epilogue finds in e.env."""
    y, x = e.schedule.tiles
    _bind_programs(e)
    add = e.lines.add
    add("across = tl.arange(0, KBLOCK)[None, :]")
    add("down = tl.arange(0, KBLOCK)[:, None]")
    k = matmul.k.name
    rows, step = _pointers(e, matmul.rows, k, y, "across")
    add(f"rows = {rows}")
    for number, (_, access) in enumerate(matmul.totals):
        columns, by = _pointers(e, access, k, x, "down")
        add(f"columns{number} = {columns}")
        add(f"total{number} = tl.zeros([YBLOCK, XBLOCK], tl.float32)")
    size = matmul.k.known
    assert size is not None
    even = size % tiling.steps == 0
    add(f"for k in range({e.indices.bounds('0', size, tiling.steps, STEPS)}):")
    e.lines.depth += 1
    add(f"a = tl.load(rows{'' if even else f', across < {size} - k, other=0'})")
    for number, (_, access) in enumerate(matmul.totals):
        by = access.address.strides[k]
        load = f"tl.load(columns{number}{'' if even else f', down < {size} - k, other=0'})"
        add(f"total{number} = tl.dot(a, {load}, total{number})")
        add(f"columns{number} += {_times('KBLOCK', by)}")
    add(f"rows += {_times('KBLOCK', step)}")
    e.lines.depth -= 1
    tile = frozenset(t.name for t in e.blocks)
    for number, (total, _) in enumerate(matmul.totals):
        e.env[total] = TritonValue(f"total{number}", torch.float32, tile)


def _bind_programs(e: TritonEmitter) -> None:
    """Gives each program its tile: numbers go down GROUP blocks of rows first, then to the next column of tiles."""
    y, x = e.schedule.tiles
    down, across = (_blocks(t.size, t.block) for t in (y, x))
    number = "tl.program_id(0)" + ("" if e.indices.narrow else ".to(tl.int64)")
    add = e.lines.add
    if across == 1:
        e.bind(y, f"{number} * YBLOCK")
        e.bind(x, "0")
        return
    if down == 1:
        e.bind(y, "0")
        e.bind(x, f"{number} * XBLOCK")
        return
    add(f"program = {number}")
    add(f"group = program // {e.indices.number(across * GROUP)} * {GROUP}")
    add(f"height = tl.minimum({e.indices.number(down)} - group, {GROUP})")
    add(f"program = program % {e.indices.number(across * GROUP)}")
    e.bind(y, "(group + program % height) * YBLOCK")
    e.bind(x, "program // height * XBLOCK")


def _pointers(e: TritonEmitter, access: Access, k: str, tile: TritonTile, steps: str) -> tuple[str, int]:
    """The text of the addresses of a factor's first tile, and its stride along k. `steps` names the tile's indices along k.

    A row (or column) past the end of `tile` has the address of the first one: it is read, and its result is not stored.
    """
    strides = dict(access.address.strides)
    step = strides.pop(k)
    assert isinstance(step, int)
    known = dict(e.indices.known)
    if tile.name in e.masks:
        name = f"{tile.name}_inside"
        e.lines.add(f"{name} = tl.where({e.masks[tile.name]}, {tile.name}, 0)")
        whole = known[tile.name,]
        e.indices.known = {(tile.name,): TritonValue(name, whole.dtype, whole.tile)}
    base = e.indices.linear(Linear(strides, access.address.rest))
    e.indices.known = known
    return f"p{access.operand} + ({base}) + {_times(steps, step)}", step


def _times(name: str, factor: Int) -> str:
    return name if factor == 1 else f"{name} * {factor}"

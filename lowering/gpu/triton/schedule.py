"""Schedules a kernel on a GPU: tiles, and how programs share and order its points.

A *tile dimension* runs over the points of several axes, flattened, the last one fastest; a program holds a block of them.

    x    parallel axes. Where accesses disagree on what lies side by side, two dimensions of parallel axes are tiled,
         y and x, so that both kinds are read and written in runs (Triton turns the block around in between)
    r    the inner axes: in one block where that fits (*persistent*), else in a loop over blocks

Parallel axes outside the tile are counted by the program's number.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.kernel.axes import Axis
from mlirc.lowering.kernel.nodes import Access, Kernel
from mlirc.lowering.kernel.typical_sizes import typical

PROGRAMS = 264  # two for each multiprocessor of a large GPU: with fewer, part of it idles
PER_THREAD = 8  # elements of a tile, so that the loads of a thread are wide and several are in flight
ELEMENTS = 1024  # elements of an elementwise tile
ROWS = 2048  # elements of a tile that holds several short rows
ROWS_OF_MEANS = 1024  # the same where rows have means, whose rare branch the program's rows take together
PERSISTENT = 16384  # the longest row that is held in registers
LOOPED = 4096  # elements of a block of a longer row, which a loop goes over
ROWS_IN_TURN = 32  # rows that a program computes one after the other, with values that they share in registers
CHUNK = 1  # TritonSchedule.chunk of such a program
SHARED = 4096  # elements of a tile in which some values do not change along a side, and are computed once for it
COLUMNS = 2048  # elements of a tile that reduces along columns
MOST_COLUMNS = 8192  # elements of such a tile where tiles are few, so that each has many loads in flight
LINE = 128  # bytes of a cache line, in which memory is read
TRANSPOSED_SIDE = 64  # side of a tile that is transposed
MOST_WARPS = 16
MOST_ELEMENTS = 32768  # the largest tile that tuning tries, in elements


@dataclass(frozen=True)
class TritonTile:
    """A tile dimension: `name` is x, y or r; `block` points of the axes' `size`. A block of 1 is a plain number."""

    name: str
    axes: tuple[Axis, ...]
    block: int

    @property
    def size(self) -> Int:
        return symbols.product(a.size for a in self.axes)

    @property
    def divides(self) -> bool:
        """Whether no block reaches past the end."""
        return symbols.mod(self.size, self.block) == 0 and self.size != 0


@dataclass(frozen=True)
class TritonSchedule:
    """How a kernel's iteration space is split into programs, and the tile that a program computes.

    tiles       tile dimensions, in the order of a block's shape
    programs    parallel axes outside the tile
    looped      whether a loop goes over blocks of the tile dimension r
    rows        points of y that a program computes one after the other, where y has a block of 1
    chunk       order of programs: all of y for this many blocks of x, then the next blocks of x; 0: for all blocks of x
    """

    tiles: tuple[TritonTile, ...]
    programs: tuple[Axis, ...]
    looped: bool
    num_warps: int
    rows: int = 1
    chunk: int = 0

    @property
    def elements(self) -> int:
        total = 1
        for tile in self.tiles:
            total *= tile.block
        return total


def next_power(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()


def warps(elements: int, per_thread: int = PER_THREAD) -> int:
    return min(max(next_power(elements) // (32 * per_thread), 1), MOST_WARPS)


def make_schedule(kernel: Kernel, axes: list[Axis]) -> TritonSchedule:
    """The schedule that the cost model takes for the best."""
    parallel = tuple(a for a in axes if not a.inner)
    inner = tuple(a for a in axes if a.inner)
    if inner:
        return _rows(kernel, parallel, inner)
    return _points(kernel, parallel)


def alternatives(schedule: TritonSchedule) -> Iterator[TritonSchedule]:
    """Schedules that may be faster, for measuring, each once: a block half or twice as large, with as many warps or warps that
    grow with it; half and twice the warps; a row that is in a loop at once, and one that is not in a loop; fewer rows in turn,
    and more."""
    found = dict.fromkeys((*_other_blocks(schedule), *_other_rows(schedule), *_other_warps(schedule)))
    yield from (s for s in found if s != schedule and 1 <= s.num_warps <= MOST_WARPS and s.elements <= MOST_ELEMENTS)


def _other_blocks(schedule: TritonSchedule) -> Iterator[TritonSchedule]:
    for tile in schedule.tiles:
        for block in (tile.block // 2, tile.block * 2):
            in_turn = schedule.rows > 1 and tile is schedule.tiles[0]
            fixed = in_turn or (tile.name == "r" and not schedule.looped)
            if fixed or not 1 <= block <= next_power(typical(tile.size)):
                continue
            if schedule.rows == 1 or symbols.mod(tile.size, block) == 0:  # rows in turn are of whole blocks
                made = _with_block(schedule, tile, block)
                yield made
                yield replace(made, num_warps=schedule.num_warps * block // tile.block)


def _other_rows(schedule: TritonSchedule) -> Iterator[TritonSchedule]:
    row = next((t for t in schedule.tiles if t.name == "r"), None)
    if schedule.rows > 1:
        size = schedule.tiles[0].size
        yield from (
            replace(schedule, rows=n)
            for n in (schedule.rows // 2, schedule.rows * 2)
            if n > 1 and symbols.mod(size, n) == 0
        )
        return
    if row is None or not isinstance(row.size, int):
        return
    whole = next_power(row.size)
    if schedule.looped:
        made = replace(_with_block(schedule, row, whole), looped=False)
        yield replace(made, num_warps=max(warps(made.elements, 2 * PER_THREAD), schedule.num_warps))
    else:
        for block in (whole // 2, whole // 4):
            if block >= 1024:
                yield replace(_with_block(schedule, row, block), looped=True)


def _other_warps(schedule: TritonSchedule) -> Iterator[TritonSchedule]:
    for count in (schedule.num_warps // 2, schedule.num_warps * 2):
        yield replace(schedule, num_warps=count)


def _with_block(schedule: TritonSchedule, tile: TritonTile, block: int) -> TritonSchedule:
    return replace(schedule, tiles=tuple(replace(t, block=block) if t is tile else t for t in schedule.tiles))


# ---- no reductions


def _points(kernel: Kernel, axes: tuple[Axis, ...]) -> TritonSchedule:
    transposed = _transposed_axes(kernel, axes)
    if transposed is not None:
        y, x = transposed
        side_x = min(next_power(x.hint), TRANSPOSED_SIDE)
        side_y = min(next_power(y.hint), max(ELEMENTS * 4 // side_x, 1))
        side_x = min(next_power(x.hint), max(ELEMENTS * 4 // side_y, 1))
        tiles = (TritonTile("y", (y,), side_y), TritonTile("x", (x,), side_x))
        return TritonSchedule(tiles, tuple(a for a in axes if a not in transposed), False, warps(side_x * side_y))
    shared = _shared(kernel, axes)
    if shared is not None:
        return shared
    total = typical(symbols.product(a.size for a in axes))
    block = min(ELEMENTS, next_power(max(total, 1)))
    while block > 128 and total // block < PROGRAMS:
        block //= 2
    return TritonSchedule((TritonTile("x", axes, block),), (), False, warps(block))


def _transposed_axes(kernel: Kernel, axes: tuple[Axis, ...]) -> tuple[Axis, Axis] | None:
    """The axes along which the outputs and most of the other accesses lie side by side, where they differ."""
    weights: dict[Axis, float] = {}
    for access in kernel.accesses:
        axis = unit_stride_axis(access, axes)
        if axis is not None and len(access.address.dims) > 1:
            weights[axis] = weights.get(axis, 0) + access.dtype.itemsize
    written = next((a for a in (unit_stride_axis(o.access, axes) for o in kernel.outputs) if a is not None), None)
    others = [a for a in weights if a is not written]
    if written is None or not others:
        return None
    other = max(others, key=lambda a: weights[a])
    return (other, written) if min(other.hint, written.hint) >= 4 else None


def _shared(kernel: Kernel, axes: tuple[Axis, ...]) -> TritonSchedule | None:
    """Outer axes by inner ones, where some accesses do not change along one of the two: a bias, a channel's mean, a row's.

    They are read once for the block's side, and what is computed of them alone is computed once. Where much changes along
    the inner axes alone, and there are many blocks of it, a program keeps that in registers and goes through rows: what it
    has in flight is then all of what memory has to give.
    """
    sizes = [a.known for a in axes]

    def saved(first: int) -> int:
        sides = [{a.name for a in side} for side in (axes[:first], axes[first:])]
        reached = [(reaches(access), access.dtype.itemsize) for access in kernel.accesses]
        return sum(n for dims, n in reached if any(dims & side for side in sides) and not all(dims & s for s in sides))

    first = max(range(1, len(axes)), key=saved, default=0)
    if not first or not saved(first) or any(n is None for n in sizes):
        return None
    rows, columns = (math.prod(n for n in part if n) for part in (sizes[:first], sizes[first:]))
    down_alone, across_alone = (_alone(kernel, side) for side in (axes[:first], axes[first:]))
    many = across_alone >= 4 and across_alone > down_alone  # bytes read once a column: more rows share them
    if many and _may_take_turns(kernel, rows, columns):
        tiles = (TritonTile("y", axes[:first], 1), TritonTile("x", axes[first:], ELEMENTS))
        return TritonSchedule(tiles, (), False, warps(ELEMENTS), ROWS_IN_TURN, CHUNK)
    across = next((n for n in ((128, 256, 512, 64) if many else (256, 512, 128, 64)) if _fits(columns, n)), 0)
    large = sum(len(reaches(access)) == len(axes) for access in kernel.accesses)
    most = SHARED if large <= 4 else SHARED // 2
    down = most // across if across else 0
    while down > 1 and (not _fits(rows, down) or -(-rows // down) * -(-columns // across) < 2 * PROGRAMS):
        down //= 2
    if down < 4:
        return None
    while (
        2 * down * across <= most
        and _fits(columns, 2 * across)
        and -(-rows // down) * columns // across >= 8 * PROGRAMS
    ):
        across *= 2  # of few rows, small programs are so many that starting them takes as long as their work
    tiles = (TritonTile("y", axes[:first], down), TritonTile("x", axes[first:], across))
    return TritonSchedule(tiles, (), False, warps(down * across, 4 * PER_THREAD))


def _may_take_turns(kernel: Kernel, rows: int, columns: int) -> bool:
    """Whether programs can each go through ROWS_IN_TURN rows of whole blocks, and there are enough of them."""
    whole = rows % ROWS_IN_TURN == columns % ELEMENTS == 0 and not any(n.kind == "check_index" for n in kernel.nodes)
    return whole and rows // ROWS_IN_TURN * (columns // ELEMENTS) >= 4 * PROGRAMS


def _alone(kernel: Kernel, axes: tuple[Axis, ...]) -> int:
    """Bytes for each point along these axes of what changes along them and no others."""
    names = {a.name for a in axes}
    return sum(access.dtype.itemsize for access in kernel.accesses if reaches(access) and reaches(access) <= names)


def _fits(size: int, block: int) -> bool:
    """Whether little of the last block is left empty."""
    return size > 0 and -(-size // block) * block <= 1.1 * size


def reaches(access: Access) -> frozenset[str]:
    """The axes along which what is read or written changes."""
    return frozenset(access.address.dims).union(*(x.dims for x in access.scalars))


def unit_stride_axis(access: Access, axes: tuple[Axis, ...]) -> Axis | None:
    """The axis along which an access reaches elements side by side."""
    return next((a for a in axes if access.address.strides.get(a.name) == 1), None)


# ---- reductions and scans


def _rows(kernel: Kernel, parallel: tuple[Axis, ...], inner: tuple[Axis, ...]) -> TritonSchedule:
    rows = typical(symbols.product(a.size for a in parallel))
    size = symbols.product(a.size for a in inner)
    length = max(typical(size), 1)
    known = isinstance(size, int)
    if size == 0:  # a block all of which is masked
        return TritonSchedule((TritonTile("x", parallel, 1), TritonTile("r", inner, 2)), (), False, 1)
    along_rows = along_columns = 0
    for access in kernel.accesses:
        axis = unit_stride_axis(access, (*parallel, *inner))
        if axis is not None and any(a.name in access.address.dims for a in inner):
            points = math.prod(a.hint for a in (*parallel, *inner) if a.name in access.address.dims)
            along_rows += access.dtype.itemsize * axis.inner * points
            along_columns += access.dtype.itemsize * (not axis.inner) * points
    if along_columns > along_rows:
        return _columns(kernel, parallel, inner, rows, length, known)
    looped = not known or length > _persistent(kernel)
    block = min(next_power(length), LOOPED) if looped else next_power(length)
    if looped and not known:
        block = max(block, 1024)
    means = any(n.kind == "reduce" and n.attributes["kind"] == "mean" for n in kernel.nodes)
    count = 1 if looped else min(max((ROWS_OF_MEANS if means else ROWS) // block, 1), next_power(max(rows, 1)))
    while count > 1 and rows // count < PROGRAMS:
        count //= 2
    tiles = (TritonTile("x", parallel, count), TritonTile("r", inner, block))
    return TritonSchedule(tiles, (), looped, warps(count * block, 2 * PER_THREAD))


def _persistent(kernel: Kernel) -> int:
    """The longest row that is kept in registers: shorter where much else is kept."""
    reads = sum(1 for n in kernel.nodes if n.kind == "read" and n.dims & set(kernel.inner))
    return PERSISTENT if reads <= 2 else PERSISTENT // 2 if reads <= 4 else PERSISTENT // 4


def _columns(
    kernel: Kernel, parallel: tuple[Axis, ...], inner: tuple[Axis, ...], rows: int, length: int, known: bool
) -> TritonSchedule:
    narrowest = min(a.dtype.itemsize for a in kernel.accesses)
    count = min(LINE // max(narrowest, 2), next_power(max(rows, 1)))
    while count > 16 and rows // count < PROGRAMS:
        count //= 2
    most = COLUMNS if rows // count >= PROGRAMS // 4 else MOST_COLUMNS
    block = min(next_power(length), max(most // count, 1)) if known else max(COLUMNS // count, 1)
    looped = not known or block < length
    beside = _side_by_side(kernel, parallel, inner, count)
    tiles = (TritonTile("x", beside, count), TritonTile("r", inner, block))
    return TritonSchedule(
        tiles, tuple(a for a in parallel if a not in beside), looped, warps(count * block, 2 * PER_THREAD)
    )


def _side_by_side(kernel: Kernel, parallel: tuple[Axis, ...], inner: tuple[Axis, ...], count: int) -> tuple[Axis, ...]:
    """The parallel axes that columns are taken of: where whole blocks of `count` lie side by side, that axis alone. What does
    not change along it, a row's mean, is then read once for a row, not once for an element."""
    found = {
        unit_stride_axis(access, parallel)
        for access in kernel.accesses
        if any(a.name in access.address.dims for a in inner)
    }
    axes = [a for a in parallel if a in found]
    return tuple(axes) if len(axes) == 1 and axes[0].known and axes[0].known % count == 0 else parallel

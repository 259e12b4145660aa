"""Splits a kernel among threads: by ranges of the outer axes, flattened to one, or of one axis; and decides when that pays."""

from dataclasses import field

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.cpu.loops.schedule import LoopSchedule
from mlirc.lowering.kernel.axes import Axis, Vector
from mlirc.lowering.kernel.nodes import Kernel
from mlirc.lowering.kernel.typical_sizes import typical

GRAIN = 32768  # scalar operations, loads and stores that a thread must have to do: about a microsecond
# that a kernel of loops must have for several threads: to wake them, and to move what they read, takes 3 to 8 us
LEAST_GRAINS = 6
ENOUGH_ITEMS = 64  # outer points: any number of threads gets about equal parts of so many
FEW_ITEMS = 8
LONG_AXIS = 4096
CHUNKS = 128  # of a large kernel: taken one at a time
CHUNK_POINTS = 65536  # at least; a large kernel has 16 times as many
LARGEST_CHUNK = 8 * CHUNK_POINTS


@dataclass(frozen=True)
class ThreadSplit:
    """How a kernel's work is split among threads: by the points of the outer `axes`, or by ranges of `axis`, or, with neither, not at all.

    step          the axis is cut at multiples of this
    combines      the axis is an inner one: after each pass every thread adds up what all of them found
    chunk         points that a thread takes at a time, also from other threads' parts (work_stealing.py); 0: equal parts
    items, work   expressions: how many work items there are; scalar operations of the whole kernel (None: never worth it)
    least         grains of work below which one thread does it all
    """

    vector: Vector
    axes: list[Axis] = field(default_factory=list)
    axis: Axis | None = None
    step: int = 1
    combines: bool = False
    chunk: int = 0
    items: Int = 1
    work: Int | None = None
    least: int = LEAST_GRAINS


def choose_split(kernel: Kernel, schedule: LoopSchedule) -> ThreadSplit:
    vector = schedule.vector
    each = sum(n.cost for n in kernel.nodes if n.dims) + len(kernel.outputs)
    points = symbols.product(a.size for a in schedule.outer)
    inside = symbols.product(a.size for a in schedule.axes)
    work = points * inside * each
    if isinstance(work, int) and work < LEAST_GRAINS * GRAIN:
        return ThreadSplit(vector)
    reduces, scans = (any(n.kind == kind for n in kernel.nodes) for kind in ("reduce", "scan"))
    several = 4 * vector.lanes if schedule.outer and vector.axis is schedule.outer[-1] else 1
    if reduces and not scans and typical(points) < FEW_ITEMS * several and typical(inside) * each >= 2 * GRAIN:
        long = [a for a in schedule.axes if a.hint >= ENOUGH_ITEMS]
        return _cut(schedule, long[0] if long else schedule.axes[-1], work, typical(points * inside), combines=True)
    around = schedule.outer or ([] if reduces or scans else schedule.axes)
    # the innermost loop of a space without inner axes, or the one along the vector, is cut into ranges, not split point by point
    inmost = around[-1] if around and (not schedule.outer or around[-1] is vector.axis) else None
    inside_axes = (inmost, schedule.block, vector.axis) if schedule.block else (inmost,)
    shared: list[Axis] = []
    for axis in (a for a in around if a not in inside_axes):
        shared.append(axis)
        if typical(symbols.product(a.size for a in shared)) >= ENOUGH_ITEMS:
            break
    count = symbols.product(a.size for a in shared)
    if inmost and (not shared or (typical(count) < FEW_ITEMS and inmost.hint >= LONG_AXIS)):
        return _cut(schedule, inmost, work, typical(points * inside))
    each = max(typical(points * inside) // max(typical(count), 1), 1)
    return (
        ThreadSplit(vector, shared, chunk=chunk_of(typical(points * inside), each), items=count, work=work)
        if shared
        else ThreadSplit(vector)
    )


def _cut(schedule: LoopSchedule, axis: Axis, work: Int, points: int, combines: bool = False) -> ThreadSplit:
    step = (
        schedule.vector.lanes if axis is schedule.vector.axis else schedule.block_rows if axis is schedule.block else 1
    )
    items = symbols.floordiv(axis.size + step - 1, step)
    chunk = 0 if combines else chunk_of(points, max(points // max(typical(items), 1), 1))
    return ThreadSplit(schedule.vector, axis=axis, step=step, combines=combines, chunk=chunk, items=items, work=work)


def chunk_of(points: int, each: int) -> int:
    """Work items that a thread takes at a time, of `each` points; 0 where there are few points."""
    if points < 16 * CHUNK_POINTS:
        return 0
    return max(1, min(max(points // CHUNKS, CHUNK_POINTS), LARGEST_CHUNK) // each)

"""How threads share a kernel: ranges of the outer axes, flattened to one, or of one axis; and when it is worth it."""

from dataclasses import dataclass, field

from mlirc.dialects import symbols
from mlirc.dialects.symbols import Int
from mlirc.lowering.kernel_axes import Axis, Vector, hint
from mlirc.lowering.kernel_nodes import Kernel
from mlirc.lowering.kernel_schedule import Schedule

GRAIN = 32768  # scalar operations, loads and stores that a thread must have to do
ENOUGH_UNITS = 64  # outer points to share: any number of threads gets about equal parts
FEW_UNITS = 8
LONG_AXIS = 4096


@dataclass(frozen=True)
class Split:
    """axes: outer axes whose points are the units of work; or axis: the one whose range is cut; or neither: one thread.

    units, work   expressions: how many parts there can be; scalar operations of the whole kernel (None: never worth it)
    """

    vector: Vector
    axes: list[Axis] = field(default_factory=list)
    axis: Axis | None = None
    units: Int = 1
    work: Int | None = None


def choose_split(kernel: Kernel, schedule: Schedule) -> Split:
    vector = schedule.vector
    points = symbols.product(a.size for a in schedule.outer + schedule.axes)
    work = points * (sum(n.cost for n in kernel.nodes if n.dims) + len(kernel.outputs))
    if isinstance(work, int) and work < 2 * GRAIN:
        return Split(vector)
    around = schedule.outer or schedule.axes
    last_is_inside = not schedule.outer or vector.axis is around[-1]
    leading = around[:-1] if last_is_inside else around
    last = around[-1] if last_is_inside else None
    count: Int = 1
    units: list[Axis] = []
    for axis in leading:
        units.append(axis)
        count = count * axis.size
        if hint(count) >= ENOUGH_UNITS:
            break
    if last is not None and (not units or (hint(count) < FEW_UNITS and last.hint >= LONG_AXIS)):
        if any(n.kind == "scan" for n in kernel.nodes) and not schedule.outer:
            return Split(vector)
        step = vector.lanes if last is vector.axis else 1
        return Split(vector, axis=last, units=symbols.floordiv(last.size + step - 1, step), work=work)
    if not units:
        return Split(vector)
    return Split(vector, axes=units, units=count, work=work)

"""Prefetches the next row's memory while this row is computed.

A softmax's first pass over a row waits for memory. Its second pass computes exponentials from the cache, while memory is idle. So the most
expensive pass over a row prefetches what the first pass over the next row reads.
"""

from typing import TYPE_CHECKING

from mlirc.lowering.cpu.emitter.memory import advance, is_unit_stride, unit_stride_pointer
from mlirc.lowering.cpu.loops.schedule import LoopSchedule, Pass
from mlirc.lowering.kernel.nodes import Access, Node

if TYPE_CHECKING:
    from mlirc.lowering.cpu.emitter.emitter import VectorEmitter

LINE = 64  # bytes of a cache line
LEAST, MOST = (
    1 << 10,
    256 << 10,
)  # bytes of a row: the hardware prefetches a shorter one in time, and two longer ones do not fit into the cache


def fetched_ahead(schedule: LoopSchedule, step: Pass) -> list[Access]:
    """The reads of rows that pass `step` prefetches; none unless it is an expensive pass behind the first."""
    if not schedule.outer or not schedule.vector_inside or len(schedule.passes) < 2:
        return []
    if not computes_most(schedule, step):
        return []
    found: dict[tuple, Access] = {}
    for node in (n for p in schedule.passes for n in p.nodes):
        if node.access is not None and node not in schedule.saved and _is_row(schedule, node.access):
            found.setdefault((node.access.operand, str(node.access.address)), node.access)
    return list(found.values())


def computes_most(schedule: LoopSchedule, step: Pass) -> bool:
    """Whether this pass over a row is expensive, and none costs more."""
    costs = [_cost(schedule, p) for p in schedule.passes]
    return _cost(schedule, step) == max(costs) and not all(n.cheap for n in _along(schedule, step))


def _along(schedule: LoopSchedule, step: Pass) -> list[Node]:
    """The nodes that the pass computes at each point of a row, without those that it reads back."""
    number = schedule.passes.index(step)
    saved = {n for n, (first, _) in schedule.saved.items() if first <= number}
    return [n for n in step.nodes if n not in saved and schedule.axes[-1].name in n.dims]


def _cost(schedule: LoopSchedule, step: Pass) -> int:
    return sum(n.cost for n in _along(schedule, step))


def _is_row(schedule: LoopSchedule, access: Access) -> bool:
    """Whether the access reads a contiguous row of known, medium length along the innermost loop, another row at each outer point."""
    run, around = schedule.run_axis, schedule.outer[-1]
    if run is None or run.known is None or access.scalars or access.mask is not None:
        return False
    strides, size = access.address.strides, access.dtype.itemsize
    return strides.get(run.name) == 1 and around.name in strides and LEAST <= run.known * size <= MOST


def fetch_ahead(e: "VectorEmitter", schedule: LoopSchedule, accesses: list[Access], copy: int) -> None:
    """Writes the prefetches for vector number `copy` of this iteration, one for each cache line."""
    for access in accesses:
        each = e.lanes * access.dtype.itemsize
        if e.mask is None and is_unit_stride(e, access) and copy * each % LINE < each:
            stride = e.integer(access.address.strides[schedule.outer[-1].name])
            address = advance(e, access, unit_stride_pointer(e, access), stride)
            options = "{rw = 0 : i32, hint = 3 : i32, cache = 1 : i32}"
            e.lines.append(f'"llvm.intr.prefetch"({address}) {options} : (!llvm.ptr) -> ()')

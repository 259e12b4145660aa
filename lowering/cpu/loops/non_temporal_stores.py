"""Non-temporal stores of large results, which bypass the cache: such a result would be evicted before anybody reads it.

An ordinary store reads the cache line that it writes; a non-temporal store of a whole line does not, which saves a third of the
traffic of a copy. The choice is made when the kernel starts: by the result's size and address, and by whether the kernel reads the
same memory, whose lines are in the cache already.
"""

import math

import torch

from mlirc.dialects.core import symbols
from mlirc.lowering.cpu.emitter.scope import Scope
from mlirc.lowering.cpu.loops.schedule import LoopSchedule
from mlirc.lowering.kernel.axes import Axis
from mlirc.lowering.kernel.nodes import Access, Kernel, terms

NON_TEMPORAL_BYTES = 64 << 20
"""Bytes of a result from which it is written past the cache: twice what a core has of it on most servers."""

FENCE = 'llvm.call_intrinsic "llvm.x86.sse.sfence"() : () -> ()'  # such stores are in no order with later ones


def choose_non_temporal(e: Scope, kernel: Kernel, schedule: LoopSchedule) -> None:
    """Sets `e.non_temporal` of each result that may bypass the cache: a boolean of the call. Others are left out: results that a later pass
    of the kernel reads back, that are known to be small, or whose vectors are not aligned."""
    if e.text.target.arch != "x86_64" or schedule.block is not None:
        return
    read_back = [
        schedule.saved[node][1]
        for k, step in enumerate(schedule.passes)
        for node in step.nodes
        if node in schedule.saved and schedule.saved[node][0] <= k
    ]
    for output in kernel.outputs:
        access = output.access
        if access in read_back or not is_aligned(e, access):
            continue
        bytes_ = access.dtype.itemsize * symbols.product(a.size for a in axes_of(schedule, access))
        if isinstance(bytes_, int) and bytes_ < NON_TEMPORAL_BYTES:
            continue
        b, base = e.index, e.env["base", access.operand]
        address = b.emit(f"llvm.ptrtoint {base} : !llvm.ptr to i64", torch.int64)
        flag = b.eq(b.and_(address, e.i64(e.lanes * access.dtype.itemsize - 1)), e.i64(0))
        if not isinstance(bytes_, int):
            flag = e.builder(torch.bool).and_(flag, b.ge(e.integer(bytes_), e.i64(NON_TEMPORAL_BYTES)))
        for operand in {
            n.access.operand for n in kernel.nodes if n.access is not None and n.access.same_element_as(access)
        }:
            other = b.emit(f"llvm.ptrtoint {e.env['base', operand]} : !llvm.ptr to i64", torch.int64)
            flag = e.builder(torch.bool).and_(flag, b.ne(address, other))
        e.non_temporal[access.operand] = flag


def axes_of(schedule: LoopSchedule, access: Access) -> list[Axis]:
    """The axes along which the access has elements of its own."""
    return [axis for axis in (*schedule.outer, *schedule.axes) if axis.name in access.address.dims]


def is_aligned(e: Scope, access: Access) -> bool:
    """Whether each full vector that is written begins at a multiple of its size, if the first element does."""
    if access.scalars or access.contiguous_lanes or access.address.strides.get(e.axis) != 1:
        return False
    if e.lanes * access.dtype.itemsize not in (16, 32, 64):
        return False
    others = [stride for name, stride in access.address.strides.items() if name != e.axis]
    steps = math.gcd(*(c for x in (*others, access.address.rest) for _, c in terms(x)))
    return steps % e.lanes == 0

"""Reductions whose inner axes threads share: partial results, and their combination.

Each thread leaves what it found, all meet at a barrier, and each folds what all left, in the order of the threads.
So all go on with the same value, and it is the same one at every call.
"""

from collections.abc import Sequence

import torch

from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.loops.reductions import LaneFold
from mlirc.lowering.cpu.loops.schedule import LoopSchedule
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.kernel.axes import Vector
from mlirc.lowering.kernel.nodes import Node


@dataclass(frozen=True)
class Found:
    """What a pass found for a reduction: values, vectors where they are wide."""

    fold: LaneFold
    wide: bool
    values: list[Value]


def slot_bytes(vector: Vector) -> int:
    """Bytes for one partial result of a thread: a vector, and at least a cache line, so that threads do not share one."""
    return max(8 * vector.lanes, 64)


def partial_bytes(schedule: LoopSchedule) -> int:
    """Bytes for all partial results of one thread."""
    compensated = [
        n for p in schedule.passes for n in p.reductions if LaneFold(n, 1, upper=True, exact=True).compensated
    ]
    components = schedule.components + len(compensated)
    return components * (8 * schedule.tile if schedule.block else slot_bytes(schedule.vector))


def barrier(e: VectorEmitter) -> None:
    """Writes a barrier, which a single thread skips, because it has no team of its own."""
    several = e.index.gt(e.env["threads"], e.i64(1))
    e.lines += [f"scf.if {several} {{", "llvm.call @GOMP_barrier() : () -> ()", "}"]


class Partials:
    """Memory for partial results, `apart` bytes from thread to thread: each component of each reduction has a slot in them."""

    def __init__(self, e: VectorEmitter, vector: Vector, apart: Value):
        self.e, self.slot, self.apart = e, slot_bytes(vector), apart
        self.slots: dict[tuple[Node, int], int] = {}  # a loop's full vectors and its last, masked one share them

    def of(self, thread: Value) -> Value:
        """What a thread left."""
        b, base = self.e.index, self.e.env["partial"]
        at = b.mul(thread, self.apart)
        return b.emit(f"llvm.getelementptr {base}[{at}] : (!llvm.ptr, i64) -> !llvm.ptr, i8", torch.int64)

    def mine(self) -> Value:
        return self.of(self.e.env["thread"])

    def address(self, thread: Value, node: Node, component: int) -> Value:
        slot, base = self.slots.setdefault((node, component), len(self.slots)), self.of(thread)
        text = f"llvm.getelementptr {base}[{slot * self.slot}] : (!llvm.ptr) -> !llvm.ptr, i8"
        return self.e.index.emit(text, torch.int64)

    def combine(self, found: Sequence[Found]) -> list[Found]:
        e = self.e
        for f in found:
            for k, value in enumerate(f.values):
                type_ = e.builder(value.dtype, f.wide).type_text(value.dtype)
                at = self.address(e.env["thread"], f.fold.node, k)
                e.lines.append(f"llvm.store {value}, {at} {{alignment = 1 : i64}} : {type_}, !llvm.ptr")
        barrier(e)
        builders = [e.builder(f.fold.dtype, f.wide) for f in found]
        start = [x for f, b in zip(found, builders, strict=True) for x in f.fold.start(b)]
        types = [b.type_text(t) for f, b in zip(found, builders, strict=True) for t in f.fold.dtypes]

        def body(thread: Value, state: list[Value]) -> list[Value]:
            result: list[Value] = []
            for f, b in zip(found, builders, strict=True):
                theirs = []
                for k, dtype in enumerate(f.fold.dtypes):
                    at = self.address(thread, f.fold.node, k)
                    text = f"llvm.load {at} {{alignment = 1 : i64}} : !llvm.ptr -> {b.type_text(dtype)}"
                    theirs.append(b.emit(text, dtype))
                result += f.fold.merge(b, state[len(result) : len(result) + len(theirs)], theirs)
            return result

        state = e.loop(e.i64(0), e.env["threads"], e.i64(1), start, types, body)
        combined = []
        for f in found:
            combined.append(Found(f.fold, f.wide, state[: len(f.values)]))
            state = state[len(f.values) :]
        return combined

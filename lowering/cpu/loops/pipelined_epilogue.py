"""Software-pipelined epilogue: stores row i - 1 inside the most expensive loop of row i, which overlaps memory with arithmetic.

before:  for row:   m = max(x);  e = exp(x - m), saved, and its sum s;  y = e / s
after:   for row:   m = max(x);  for i: y[row - 1, i] = e[i] / s;  e[i] = exp(x[row, i] - m), saved, and its sum
         y of the last row

One row of scratch memory holds e: each element of row i - 1 is read just before row i overwrites it. What the reductions of row
i - 1 gave, its statistics, is saved in scratch as well.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from mlirc.lowering.cpu.emitter.scratch import take
from mlirc.lowering.cpu.loops.interleaving import interleaved
from mlirc.lowering.cpu.loops.prefetch import computes_most
from mlirc.lowering.cpu.loops.schedule import LoopSchedule
from mlirc.lowering.cpu.loops.segments import segments
from mlirc.lowering.cpu.math.builder import Value, element_text
from mlirc.lowering.kernel.axes import Axis
from mlirc.lowering.kernel.nodes import Node

LONGEST = 16384  # elements of a row: several stay in the L2 cache


def has_pipelined_epilogue(loops: Any, axes: list[Axis]) -> bool:
    """Whether one pass over a row of `axes` is expensive, and is the only one whose values later passes read back."""
    if not may_wait(loops, axes):
        return False
    keeping = [step for step in loops.schedule.passes if step.keeps]
    if len(keeping) != 1 or not computes_most(loops.schedule, keeping[0]):
        return False
    return all(access.operand in loops.schedule.scratch for _, access in keeping[0].keeps)


def may_wait(loops: Any, axes: list[Axis]) -> bool:
    """Whether the last pass over a row of `axes` may run after the next row has begun."""
    schedule: LoopSchedule = loops.schedule
    run, last = schedule.run_axis, schedule.passes[-1]
    if axes != schedule.outer or not schedule.vector_inside or len(schedule.axes) != 1 or loops.partials:
        return False
    if len(schedule.passes) < 2 or run is None or run.known is None or not loops.e.lanes <= run.known <= LONGEST:
        return False
    if last.reductions or last.scans or last.keeps or any(n.kind == "check_index" for n in last.nodes):
        return False
    read = [n.access for n in last.nodes if n.access is not None]
    if any(access.same_element_as(output.access) for access in read for output in schedule.outer_outputs):
        return False  # a number of the row is written before its last pass
    return not segments(last.nodes, run, loops.e.lanes)


class PipelinedEpilogue:
    """A loop over rows with the previous row's epilogue in it; `emit(lo, hi)` writes the loop. `enter(row)` makes a row's
    indices known."""

    def __init__(self, loops: Any, enter: Callable[[Value], None]):
        self.loops, self.e, self.enter = loops, loops.e, enter
        self.schedule: LoopSchedule = loops.schedule
        self.last = len(self.schedule.passes) - 1
        self.costliest = next(k for k, step in enumerate(self.schedule.passes) if step.keeps)
        self.nodes = loops.e.nodes  # what needs no reduction
        self.reductions: list[Node] = [n for step in self.schedule.passes for n in step.reductions]
        self.slots = take(self.e, len(self.reductions), "i64", 8)

    def emit(self, lo: Value, hi: Value) -> None:
        e, b = self.e, self.e.index
        e.loop(lo, hi, e.i64(1), [], [], partial(self.row, lo))
        with e.when(b.gt(hi, lo)):
            self.resume(b.sub(hi, e.i64(1)))
            self.loops.run_passes(self.last, self.last + 1)

    def row(self, lo: Value, row: Value, state: list[Value]) -> list[Value]:
        e, b, loops = self.e, self.e.index, self.loops
        follows = b.gt(row, lo)
        with e.scope():
            self.resume(b.maximum(b.sub(row, e.i64(1)), lo))
            known = self.ready()
        self.begin(row)
        loops.run_passes(0, self.costliest)
        loops.enter_pass(self.costliest)
        loops.beside = partial(self.finish, follows, known)
        e.env.update(loops.run_pass(self.schedule.passes[self.costliest]))
        loops.beside = None
        loops.run_passes(self.costliest + 1, self.last)
        for k, node in enumerate(self.reductions):
            e.lines.append(f"llvm.store {e.env[node]}, {self.slot(k)} : {element_text(node.dtype)}, !llvm.ptr")
        loops.write_outer()
        return state

    def finish(self, follows: Value, known: tuple[dict, set, dict], index: Value, copies: int) -> None:
        """Writes the last pass over some vectors of the previous row, unless this row is the first."""
        e, axis, parts = self.e, self.schedule.axes[0], []
        e.lines.append(f"scf.if {follows} {{")
        for copy in range(copies):
            with e.scope(), e.apart() as lines:
                env, bound, e.saved = known
                place = e.index.add(index, e.i64(copy * e.lanes)) if copy else index
                e.env, e.bound = {**env, axis.name: place}, bound | {axis.name}
                self.loops.body(self.schedule.passes[self.last], [], [], axis)
            parts.append(lines)
        e.lines += interleaved(parts)
        e.lines.append("}")

    # ---- a row's statistics

    def begin(self, row: Value) -> None:
        self.e.nodes, self.e.accesses, self.e.saved = self.nodes, (), {}
        self.enter(row)

    def resume(self, row: Value) -> None:
        """Begins a row again, whose statistics are saved."""
        self.begin(row)
        for k, node in enumerate(self.reductions):
            text = f"llvm.load {self.slot(k)} : !llvm.ptr -> {element_text(node.dtype)}"
            self.e.env[node] = self.e.builder(node.dtype).emit(text, node.dtype)

    def slot(self, number: int) -> Value:
        text = f"llvm.getelementptr {self.slots}[{number}] : (!llvm.ptr) -> !llvm.ptr, i64"
        return self.e.index.emit(text, torch.int64)

    def ready(self) -> tuple[dict, set, dict]:
        """All of a row that its last pass needs, before the loop: its numbers are in all lanes."""
        self.loops.enter_pass(self.last)
        for node in self.schedule.passes[self.last].nodes:
            for operand in node.operands if self.e.is_wide(node) else ():
                if operand in self.e.env and not self.e.is_wide(operand) and operand.kind != "constant":
                    self.e.splat(self.e.env[operand])
        return self.e.env, self.e.bound, self.e.saved

"""Saved row statistics: values of a row, kept in memory until its last pass, which runs after other rows have begun."""

from collections.abc import Callable
from typing import Any

import torch

from mlirc.lowering.cpu.emitter.scratch import take
from mlirc.lowering.cpu.loops.schedule import LoopSchedule
from mlirc.lowering.cpu.loops.segments import segments
from mlirc.lowering.cpu.math.builder import Value, element_text
from mlirc.lowering.kernel.axes import Axis
from mlirc.lowering.kernel.nodes import Node

LONGEST = 16384  # elements of a row: several stay in the second-level cache


def may_wait(loops: Any, axes: list[Axis]) -> bool:
    """Whether the last pass over a row of `axes` may run after other rows' statistics."""
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


class SavedRowStatistics:
    """The results of reductions for `count` rows, in scratch. `enter(row)` makes a row's indices known."""

    def __init__(self, loops: Any, enter: Callable[[Value], None], count: int):
        self.loops, self.e, self.enter = loops, loops.e, enter
        self.schedule: LoopSchedule = loops.schedule
        self.last = len(self.schedule.passes) - 1
        self.nodes = loops.e.nodes  # what needs no reduction
        self.reductions: list[Node] = [n for step in self.schedule.passes for n in step.reductions]
        self.slots = take(self.e, count * len(self.reductions), "i64", 8)

    def begin(self, row: Value) -> None:
        self.e.nodes, self.e.accesses, self.e.saved = self.nodes, (), {}
        self.enter(row)

    def slot(self, row: Value, number: int) -> Value:
        b = self.e.index
        place = b.add(b.mul(row, self.e.i64(len(self.reductions))), self.e.i64(number))
        return b.emit(f"llvm.getelementptr {self.slots}[{place}] : (!llvm.ptr, i64) -> !llvm.ptr, i64", torch.int64)

    def save(self, row: Value) -> None:
        for k, node in enumerate(self.reductions):
            type_ = element_text(node.dtype)
            self.e.lines.append(f"llvm.store {self.e.env[node]}, {self.slot(row, k)} : {type_}, !llvm.ptr")

    def load(self, row: Value) -> None:
        for k, node in enumerate(self.reductions):
            text = f"llvm.load {self.slot(row, k)} : !llvm.ptr -> {element_text(node.dtype)}"
            self.e.env[node] = self.e.builder(node.dtype).emit(text, node.dtype)

    def ready(self) -> tuple[dict, set, dict]:
        """All of a row that its last pass needs, before the loop: its numbers are in all lanes."""
        self.loops.enter_pass(self.last)
        for node in self.schedule.passes[self.last].nodes:
            for operand in node.operands if self.e.is_wide(node) else ():
                if operand in self.e.env and not self.e.is_wide(operand) and operand.kind != "constant":
                    self.e.splat(self.e.env[operand])
        return self.e.env, self.e.bound, self.e.saved

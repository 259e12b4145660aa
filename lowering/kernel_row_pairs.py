"""The last pass over two rows at once, where it reads what all rows share: a layer norm's weight and bias.

before:  for row:              statistics;  y = (x - mean) * scale * weight + bias
after:   for row, next row:    for each of both: statistics, left in memory
                               for i: w, b = weight[i], bias[i];  y[row, i] = ... w + b;  y[next row, i] = ... w + b

A row, what it gives, weight and bias together are more than the first-level cache holds: the two are read from the second.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from mlirc.lowering.kernel_axes import Axis
from mlirc.lowering.kernel_interleaving import interleaved
from mlirc.lowering.kernel_nodes import Node
from mlirc.lowering.kernel_schedule import Schedule
from mlirc.lowering.kernel_segments import segments
from mlirc.lowering.vector_builder import Value, element_text

ROWS = 2
LONGEST = 16384  # elements of a row: several stay in the second-level cache


def has_row_pairs(loops: Any, axes: list[Axis]) -> bool:
    """Whether the loop over `axes` goes by pairs of rows."""
    schedule: Schedule = loops.schedule
    run, last = schedule.run_axis, schedule.passes[-1]
    if axes != schedule.outer or not schedule.vector_inside or len(schedule.axes) != 1 or loops.partials:
        return False
    if len(schedule.passes) < 2 or run is None or run.known is None or not loops.e.lanes <= run.known <= LONGEST:
        return False
    if last.reductions or last.scans or last.keeps or any(n.kind == "check_index" for n in last.nodes):
        return False
    return bool(shared_reads(schedule)) and not segments(last.nodes, run, loops.e.lanes)


def shared_reads(schedule: Schedule) -> list[Node]:
    """What the last pass reads that is the same for all rows."""
    run, around = schedule.axes[-1].name, {a.name for a in schedule.outer}
    found = [n for n in schedule.passes[-1].nodes if n.access is not None and n not in schedule.kept]
    found = [n for n in found if not n.access.scalars and n.access.mask is None]
    return [n for n in found if run in n.access.address.dims and around.isdisjoint(n.access.address.dims)]


class RowPairs:
    """`emit(lo, hi)` writes the loop; `enter(unit)` makes a row's indices known."""

    def __init__(self, loops: Any, enter: Callable[[Value], None]):
        self.loops, self.e, self.enter = loops, loops.e, enter
        self.schedule: Schedule = loops.schedule
        self.nodes = loops.e.nodes  # what needs no reduction
        self.reductions = [n for step in self.schedule.passes for n in step.reductions]
        self.slots = self.allocate(ROWS * len(self.reductions), "i64")
        self.scratch = {}
        for number, (count, dtype) in self.schedule.scratch.items():
            element = "i8" if dtype == torch.bool else element_text(dtype)
            self.scratch[number] = self.allocate(ROWS * count, element), count, element

    def allocate(self, count: int, element: str) -> Value:
        text = f"llvm.alloca {self.e.i64(count)} x {element} {{alignment = 64 : i64}} : (i64) -> !llvm.ptr"
        return self.e.index.emit(text, torch.int64)

    def emit(self, lo: Value, hi: Value) -> None:
        self.e.loop(lo, hi, self.e.i64(ROWS), [], [], partial(self.rows, hi))

    def rows(self, hi: Value, first: Value, state: list[Value]) -> list[Value]:
        e, b = self.e, self.e.index
        count = b.minimum(b.sub(hi, first), e.i64(ROWS))
        e.loop(e.i64(0), count, e.i64(1), [], [], partial(self.statistics, first))
        e.choose(b.eq(count, e.i64(ROWS)), lambda: self.together(first), lambda: self.alone(first))
        return state

    def statistics(self, first: Value, row: Value, state: list[Value]) -> list[Value]:
        """All passes but the last, over one row."""
        self.begin(first, row)
        self.loops.run_passes(0, len(self.schedule.passes) - 1)
        for k, node in enumerate(self.reductions):
            type_ = element_text(node.dtype)
            self.e.lines.append(f"llvm.store {self.e.env[node]}, {self.slot(row, k)} : {type_}, !llvm.ptr")
        self.loops.write_outer()
        return state

    def begin(self, first: Value, row: Value) -> None:
        e, b = self.e, self.e.index
        for number, (base, count, element) in self.scratch.items():
            text = f"llvm.getelementptr {base}[{b.mul(row, e.i64(count))}] : (!llvm.ptr, i64) -> !llvm.ptr, {element}"
            e.env["base", number] = b.emit(text, torch.int64)
        e.nodes, e.accesses, e.kept = self.nodes, (), {}
        self.enter(b.add(first, row))

    def slot(self, row: Value, number: int) -> Value:
        b = self.e.index
        place = b.add(b.mul(row, self.e.i64(len(self.reductions))), self.e.i64(number))
        return b.emit(f"llvm.getelementptr {self.slots}[{place}] : (!llvm.ptr, i64) -> !llvm.ptr, i64", torch.int64)

    def resume(self, first: Value, row: Value) -> None:
        """What is known of a row after its statistics."""
        self.begin(first, row)
        for k, node in enumerate(self.reductions):
            text = f"llvm.load {self.slot(row, k)} : !llvm.ptr -> {element_text(node.dtype)}"
            self.e.env[node] = self.e.builder(node.dtype).emit(text, node.dtype)

    def alone(self, first: Value) -> None:
        self.resume(first, self.e.i64(0))
        last = len(self.schedule.passes) - 1
        self.loops.run_passes(last, last + 1)

    def together(self, first: Value) -> None:
        e, last = self.e, len(self.schedule.passes) - 1
        step, known = self.schedule.passes[last], []
        for k in range(ROWS):
            with e.scope():
                self.resume(first, e.i64(k))
                self.loops.enter_pass(last)
                self.spread(step.nodes)
                known.append((e.env, e.bound))
        self.loops.enter_pass(last, compute=False)
        self.loops.vector_loop(self.schedule.axes[0], None, [], [], 1, partial(self.group, known))

    def spread(self, nodes: list[Node]) -> None:
        """A row's numbers in all lanes, before the loop."""
        for node in nodes:
            for operand in node.operands if self.e.is_wide(node) else ():
                if operand in self.e.env and not self.e.is_wide(operand) and operand.kind != "constant":
                    self.e.splat(self.e.env[operand])

    def group(self, known: list[tuple[dict, set]], _copies: int, index: Value, state: list[Value]) -> list[Value]:
        e, axis, parts = self.e, self.schedule.axes[0], []
        e.env[axis.name] = index
        e.bound.add(axis.name)
        shared = {node: e.value(node) for node in shared_reads(self.schedule)}
        for env, bound in known:
            with self.row(env, bound, {**shared, axis.name: index}), e.apart() as lines:
                self.loops.body(self.schedule.passes[-1], [], [], axis)
            parts.append(lines)
        e.lines += interleaved(parts)
        return state

    @contextmanager
    def row(self, env: dict, bound: set, here: dict) -> Iterator[None]:
        e = self.e
        with e.scope():
            e.env, e.bound = {**env, **here}, bound | e.bound
            yield

"""Two-row epilogue: the last pass over two rows at once, where it reads what all rows share, such as a layer norm's weight and bias.

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

from mlirc.lowering.cpu.emitter.scratch import take
from mlirc.lowering.cpu.loops.interleaving import interleaved
from mlirc.lowering.cpu.loops.row_statistics import SavedRowStatistics, may_wait
from mlirc.lowering.cpu.loops.schedule import LoopSchedule
from mlirc.lowering.cpu.math.builder import Value, element_text
from mlirc.lowering.kernel.axes import Axis
from mlirc.lowering.kernel.nodes import Node

ROWS = 2


def has_two_row_epilogue(loops: Any, axes: list[Axis]) -> bool:
    """Whether the loop over `axes` goes by pairs of rows."""
    return may_wait(loops, axes) and bool(shared_reads(loops.schedule))


def shared_reads(schedule: LoopSchedule) -> list[Node]:
    """What the last pass reads that is the same for all rows."""
    run, around = schedule.axes[-1].name, {a.name for a in schedule.outer}
    found = [n for n in schedule.passes[-1].nodes if n.access is not None and n not in schedule.saved]
    found = [n for n in found if not n.access.scalars and n.access.mask is None]
    return [n for n in found if run in n.access.address.dims and around.isdisjoint(n.access.address.dims)]


class TwoRowEpilogue(SavedRowStatistics):
    """`emit(lo, hi)` writes the loop."""

    def __init__(self, loops: Any, enter: Callable[[Value], None]):
        super().__init__(loops, enter, ROWS)
        self.scratch = {}
        for number, (count, dtype) in self.schedule.scratch.items():
            element = "i8" if dtype == torch.bool else element_text(dtype)
            self.scratch[number] = take(self.e, ROWS * count, element, dtype.itemsize), count, element

    def emit(self, lo: Value, hi: Value) -> None:
        self.e.loop(lo, hi, self.e.i64(ROWS), [], [], partial(self.rows, hi))

    def rows(self, hi: Value, first: Value, state: list[Value]) -> list[Value]:
        e, b = self.e, self.e.index
        count = b.minimum(b.sub(hi, first), e.i64(ROWS))
        e.loop(e.i64(0), count, e.i64(1), [], [], partial(self.statistics, first))
        for rows in e.either(b.eq(count, e.i64(ROWS)), self.both, self.alone):
            rows(first)
        return state

    def statistics(self, first: Value, row: Value, state: list[Value]) -> list[Value]:
        """All passes but the last, over one row."""
        self.begin_row(first, row)
        self.loops.run_passes(0, self.last)
        self.save(row)
        self.loops.write_outer()
        return state

    def begin_row(self, first: Value, row: Value) -> None:
        e, b = self.e, self.e.index
        for number, (base, count, element) in self.scratch.items():
            text = f"llvm.getelementptr {base}[{b.mul(row, e.i64(count))}] : (!llvm.ptr, i64) -> !llvm.ptr, {element}"
            e.env["base", number] = b.emit(text, torch.int64)
        self.begin(b.add(first, row))

    def resume(self, first: Value, row: Value) -> None:
        """What is known of a row after its statistics."""
        self.begin_row(first, row)
        self.load(row)

    def alone(self, first: Value) -> None:
        self.resume(first, self.e.i64(0))
        self.loops.run_passes(self.last, self.last + 1)

    def both(self, first: Value) -> None:
        e, known = self.e, []
        for k in range(ROWS):
            with e.scope():
                self.resume(first, e.i64(k))
                env, bound, _ = self.ready()
                known.append((env, bound))
        self.loops.enter_pass(self.last, compute=False)
        self.loops.vector_loop(self.schedule.axes[0], None, [], [], 1, partial(self.group, known))

    def group(self, known: list[tuple[dict, set]], _copies: int, index: Value, state: list[Value]) -> list[Value]:
        e, axis, parts = self.e, self.schedule.axes[0], []
        e.env[axis.name] = index
        e.bound.add(axis.name)
        shared = {node: e.value(node) for node in shared_reads(self.schedule)}
        for env, bound in known:
            with self.row(env, bound, {**shared, axis.name: index}), e.apart() as lines:
                self.loops.body(self.schedule.passes[self.last], [], [], axis)
            parts.append(lines)
        e.lines += interleaved(parts)
        return state

    @contextmanager
    def row(self, env: dict, bound: set, here: dict) -> Iterator[None]:
        e = self.e
        with e.scope():
            e.env, e.bound = {**env, **here}, bound | e.bound
            yield

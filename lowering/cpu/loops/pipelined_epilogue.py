"""Software-pipelined epilogue: stores row i - 1 inside the most expensive loop of row i, which overlaps memory with arithmetic.

before:  for row:   m = max(x);  e = exp(x - m), saved, and its sum s;  y = e / s
after:   for row:   m = max(x);  for i: y[row - 1, i] = e[i] / s;  e[i] = exp(x[row, i] - m), saved, and its sum
         y of the last row

One row of scratch memory holds e: each element of row i - 1 is read just before row i overwrites it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from mlirc.lowering.cpu.loops.interleaving import interleaved
from mlirc.lowering.cpu.loops.prefetch import computes_most
from mlirc.lowering.cpu.loops.row_statistics import SavedRowStatistics, may_wait
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.kernel.axes import Axis


def has_pipelined_epilogue(loops: Any, axes: list[Axis]) -> bool:
    """Whether one pass is expensive, and is the only one whose values later passes read back."""
    if not may_wait(loops, axes):
        return False
    passes = loops.schedule.passes
    keeping = [step for step in passes if step.keeps]
    if len(keeping) != 1 or not computes_most(loops.schedule, keeping[0]):
        return False
    return all(access.operand in loops.schedule.scratch for _, access in keeping[0].keeps)


class PipelinedEpilogue(SavedRowStatistics):
    """A loop over a row with the previous row's epilogue in it; `emit(lo, hi)` writes the loop."""

    def __init__(self, loops: Any, enter: Callable[[Value], None]):
        super().__init__(loops, enter, 1)
        self.costliest = next(k for k, step in enumerate(self.schedule.passes) if step.keeps)

    def emit(self, lo: Value, hi: Value) -> None:
        e, b = self.e, self.e.index
        e.loop(lo, hi, e.i64(1), [], [], partial(self.row, lo))
        with e.when(b.gt(hi, lo)):
            self.alone(b.sub(hi, e.i64(1)))

    def alone(self, row: Value) -> None:
        self.resume(row)
        self.loops.run_passes(self.last, self.last + 1)

    def resume(self, row: Value) -> None:
        self.begin(row)
        self.load(self.e.i64(0))

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
        self.save(e.i64(0))
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

"""Online softmax: the maximum of a row and its sum of exponentials in one pass, so that the row is read from memory once.

before:  m = max(x);  s = sum(e^(x - m))
after:   for a group of vectors:    m = max(m, x);  if m > c + SLACK: s *= e^(c - m), c = m;  s += e^(x - c)
         s *= e^(c - m)

c is an earlier value of m, shared by all lanes; it changes a few times a row. The maximum ignores NaN, but a NaN makes the sum NaN; then
the maximum is computed again, as it would have been without this pass. The sum below an infinite maximum is NaN.
"""

from functools import partial
from typing import Any

import torch

from mlirc.lowering.cpu.loops.bounds import SummedExpOfAtMostZero, is_at_least_one
from mlirc.lowering.cpu.loops.fma_contraction import with_product
from mlirc.lowering.cpu.loops.interleaving import interleaved
from mlirc.lowering.cpu.loops.prefetch import fetch_ahead, fetched_ahead
from mlirc.lowering.cpu.loops.reductions import BLOCK, lanes_folded
from mlirc.lowering.cpu.loops.schedule import Pass
from mlirc.lowering.cpu.loops.segments import segments
from mlirc.lowering.cpu.math import exp as vector_math_exp
from mlirc.lowering.cpu.math.builder import Value, VectorBuilder
from mlirc.lowering.kernel.nodes import Node

f32, f64 = torch.float32, torch.float64
SLACK = 1.0  # so x - c is at most 1, with the rounding error of a number below 1
GROUP, SUMS = 4, 2  # vectors for which the maximum is compared once; accumulators that take turns
LOWEST = torch.finfo(f32).min


def joined_passes(loops: Any, number: int) -> "OnlinePass | None":
    """Pass `number` and the next one as one, where they are such a pair."""
    schedule, e = loops.schedule, loops.e
    pair = schedule.passes[number : number + 2]
    if len(pair) < 2 or any(p.outputs or p.keeps or p.scans or len(p.reductions) != 1 for p in pair):
        return None
    total = pair[1].reductions[0]
    if not is_at_least_one(total) or total.operands[0].cls is not SummedExpOfAtMostZero:
        return None
    if total.operands[0].operands[0].operands[1] is not pair[0].reductions[0]:
        return None
    one_loop = schedule.vector_inside and len(schedule.axes) == 1 and schedule.outer and not loops.partials
    if not one_loop or not vector_math_exp.has_factors(e.builder(f32, True)):
        return None
    return None if segments(pair[1].nodes, schedule.axes[0], e.lanes) else OnlinePass(loops, *pair)


class OnlinePass:
    """`emit` gives the maximum and the sum. A state is [c, m, sums], a vector each."""

    def __init__(self, loops: Any, first: Pass, second: Pass):
        self.loops, self.e, self.axis = loops, loops.e, loops.schedule.axes[0]
        self.first, self.largest, self.total = first, first.reductions[0], second.reductions[0]
        self.x = self.largest.operands[0]
        self.ahead = fetched_ahead(loops.schedule, second)

    def emit(self) -> dict[Node, Value]:
        b, wide = self.floats, self.e.builder(f64, True)
        state = [b.constant(LOWEST), b.constant(-torch.inf), wide.constant(0.0)]
        types = [b.type_text(f32), b.type_text(f32), wide.type_text(f64)]
        most = BLOCK * SUMS * self.e.lanes
        return self.results(*self.loops.in_parts(self.axis, most, state, types, self.block))

    @property
    def floats(self) -> VectorBuilder:
        return self.e.builder(f32, True)

    def block(self, state: list[Value]) -> list[Value]:
        """A sum of float32 as long as it may be, added to that of float64."""
        base, largest, above = state
        b, wide = self.floats, self.e.builder(f64, True)
        inner = [base, largest, *[b.constant(0.0)] * SUMS]
        inner = self.loops.vector_loop(self.axis, None, inner, [b.type_text(f32)] * len(inner), GROUP, self.group)
        below = inner[2]
        for x in inner[3:]:
            below = b.add(below, x)
        less = vector_math_exp.exp_of_at_most_zero(b, b.sub(base, inner[0]))
        return [*inner[:2], wide.fma(above, wide.cast(less, f64), wide.cast(below, f64))]

    def group(self, copies: int, index: Value, state: list[Value]) -> list[Value]:
        base, largest, *sums = state
        values = self.woven([partial(self.read, index, k) for k in range(copies)])
        for x in values:
            largest = higher(self.floats, x, largest)
        base, *sums = self.raised(base, largest, sums)
        steps = [partial(self.factors, x, base) for x in values]
        for k, product in enumerate(self.woven(steps)):
            sums[k % SUMS] = with_product(self.floats, sums[k % SUMS], product, self.e.mask)
        return [base, largest, *sums]

    def woven(self, steps: list) -> list:
        """What each step gives, their lines in turn."""
        found, parts = [], []
        for step in steps:
            with self.e.scope(), self.e.apart() as lines:
                found.append(step())
            parts.append(lines)
        self.e.lines += interleaved(parts)
        return found

    def read(self, index: Value, copy: int) -> Value:
        e = self.e
        e.env[self.axis.name] = e.index.add(index, e.i64(copy * e.lanes)) if copy else index
        e.bound.add(self.axis.name)
        fetch_ahead(e, self.loops.schedule, self.ahead, copy)
        x = e.operand(self.x, True)
        return x if e.mask is None else self.floats.select(e.mask, x, self.floats.constant(-torch.inf))

    def factors(self, x: Value, base: Value) -> tuple[Value, Value]:
        product = vector_math_exp.exp_factors(self.floats, self.floats.sub(x, base))
        assert product is not None
        return product

    def raised(self, base: Value, largest: Value, sums: list[Value]) -> list[Value]:
        """`base` and `sums`, after a new base has been taken where the maximum has left the old one."""
        e, b = self.e, self.floats
        far = b.gt(largest, b.add(base, b.constant(SLACK)))
        any_far = e.index.emit(f"vector.reduction <or>, {far} : {b.type_text(torch.bool)} into i1", torch.bool)
        old, result = [base, *sums], e.text.new_name()
        types = ", ".join([b.type_text(f32)] * len(old))
        e.lines.append(f"{result}:{len(old)} = scf.if {any_far} -> ({types}) {{")
        with e.scope():
            fresh = e.splat(self.over_lanes(largest))
            less = vector_math_exp.exp_of_at_most_zero(b, b.sub(base, fresh))
            new = [fresh, *(b.mul(x, less) for x in sums)]
        e.lines += [f"scf.yield {', '.join(new)} : {types}", "} else {", f"scf.yield {', '.join(old)} : {types}", "}"]
        return [Value(f"{result}#{k}", f32) for k in range(len(old))]

    def over_lanes(self, largest: Value) -> Value:
        """No lane is NaN."""
        text = f"vector.reduction <maxnumf>, {largest} fastmath<nnan> : {self.floats.type_text(f32)} into f32"
        return self.e.builder(f32).emit(text, f32)

    def results(self, base: Value, largest: Value, sum_: Value) -> dict[Node, Value]:
        e, b = self.e, self.e.builder(f32)
        most = self.over_lanes(largest)
        first = b.emit(f"vector.extract {base}[0] : f32 from {self.floats.type_text(f32)}", f32)
        less = vector_math_exp.exp_of_at_most_zero(b, b.sub(first, most))
        wide = e.builder(f64)
        sum_ = b.cast(wide.mul(lanes_folded(e.builder(f64, True), "sum", sum_), wide.cast(less, f64)), f32)
        sum_ = b.add(sum_, b.sub(most, most))
        found = e.text.new_name()
        e.lines.append(f"{found} = scf.if {b.ne(sum_, sum_)} -> (f32) {{")
        with e.scope():
            again = self.loops.run_pass(self.first)[self.largest]
        e.lines += [f"scf.yield {again} : f32", "} else {", f"scf.yield {most} : f32", "}"]
        return {self.largest: Value(found, f32), self.total: sum_}


def higher(b: VectorBuilder, x: Value, largest: Value) -> Value:
    """The greater one, `largest` where x is NaN: one instruction."""
    return b.select(b.gt(x, largest), x, largest)

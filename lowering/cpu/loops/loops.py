"""The loops of a kernel as MLIR text: the outer axes, and inside them the passes over the inner axes.

    for row in my rows:                      outer axes; the threads share them
      for i in 0..n step 2*lanes:            a pass: two accumulators, so that additions overlap
        ...
      for i in rest step lanes:              masked
      fold the lanes
      for i in ...                           the next pass

A kernel without inner axes is one pass over all its axes.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch

from mlirc.dialects.core import symbols
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.emitter.memory import pointer, store
from mlirc.lowering.cpu.loops.fma_contraction import factors, with_product
from mlirc.lowering.cpu.loops.interleaving import interleaved, points_at_once
from mlirc.lowering.cpu.loops.online_softmax import joined_passes
from mlirc.lowering.cpu.loops.partial_reductions import Found, Partials, barrier
from mlirc.lowering.cpu.loops.prefetch import fetch_ahead, fetched_ahead
from mlirc.lowering.cpu.loops.reductions import LaneFold, block_of, folds_of, merged
from mlirc.lowering.cpu.loops.schedule import LoopSchedule, Pass
from mlirc.lowering.cpu.loops.segments import Segment, segments
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.kernel.axes import Axis
from mlirc.lowering.kernel.nodes import Access, Node, Output, terms


class Loops:
    """Writes the body of one kernel with an Emitter. `ranges` holds the part of an axis that this thread runs over."""

    def __init__(self, e: VectorEmitter, schedule: LoopSchedule, partials: Partials | None = None):
        self.e, self.schedule = e, schedule
        self.partials = partials  # where each thread runs over a part of the inner axes
        self.ranges: dict[Axis, tuple[Value, Value] | None] = {}
        self.multiples: dict[Axis, int | None] = {}
        self.skip = 0  # how many of the outermost axes are bound already
        self.ahead: list[Access] = []  # what this pass reads of the next row
        self.beside: Callable[[Value, int], None] | None = None  # other work at these vectors, ahead of the pass's

    def size(self, axis: Axis) -> Value:
        return self.e.integer(axis.size)

    def prepare(self) -> None:
        """Memory of the function's own, before the loops."""

    @contextmanager
    def part(self, axis: Axis, lo: Value, hi: Value, multiple: int) -> Iterator[None]:
        """Inside, `axis` runs from lo to hi, which are multiples of `multiple` but for its very end."""
        saved = self.ranges.get(axis), self.multiples.get(axis)
        self.ranges[axis], self.multiples[axis] = (lo, hi), math.gcd(multiple, saved[1] or 0)
        yield
        self.ranges[axis], self.multiples[axis] = saved

    def range(self, axis: Axis) -> tuple[Value, Value]:
        return self.ranges.get(axis) or (self.e.i64(0), self.size(axis))

    def in_parts(
        self, axis: Axis, most: int, state: list[Value], types: list[str], body: Callable[[list[Value]], list[Value]]
    ) -> list[Value]:
        """`body(state)` for one part of the axis after another, of at most `most` points each."""
        if axis.known is not None and axis.known <= most:
            return body(state)
        e, (lo, hi) = self.e, self.range(axis)

        def some(start: Value, state: list[Value]) -> list[Value]:
            end = e.index.minimum(e.index.add(start, e.i64(most)), hi)
            with self.part(axis, start, end, most):
                return body(state)

        return e.loop(lo, hi, e.i64(most), state, types, some)

    # ---- around the passes

    def start(self) -> None:
        """All loops but those over the first `skip` axes."""
        if self.schedule.outer:
            self.point_loops(self.schedule.outer[self.skip :])
        else:
            self.passes()

    def point_loops(self, axes: Sequence[Axis]) -> None:
        """Loops over the outer axes that are left, then all passes."""
        e = self.e
        if not axes:
            self.passes()
            return
        axis, rest = axes[0], axes[1:]
        if axis is self.schedule.vector.axis and e.lanes > 1:
            self.vector_loop(axis, lambda state, copy: (self.point_loops(rest), state)[1], [], [], 1)
            return

        lo, hi = self.range(axis)
        with e.each(lo, hi) as index:
            e.env[axis.name] = index
            e.enter(axis.name)
            self.point_loops(rest)

    def passes(self) -> None:
        e, schedule = self.e, self.schedule
        self.run_passes(0, len(schedule.passes))
        e.nodes, e.accesses, e.saved = (), (), {}
        if self.partials:
            # later threads need no value of this point any more, nor memory that the outputs may overwrite
            for output in schedule.outer_outputs:
                self.precompute(output.node)
            barrier(e)
            e.lines.append(f"scf.if {e.index.eq(e.env['thread'], e.i64(0))} {{")
        self.write_outer()
        if self.partials:
            e.lines.append("}")

    def run_passes(self, first: int, end: int) -> None:
        left = iter(range(first, end))
        for k in left:
            self.enter_pass(k)
            joined = joined_passes(self, k)
            self.e.env.update(joined.emit() if joined else self.run_pass(self.schedule.passes[k]))
            if joined:
                next(left)

    def enter_pass(self, number: int) -> None:
        e, step = self.e, self.schedule.passes[number]
        e.nodes = step.nodes
        e.saved = {node: access for node, (first, access) in self.schedule.saved.items() if first <= number}
        e.accesses = accesses_of(step, e.saved)
        self.ahead = fetched_ahead(self.schedule, step)
        e.enter()

    def precompute(self, node: Node) -> None:
        self.e.value(node)

    def write_outer(self) -> None:
        for output in self.schedule.outer_outputs:
            self.e.value(output.node)
        for output in self.schedule.outer_outputs:
            store(self.e, output.access, output.node)

    # ---- one pass

    def run_pass(self, step: Pass) -> dict[Node, Value]:
        """Emits the pass; gives what its reductions came to."""
        e, schedule = self.e, self.schedule
        lower = folds_of(step.scans + step.reductions, self.lanes_of)
        copies = self.copies(step)
        upper = [replace(f, upper=True, exact=True) for f in lower] if self.has_two_levels(step, copies) else None
        held = upper or lower * copies
        state = [x for f in held for x in f.start(self.builder(f))]
        types = [self.builder(f).type_text(t) for f in held for t in f.dtypes]
        run = partial(self.run, step, lower, upper, copies)
        state = self.nest(schedule.axes[self.first_axis : -1], state, types, run) if schedule.axes else self.once(step)
        state = merged(self.builder, lower if upper is None else upper, state)
        found = []
        for fold in upper or lower:
            values, state = state[: len(fold.dtypes)], state[len(fold.dtypes) :]
            if fold.node.kind == "reduce":
                wide = e.is_wide(fold.node)
                found.append(Found(fold, wide, values if wide else fold.across(self.builder(fold), values)))
        if self.partials and found:
            found = self.partials.combine(found)
        return {fold.node: fold.result(e.builder(fold.dtype, f.wide), f.values) for f in found for fold in f.fold.each}

    @property
    def first_axis(self) -> int:
        """The first axis of a pass that is not bound yet."""
        return 0 if self.schedule.outer else self.skip

    def once(self, step: Pass) -> list[Value]:
        """A space without axes: one point."""
        self.body(step, [], [], None)
        return []

    def lanes_of(self, node: Node) -> int:
        """Accumulators are vectors where the lanes are points of the pass, or of the result."""
        return self.e.lanes if self.schedule.vector_inside or self.e.is_wide(node) else 1

    def builder(self, fold: LaneFold):
        return self.e.builder(fold.dtype, fold.lanes > 1)

    def copies(self, step: Pass) -> int:
        return points_at_once(step, self.schedule.run_axis, self.step, bool(self.schedule.outer))

    @property
    def step(self) -> int:
        """Points of the innermost loop that one iteration takes."""
        return self.e.lanes if self.schedule.vector_inside else 1

    def has_two_levels(self, step: Pass, copies: int) -> bool:
        """LONG SUM: of floating-point numbers, and more additions to one lane than a block has."""
        sums = [
            n for n in step.reductions if n.attributes["kind"] == "sum" and n.dtype in (torch.float32, torch.float64)
        ]
        count = symbols.product(a.size for a in self.schedule.axes)
        most = block_of(step.reductions) * copies * self.step
        return bool(sums) and not step.scans and not (isinstance(count, int) and count <= most)

    def nest(self, axes: Sequence[Axis], state: list[Value], types: list[str], run) -> list[Value]:
        """Loops over all axes of the pass but the last, and `run(state, types)` inside."""
        if not axes:
            return run(state, types)
        e, axis = self.e, axes[0]

        def body(index: Value, state: list[Value]) -> list[Value]:
            e.env[axis.name] = index
            e.enter(axis.name)
            return self.nest(axes[1:], state, types, run)

        lo, hi = self.range(axis)
        return e.loop(lo, hi, e.i64(1), state, types, body)

    def run(
        self, step: Pass, lower: list[LaneFold], upper: list[LaneFold] | None, copies: int, state, types
    ) -> list[Value]:
        """The innermost axis; with two levels in blocks, each of which starts anew and is added to the upper level."""
        axis = self.schedule.run_axis
        assert axis is not None
        if upper is None:
            return self.innermost(step, lower, copies, state, types, axis)
        most = block_of(step.reductions) * copies * self.step
        return self.in_parts(axis, most, state, types, lambda s: self.block(step, lower, upper, copies, s, axis))

    def block(
        self, step: Pass, lower: list[LaneFold], upper: list[LaneFold], copies: int, state, axis: Axis
    ) -> list[Value]:
        start = [x for f in lower * copies for x in f.start(self.builder(f))]
        types = [self.builder(f).type_text(t) for f in lower * copies for t in f.dtypes]
        inner = merged(self.builder, lower, self.innermost(step, lower, copies, start, types, axis))
        result = []
        for fold, below in zip(upper, lower, strict=True):
            mine, inner = inner[: len(below.dtypes)], inner[len(below.dtypes) :]
            above = state[len(result) : len(result) + len(fold.dtypes)]
            result += fold.merge(self.builder(below), above, mine)
        return result

    def innermost(self, step: Pass, lower: list[LaneFold], copies: int, state, types, axis: Axis) -> list[Value]:
        e = self.e
        cut = segments(step.nodes, axis, self.step)
        in_blocks = self.ranges.get(axis) is not None and bool(lower or self.schedule.block)
        if not cut or (in_blocks and not any(part.reads for part in cut)):
            return self.along(step, lower, copies, state, types, axis)
        for part, (lo, hi, multiple) in zip(cut, self.ends(axis, cut), strict=True):
            with self.part(axis, lo, hi, multiple), e.scope():
                for node, holds in part.known.items():
                    e.env[node] = e.builder(torch.bool, e.is_wide(node)).constant(holds)
                if multiple % self.step:
                    e.non_temporal = {}  # vectors do not begin at multiples of their size
                if part.reads:
                    e.reads = part.reads
                    for access in part.reads.values():
                        pointer(e, access)
                state = self.along(step, lower, copies, state, types, axis)
        return state

    def ends(self, axis: Axis, cut: Sequence[Segment]) -> Iterator[tuple[Value, Value, int]]:
        """What each segment has of this thread's part of the axis: its first index, its end, and a number that divides both."""
        e, b, within = self.e, self.e.index, self.ranges.get(axis)
        lo, stop = self.range(axis)
        for part in cut:
            hi = stop if part is cut[-1] else e.integer(part.hi)
            if within is not None or not isinstance(axis.size, int):
                hi = hi if part is cut[-1] else b.maximum(b.minimum(hi, stop), lo)
            if isinstance(part.lo, int) and isinstance(part.hi, int):
                yield lo, hi, math.gcd(part.lo, part.hi, 0 if within is None else self.multiples.get(axis) or 1)
            else:
                yield lo, hi, 1
            lo = hi

    def along(self, step: Pass, lower: list[LaneFold], copies: int, state, types, axis: Axis) -> list[Value]:
        """The loop over the innermost axis, by vectors or point by point."""
        width = len(state) // copies if copies else 0

        def body(state: list[Value], copy: int) -> list[Value]:
            mine = slice(copy * width, (copy + 1) * width)
            return state[: mine.start] + self.body(step, lower, state[mine], axis) + state[mine.stop :]

        if self.step > 1:
            return self.vector_loop(axis, body, state, types, copies)
        return self.scalar_loop(axis, body, state, types, copies)

    def scalar_loop(self, axis: Axis, body, state, types, copies: int) -> list[Value]:
        e = self.e
        lo, hi = self.range(axis)
        if copies > 1:
            main, exact = self.main_end(axis, lo, hi, copies)
            state = e.loop(lo, main, e.i64(copies), state, types, partial(self.copied, axis, body, copies))
            if exact:
                return state
            lo = main
        return e.loop(lo, hi, e.i64(1), state, types, partial(self.copied, axis, body, 1))

    def vector_loop(self, axis: Axis, body, state, types, copies: int, group=None) -> list[Value]:
        """Full vectors, `copies` of them at a time, then masked ones up to the end.

        `body(state, copy)` is one vector, `group(copies, index, state)` several; one of the two is given.
        """
        e, group = self.e, group or partial(self.copied, axis, body)
        lo, hi = self.range(axis)
        main, exact = self.main_end(axis, lo, hi, copies * e.lanes)
        if exact is not None:
            state = e.loop(lo, main, e.i64(copies * e.lanes), state, types, partial(group, copies))
        if exact:
            return state
        full = self.divisor(axis) % e.lanes == 0

        def masked(index: Value, state: list[Value]) -> list[Value]:
            if not full:
                left = e.index.sub(hi, index)
                b = e.builder(torch.int64, True)
                e.mask = b.lt(e.lane_numbers(), e.splat(left))
            return group(1, index, state)

        return e.loop(main, hi, e.i64(e.lanes), state, types, masked)

    def main_end(self, axis: Axis, lo: Value, hi: Value, step: int) -> tuple[Value, bool | None]:
        """The end of the loop in steps of `step`, and whether no index is left behind it; None where the loop has no iteration."""
        e, b = self.e, self.e.index
        first, last = e.text.constant_values.get(lo), e.text.constant_values.get(hi)
        if isinstance(first, int) and isinstance(last, int):
            count = (last - first) // step * step
            return e.i64(first + count), None if count == 0 else first + count == last
        if self.divisor(axis) % step == 0:
            return hi, True
        length = b.sub(hi, lo)
        return b.add(lo, b.sub(length, b.rem(length, e.i64(step)))), False

    def divisor(self, axis: Axis) -> int:
        """A number that divides the length of the loop over `axis`."""
        whole = math.gcd(*(c for _, c in terms(axis.size)))
        return math.gcd(whole, self.multiples.get(axis) or 0)

    def copied(self, axis: Axis, body, copies: int, index: Value, state: list[Value]) -> list[Value]:
        e, parts = self.e, []
        if self.beside is not None and axis is self.schedule.run_axis:
            self.beside(index, copies)
        for copy in range(copies):
            with e.scope(), e.apart() as lines:
                e.env[axis.name] = e.index.add(index, e.i64(copy * self.step_of(axis))) if copy else index
                if self.enters(axis):
                    e.enter(axis.name)
                e.bound.add(axis.name)
                if axis is self.schedule.run_axis:
                    fetch_ahead(e, self.schedule, self.ahead, copy)
                state = body(state, copy)
            parts.append(lines)
        e.lines += interleaved(parts)
        return state

    def enters(self, axis: Axis) -> bool:
        """Whether there is a loop inside that of `axis`."""
        return axis not in self.schedule.axes

    def step_of(self, axis: Axis) -> int:
        return self.e.lanes if axis is self.schedule.vector.axis else 1

    # ---- one point, or one vector of points

    def body(self, step: Pass, folds: list[LaneFold], state: list[Value], axis: Axis | None) -> list[Value]:
        """Scans, reductions, then stores: an output may be the memory of what is read here."""
        e, result = self.e, []
        for fold in folds:
            wide = fold.lanes > 1
            b = self.builder(fold)
            mask = e.mask if self.schedule.vector_inside else None
            product = factors(e, fold)
            if product is not None:
                result.append(with_product(b, state[len(result)], product, mask))
                continue
            x = e.operand(fold.node.operands[0], wide)
            if mask is not None:
                x = b.select(mask, x, b.constant(fold.identity, x.dtype))
            index = e.position(self.schedule.axes, wide) if fold.positional else None
            mine = state[len(result) : len(result) + len(fold.dtypes)]
            if fold.node.kind == "scan" and self.schedule.vector_inside:
                mine, value = fold.along(b, mine, x)
            else:
                mine = fold.step(b, mine, x, index)
                value = mine[0]
            result += mine
            if fold.node.kind == "scan":
                e.env[fold.node] = b.cast(value, fold.node.dtype)
        for node, _ in step.keeps:
            e.value(node)
        for output in step.outputs:
            e.value(output.node)
        for node, access in step.keeps:
            store(e, access, node)
        for output in step.outputs:
            self.write(output)
        return result

    def write(self, output: Output) -> None:
        store(self.e, output.access, output.node)


def accesses_of(step: Pass, saved: dict[Node, Access]) -> list[Access]:
    found = [saved.get(n) or n.access for n in step.nodes if n in saved or n.access]
    return found + [o.access for o in step.outputs] + [access for _, access in step.keeps]

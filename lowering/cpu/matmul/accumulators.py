"""Sums in registers, which every micro-kernel has: a step along k, and a loop over k that is unrolled with several accumulators."""

from collections.abc import Callable, Iterable, Sequence

from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.emitter.scope import Range
from mlirc.lowering.cpu.math.builder import Value


def rank_one_update(
    rows: Iterable[Value], columns: Sequence[Value], sums: Sequence[Value], add: Callable[[Value, Value, Value], Value]
) -> list[Value]:
    """sums[i * len(columns) + j] + rows[i] * columns[j], as `add(row, column, sum)` computes it. `rows` may load a row when it is asked for."""
    given = iter(sums)
    return [add(x, y, next(given)) for x in rows for y in columns]


def unrolled_sums(
    e: VectorEmitter,
    within: Range,
    step: int,
    start: Sequence[Value],
    copies: int,
    add: Callable[[Value, list[Value]], list[Value]],
    before: Callable[[Value, int], None] | None = None,
    rest: bool = True,
) -> list[Value]:
    """`add(k, sums)` for all whole steps `within`, from the sums `start` on: a step is a power of two. `copies` sets of sums, of which one
    iteration has a step each, hide the latency of an FMA; they are added at the end.

    before   is written before an iteration, given k and the number of its steps
    rest     whether there may be steps left, fewer than `copies`, which are done one by one
    """
    b, wide, size, many = e.index, e.builder(start[0].dtype, True), len(start), copies * step
    lo, hi = within
    whole = b.sub(hi, b.binary("arith.remui", b.sub(hi, lo), e.i64(many))) if many > 1 else hi

    def loop(lo: Value, hi: Value, sums: Sequence[Value], copies: int) -> list[Value]:
        def once(k: Value, sums: list[Value]) -> list[Value]:
            if before:
                before(k, copies)
            made: list[Value] = []
            for u in range(copies):
                made += add(e.index.add(k, e.i64(u * step)) if u else k, sums[u * size : (u + 1) * size])
            return made

        return e.loop(lo, hi, e.i64(copies * step), sums, [wide.type_text(wide.dtype)] * len(sums), once)

    every = loop(lo, whole, [*start, *[wide.constant(0.0)] * (size * (copies - 1))], copies)
    sums = every[:size]
    for u in range(1, copies):
        sums = [wide.add(x, y) for x, y in zip(sums, every[u * size : (u + 1) * size], strict=True)]
    if copies == 1 or not rest:
        return sums
    return loop(whole, b.and_(hi, e.i64(-step)) if step > 1 else hi, sums, 1)

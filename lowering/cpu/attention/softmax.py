"""The online softmax between attention's two matmuls, on a block of scores [keys, W] in scratch: one query a lane.

For each query there is the `largest` score so far, the `total` of the exponentials of its keys so far, and the `factor` that
what was summed before the current block shrinks by.
"""

import math

import torch

from mlirc.dialects.core.tensor_types import TensorInfo
from mlirc.lowering.cpu.attention.call import AttentionProblem
from mlirc.lowering.cpu.attention.scores import NOTHING, Scores
from mlirc.lowering.cpu.emitter.addresses import advance, lanes_below, load_scratch, store_scratch
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.emitter.scratch import take_floats
from mlirc.lowering.cpu.math.builder import Value, VectorBuilder
from mlirc.lowering.cpu.math.floats import ROUNDING, nearest_integer, polynomial, scaled, shift_left, uses_avx512
from mlirc.lowering.cpu.math.functions import MATH

LN2 = math.log(2)
_BIASED = ROUNDING + 127  # added to n, it leaves the exponent of 2^n in the lowest bits
_LEAST_NORMAL = -87.3  # e^x is above 2^-126
# e^r on [-ln(2)/2, ln(2)/2], relative error 2^-23.4: a term less than `exp` has. It counts beside eight multiplications for each exponential.
_EXP = (0.008290272206068039, 0.04189816117286682, 0.1666763871908188, 0.4999914765357971, 0.9999997019767761, 1.0)


class PanelSoftmax(Scores):
    """The online softmax of several panels of queries, one of which has its scores in scratch at a time."""

    def __init__(self, e: VectorEmitter, a: AttentionProblem, scores: Value, vectors: int, panels: int):
        super().__init__(e, a, scores, vectors)
        self.every_largest, self.every_total = (take_floats(e, panels * self.width) for _ in range(2))
        self.factor = take_floats(e, self.width)

    def select_panel(self, panel: Value) -> None:
        """Points at the state of this panel, for the code that follows in this scope."""
        offset = self.e.index.mul(panel, self.e.i64(self.width))
        self.largest, self.total = (advance(self.e, x, offset) for x in (self.every_largest, self.every_total))

    def start(self) -> None:
        for half in range(self.vectors):
            store_scratch(self.e, self.wide.constant(NOTHING), self.part(self.largest, half))
            store_scratch(self.e, self.wide.constant(0.0), self.part(self.total, half))

    def step(self, count: Value) -> None:
        """The scores of `count` keys become exponentials."""
        e, wide, halves = self.e, self.wide, range(self.vectors)
        type_ = wide.type_text(torch.float32)
        before = [load_scratch(e, self.part(self.largest, half)) for half in halves]

        def compare(i: Value, state: list[Value]) -> list[Value]:
            read = [load_scratch(e, self.part(self.row(i), k)) for k in halves]
            # a score that is NaN is none larger, and shows in the exponentials
            return [wide.select(wide.gt(x, most), x, most) for x, most in zip(read, state, strict=True)]

        largest = e.loop(e.i64(0), count, e.i64(1), before, [type_] * self.vectors, compare)
        reference, earlier = [], []
        for half in halves:
            reference.append(reference_of(wide, largest[half]))
            factor = exponential(wide, wide.sub(before[half], reference[half]))
            store_scratch(e, largest[half], self.part(self.largest, half))
            store_scratch(e, factor, self.part(self.factor, half))
            earlier.append(wide.mul(load_scratch(e, self.part(self.total, half)), factor))

        def raise_all(i: Value, state: list[Value]) -> list[Value]:
            row, sums = self.row(i), []
            for half, total in enumerate(state):
                address = self.part(row, half)
                raised = exponential(wide, wide.sub(load_scratch(e, address), reference[half]))
                store_scratch(e, raised, address)
                sums.append(wide.add(total, raised))
            return sums

        # the sum of a block is added as one, so that errors do not grow with the blocks
        none = [wide.constant(0.0)] * self.vectors
        totals = e.loop(e.i64(0), count, e.i64(1), none, [type_] * self.vectors, raise_all)
        for half in halves:
            store_scratch(e, wide.add(earlier[half], totals[half]), self.part(self.total, half))

    def finish(self, lse: Value, first: Value, queries: Value) -> list[Value]:
        """Writes the logarithm of each query's total, and gives what its sums are to be multiplied by."""
        e, inverse = self.e, []
        for half in range(self.vectors):
            total = load_scratch(e, self.part(self.total, half))
            largest = load_scratch(e, self.part(self.largest, half))
            factor, value = self.finished(total, largest)
            inverse.append(factor)
            self.store_numbers(value, lse, self.a.lse, e.index.add(first, e.i64(half * e.lanes)), queries)
        return inverse

    def finished(self, total: Value, largest: Value) -> tuple[Value, Value]:
        return finished(self.wide, total, largest)

    def store_numbers(self, value: Value, place: Value, info: TensorInfo, first: Value, queries: Value) -> None:
        """Writes a number for each query from `first` on, to a tensor [B, H, L] that begins at `place` for this head."""
        e, b = self.e, self.e.builder(torch.int64, True)
        offsets = b.mul(b.add(e.lane_numbers(), e.splat(first)), e.splat(e.integer(info.stride[2])))
        pointers = e.index.emit(
            f"llvm.getelementptr {place}[{offsets}] : (!llvm.ptr, vector<{e.lanes}xi64>) -> "
            f"vector<{e.lanes}x!llvm.ptr>, f32",
            torch.int64,
        )
        inside = lanes_below(e, e.index.sub(queries, first))
        e.lines.append(
            f"llvm.intr.masked.scatter {value}, {pointers}, {inside} {{alignment = 4 : i32}} : "
            f"{self.wide.type_text(torch.float32)}, {self.wide.type_text(torch.bool)} into vector<{e.lanes}x!llvm.ptr>"
        )


def reference_of(b: VectorBuilder, largest: Value) -> Value:
    """What is subtracted from scores: the largest. Where no key is seen yet, 0: all exponentials are 0, not of -inf less -inf."""
    return b.select(b.eq(largest, b.constant(NOTHING)), b.constant(0.0), largest)


def finished(b: VectorBuilder, total: Value, largest: Value) -> tuple[Value, Value]:
    """What sums are multiplied by, and the logarithm of the exponentials' sum; of a query that sees no key 0 for both, as in eager."""
    zero = b.constant(0.0)
    none = b.eq(total, zero)
    inverse = b.select(none, zero, b.div(b.constant(1.0), total))
    return inverse, b.select(none, zero, b.add(largest, MATH["log"](b, total)))


def exponential(b: VectorBuilder, x: Value) -> Value:
    """e^x for x <= 0 (or little above) and NaN, to three units in the last place; 0 below -87.3, where it is denormal: each product with
    a value would take some hundred cycles. One part of ln 2 will do: its error grows with -x, while the exponential shrinks."""
    if uses_avx512(b):
        normal = b.not_(b.lt(x, b.constant(_LEAST_NORMAL)))
        x = b.maximum(x, b.constant(_LEAST_NORMAL))
        n, shifted = nearest_integer(b, x, 1 / LN2)
        made = scaled(b, polynomial(b, b.fma(n, b.constant(-LN2), x), _EXP), n, shifted)
        return b.select(normal, made, b.constant(0.0))
    x = b.maximum(x, b.constant(-88.0))  # times 1 / ln 2 it is nearest to -127, whose exponential of two comes out as 0
    shifted = b.fma(x, b.constant(1 / LN2), b.constant(_BIASED))
    n = b.sub(shifted, b.constant(_BIASED))
    scale = b.bitcast(shift_left(b, b.bitcast(shifted, torch.int32), 23), torch.float32)
    return b.mul(polynomial(b, b.fma(n, b.constant(-LN2), x), _EXP), scale)

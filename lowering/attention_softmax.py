"""The softmax between attention's two products, on a block of scores [keys, W] in scratch: one query a lane.

For each query there is the `largest` score so far, the `total` of the powers of its keys so far, and the `factor` that
what was summed before the current block shrinks by.
"""

import math

import torch

from mlirc.lowering.attention_call import Attention
from mlirc.lowering.attention_memory import (
    advance,
    gather,
    lanes_below,
    load_masked,
    load_scalar,
    load_vector,
    row_offsets,
    scratch,
    store_vector,
)
from mlirc.lowering.kernel_emitter import Emitter
from mlirc.lowering.kernel_squares import transposed
from mlirc.lowering.vector_builder import Value, VectorBuilder
from mlirc.lowering.vector_math import MATH
from mlirc.lowering.vector_math_floats import nearest_integer, polynomial, scaled

NOTHING = -math.inf
LN2 = math.log(2)
# e^r on [-ln(2)/2, ln(2)/2], relative error 2^-23.4: a term less than `exp` has. It counts among eight products a power.
_POWER = (0.008290272206068039, 0.04189816117286682, 0.1666763871908188, 0.4999914765357971, 0.9999997019767761, 1.0)


class Softmax:
    def __init__(self, e: Emitter, a: Attention, scores: Value, vectors: int):
        self.e, self.a, self.scores, self.vectors = e, a, scores, vectors
        self.width = vectors * e.lanes
        self.largest, self.total, self.factor = (scratch(e, self.width) for _ in range(3))

    @property
    def wide(self):
        return self.e.builder(torch.float32, True)

    def part(self, place: Value, half: int) -> Value:
        return advance(self.e, place, self.e.i64(half * self.e.lanes))

    def start(self) -> None:
        for half in range(self.vectors):
            store_vector(self.e, self.wide.constant(NOTHING), self.part(self.largest, half))
            store_vector(self.e, self.wide.constant(0.0), self.part(self.total, half))

    def step(self, mask: Value | None, first: Value, queries: Value, key: Value, count: Value) -> None:
        """The scores of `count` keys from `key` on become powers."""
        if mask is not None:
            self.apply_mask(mask, first, queries, key, count)
        if self.a.causal != "none":
            self.hide_later_keys(first, key, count)
        e, wide, halves = self.e, self.wide, range(self.vectors)
        type_ = wide.type_text(torch.float32)
        before = [load_vector(e, self.part(self.largest, half)) for half in halves]

        def compare(i: Value, state: list[Value]) -> list[Value]:
            row = self.row(i)
            return [wide.maximum(largest, load_vector(e, self.part(row, k))) for k, largest in enumerate(state)]

        largest = e.loop(e.i64(0), count, e.i64(1), before, [type_] * self.vectors, compare)
        reference, totals = [], []
        for half in halves:
            # where no key is seen yet all powers are 0, and not of -inf less -inf
            none = wide.eq(largest[half], wide.constant(NOTHING))
            reference.append(wide.select(none, wide.constant(0.0), largest[half]))
            factor = power(wide, wide.sub(before[half], reference[half]))
            store_vector(e, largest[half], self.part(self.largest, half))
            store_vector(e, factor, self.part(self.factor, half))
            totals.append(wide.mul(load_vector(e, self.part(self.total, half)), factor))

        def raise_all(i: Value, state: list[Value]) -> list[Value]:
            row, sums = self.row(i), []
            for half, total in enumerate(state):
                address = self.part(row, half)
                raised = power(wide, wide.sub(load_vector(e, address), reference[half]))
                store_vector(e, raised, address)
                sums.append(wide.add(total, raised))
            return sums

        totals = e.loop(e.i64(0), count, e.i64(1), totals, [type_] * self.vectors, raise_all)
        for half in halves:
            store_vector(e, totals[half], self.part(self.total, half))

    def row(self, i: Value) -> Value:
        return advance(self.e, self.scores, self.e.index.mul(i, self.e.i64(self.width)))

    def finish(self, lse: Value, first: Value, queries: Value) -> list[Value]:
        """Writes the logarithm of each query's total, and gives what its sums are to be multiplied with.

        A query that sees no key gives 0 for both, as in eager."""
        e, wide, inverse = self.e, self.wide, []
        for half in range(self.vectors):
            total = load_vector(e, self.part(self.total, half))
            largest = load_vector(e, self.part(self.largest, half))
            none = wide.eq(total, wide.constant(0.0))
            inverse.append(wide.select(none, wide.constant(0.0), wide.div(wide.constant(1.0), total)))
            logarithm = wide.add(largest, MATH["log"](wide, total))
            value = wide.select(none, wide.constant(0.0), logarithm)
            offset = e.index.add(first, e.i64(half * e.lanes))
            b = e.builder(torch.int64, True)
            offsets = b.mul(b.add(e.lane_numbers(), e.splat(offset)), e.splat(e.integer(self.a.lse.stride[2])))
            pointers = e.index.emit(
                f"llvm.getelementptr {lse}[{offsets}] : (!llvm.ptr, vector<{e.lanes}xi64>) -> "
                f"vector<{e.lanes}x!llvm.ptr>, f32",
                torch.int64,
            )
            inside = lanes_below(e, e.index.sub(queries, offset))
            e.lines.append(
                f"llvm.intr.masked.scatter {value}, {pointers}, {inside} {{alignment = 4 : i32}} : "
                f"{wide.type_text(torch.float32)}, {wide.type_text(torch.bool)} into vector<{e.lanes}x!llvm.ptr>"
            )
        return inverse

    # ---- masks

    def hide_later_keys(self, first: Value, key: Value, count: Value) -> None:
        """Query i sees the keys up to i + diagonal."""
        e, b, wide = self.e, self.e.index, self.wide
        ahead = b.sub(key, b.add(first, e.integer(self.a.diagonal)))  # of the first key before the first query
        start = b.minimum(b.maximum(b.sub(e.i64(1), ahead), e.i64(0)), count)

        def hide(i: Value, state: list[Value]) -> list[Value]:
            row = self.row(i)
            for half in range(self.vectors):
                address = self.part(row, half)
                later = b.sub(b.add(ahead, i), e.i64(half * e.lanes))
                seen = e.builder(torch.int64, True).ge(e.lane_numbers(), e.splat(later))
                store_vector(e, wide.select(seen, load_vector(e, address), wide.constant(NOTHING)), address)
            return state

        e.loop(start, count, e.i64(1), [], [], hide)

    def apply_mask(self, mask: Value, first: Value, queries: Value, key: Value, count: Value) -> None:
        """Adds the mask, or hides the keys for which it is false."""
        info, e, b = self.a.mask, self.e, self.e.index
        assert info is not None
        along, within = (
            e.i64(0) if n == 1 else e.integer(s) for n, s in zip(info.shape[2:], info.stride[2:], strict=True)
        )
        start = advance(e, mask, b.mul(key, within), info.dtype)
        same_for_all = info.shape[2] == 1 or info.stride[2] == 0
        if not same_for_all and info.shape[3] != 1 and info.stride[3] == 1:
            self.apply_squares(start, first, queries, count, along)
            return
        offsets = [row_offsets(e, first, half, queries, along) for half in range(self.vectors)]

        def one(i: Value, state: list[Value]) -> list[Value]:
            here = advance(e, start, b.mul(i, within), info.dtype)
            if same_for_all:
                self.apply_row(i, [e.splat(load_scalar(e, here, info.dtype))] * self.vectors)
            else:
                self.apply_row(i, [gather(e, here, x, info.dtype) for x in offsets])
            return state

        e.loop(e.i64(0), count, e.i64(1), [], [], one)

    def apply_squares(self, mask: Value, first: Value, queries: Value, count: Value, along: Value) -> None:
        """A mask whose rows lie side by side: squares of it are turned."""
        e, b, info = self.e, self.e.index, self.a.mask
        assert info is not None
        last = b.sub(queries, e.i64(1))

        def square(i: Value, state: list[Value]) -> list[Value]:
            inside = lanes_below(e, b.sub(count, i))
            for half in range(self.vectors):
                rows = []
                for lane in range(e.lanes):
                    row = b.minimum(b.add(first, e.i64(half * e.lanes + lane)), last)
                    address = advance(e, mask, b.add(b.mul(row, along), i), info.dtype)
                    rows.append(load_masked(e, address, info.dtype, inside))
                for k, column in enumerate(transposed(e, rows)):
                    self.apply_half(b.add(i, e.i64(k)), half, column)
            return state

        e.loop(e.i64(0), count, e.i64(e.lanes), [], [], square)

    def apply_row(self, i: Value, values: list[Value]) -> None:
        for half, value in enumerate(values):
            self.apply_half(i, half, value)

    def apply_half(self, i: Value, half: int, value: Value) -> None:
        e, wide = self.e, self.wide
        info = self.a.mask
        assert info is not None
        address = self.part(self.row(i), half)
        score = load_vector(e, address)
        if info.dtype == torch.bool:
            changed = wide.select(wide.ne(value, wide.constant(0.0)), score, wide.constant(NOTHING))
        else:
            changed = wide.add(value, score)
        store_vector(e, changed, address)


def power(b: VectorBuilder, x: Value) -> Value:
    """e^x for x <= 0 and NaN, to three units in the last place; 0 below -104. One part of ln 2 will do: its error grows
    with -x, while the power shrinks."""
    x = b.maximum(x, b.constant(-104.0))
    n, shifted = nearest_integer(b, x, 1 / LN2)
    r = b.fma(n, b.constant(-LN2), x)
    return scaled(b, polynomial(b, r, _POWER), n, shifted)

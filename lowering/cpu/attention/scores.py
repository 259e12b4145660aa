"""A block of scores [keys, W] in scratch, one query a lane, and its masks."""

import math

import torch

from mlirc.lowering.cpu.attention.call import AttentionProblem
from mlirc.lowering.cpu.attention.memory import row_offsets
from mlirc.lowering.cpu.emitter.addresses import (
    advance,
    gather,
    lanes_below,
    load_floats,
    load_scalar,
    load_scratch,
    store_scratch,
)
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.emitter.scratch import take_floats
from mlirc.lowering.cpu.math.builder import Value, VectorBuilder
from mlirc.lowering.cpu.matmul.transposes import transpose_in_scratch

NOTHING = -math.inf


class Scores:
    """The masks of `a` on the scores, whose rows are so many vectors."""

    def __init__(self, e: VectorEmitter, a: AttentionProblem, scores: Value, vectors: int):
        self.e, self.a, self.scores, self.vectors = e, a, scores, vectors
        self.width = vectors * e.lanes
        if self.transposes_mask:
            self.square, self.transposed = (take_floats(e, e.lanes * e.lanes) for _ in range(2))

    @property
    def wide(self):
        return self.e.builder(torch.float32, True)

    def part(self, place: Value, half: int) -> Value:
        return advance(self.e, place, self.e.i64(half * self.e.lanes))

    def row(self, i: Value) -> Value:
        return advance(self.e, self.scores, self.e.index.mul(i, self.e.i64(self.width)))

    def hide(self, mask: Value | None, first: Value, queries: Value, key: Value, count: Value) -> None:
        """Applies the masks to the scores of `count` keys from `key` on and the queries from `first` on. `queries` is the number of all."""
        if mask is not None:
            self.apply_mask(mask, first, queries, key, count)
        if self.a.causal != "none":
            self.hide_later_keys(first, key, count)

    def hide_later_keys(self, first: Value, key: Value, count: Value) -> None:
        """Applies a causal mask to the scores of `count` keys from `key` on and the queries from `first` on: query i sees the keys
        up to i + diagonal."""
        e, b, wide = self.e, self.e.index, self.wide
        ahead = b.sub(key, b.add(first, e.integer(self.a.diagonal)))  # of the first key before the first query
        start = b.minimum(b.maximum(b.sub(e.i64(1), ahead), e.i64(0)), count)

        with e.each(start, count) as i:
            row = self.row(i)
            for half in range(self.vectors):
                address = self.part(row, half)
                later = b.sub(b.add(ahead, i), e.i64(half * e.lanes))
                seen = e.builder(torch.int64, True).ge(e.lane_numbers(), e.splat(later))
                store_scratch(e, wide.select(seen, load_scratch(e, address), wide.constant(NOTHING)), address)

    @property
    def same_for_all(self) -> bool:
        """Whether all queries have one row of the mask."""
        info = self.a.mask
        return info is not None and (info.shape[2] == 1 or info.stride[2] == 0)

    @property
    def transposes_mask(self) -> bool:
        """Whether the mask's elements lie side by side along the keys, and differ from query to query."""
        info = self.a.mask
        return info is not None and not self.same_for_all and info.shape[3] != 1 and info.stride[3] == 1

    def apply_mask(self, mask: Value, first: Value, queries: Value, key: Value, count: Value) -> None:
        """Adds the mask, or hides the keys for which it is false. `queries` is the number of all."""
        info, e, b = self.a.mask, self.e, self.e.index
        assert info is not None
        along, within = (
            e.i64(0) if n == 1 else e.integer(s) for n, s in zip(info.shape[2:], info.stride[2:], strict=True)
        )
        start = advance(e, mask, b.mul(key, within), info.dtype)

        def vector(lane: Value, state: list[Value]) -> list[Value]:
            here = b.add(first, lane)
            if self.transposes_mask:
                self.apply_transposed(
                    advance(e, start, b.mul(here, along), info.dtype), b.sub(queries, here), lane, count
                )
                return state
            offsets = row_offsets(e, here, queries, along)

            with e.each(0, count) as i:
                place = advance(e, start, b.mul(i, within), info.dtype)
                if self.same_for_all:
                    self.apply(i, lane, e.splat(load_scalar(e, place, info.dtype)))
                else:
                    self.apply(i, lane, gather(e, place, offsets, info.dtype))
            return state

        inside = b.minimum(e.i64(self.width), b.sub(queries, first))
        e.loop(e.i64(0), inside, e.i64(e.lanes), [], [], vector)

    def apply_transposed(self, mask: Value, rows: Value, lane: Value, count: Value) -> None:
        """Transposes square tiles of the mask: of as many queries as there are lanes, and at most `rows`."""
        e, b, info = self.e, self.e.index, self.a.mask
        assert info is not None
        along = e.integer(info.stride[2])

        with e.each(0, count, e.lanes) as i:
            inside = lanes_below(e, b.sub(count, i))

            with e.each(0, b.minimum(rows, e.i64(e.lanes))) as row:
                address = advance(e, mask, b.add(b.mul(row, along), i), info.dtype)
                here = advance(e, self.square, b.mul(row, e.i64(e.lanes)))
                store_scratch(e, load_floats(e, address, info.dtype, inside), here)
            transpose_in_scratch(e, self.square, e.i64(e.lanes), self.transposed, e.i64(e.lanes))
            with e.each(0, b.minimum(b.sub(count, i), e.i64(e.lanes))) as row:
                self.apply(
                    b.add(i, row), lane, load_scratch(e, advance(e, self.transposed, b.mul(row, e.i64(e.lanes))))
                )

    def apply(self, i: Value, lane: Value, value: Value) -> None:
        """Applies the mask `value` to the scores of the key in row i, for the queries from lane `lane` on."""
        e, info = self.e, self.a.mask
        assert info is not None
        address = advance(e, self.row(i), lane)
        store_scratch(e, masked(self.wide, info.dtype, value, load_scratch(e, address)), address)


def masked(b: VectorBuilder, dtype: torch.dtype, mask: Value, score: Value) -> Value:
    """A score with what the mask, of this dtype, says of it."""
    if dtype != torch.bool:
        return b.add(mask, score)
    return b.select(b.ne(mask, b.constant(0.0)), score, b.constant(NOTHING))

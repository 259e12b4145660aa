"""Attention of one query for each head, as in decoding: memory bandwidth decides, so each key is read once.

for (batch, head of keys), split among threads; the query's heads that share this head of keys are its rows:
  for block of keys:
    scores[rows, keys] = the rows times each key                 16 keys at a time, folded to one vector
    the mask; the largest score so far; exponentials = exp(scores - largest); their sums
    sums[rows, Dv] = sums * exp(old largest - largest) + exponentials @ values
  out = sums / the exponentials' sums

Vector lanes run along the elements of a head. In attention/function.py they run along queries, of which there is one here.
"""

import math

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.tensor_types import TensorInfo
from mlirc.lowering.cpu.attention.call import AttentionProblem
from mlirc.lowering.cpu.attention.memory import place_of
from mlirc.lowering.cpu.attention.scores import masked
from mlirc.lowering.cpu.attention.softmax import exponential, finished, reference_of
from mlirc.lowering.cpu.attention.writer import AttentionWriter, operands_of
from mlirc.lowering.cpu.emitter.addresses import (
    advance,
    gather,
    lanes_below,
    load_floats,
    load_scalar,
    load_scratch,
    store_floats,
    store_scalar,
    store_scratch,
)
from mlirc.lowering.cpu.emitter.register_transpose import across
from mlirc.lowering.cpu.emitter.scratch import take_floats
from mlirc.lowering.cpu.loops.frame import KernelText
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.cpu.matmul.accumulators import unrolled_sums
from mlirc.lowering.target import CpuTarget

KEYS = 512  # keys of a block: a multiple of the lanes of every vector
FOR_A_VECTOR = 8  # cost of a vector of a key or value, in the operations by which the number of threads is chosen
CHAINS = 8  # accumulators that hide the latency of an FMA, where a row of values has few vectors


def decodes(a: AttentionProblem) -> bool:
    """Whether this file's code covers the call: one query, and contiguous heads."""
    return a.q.shape[2] == 1 and all(x.stride[3] == 1 for x in (a.q, a.k, a.v))


def decode_text(a: AttentionProblem, name: str, target: CpuTarget) -> KernelText:
    return _DecodeWriter(a, name, target).write()


class _DecodeWriter(AttentionWriter):
    def __init__(self, a: AttentionProblem, name: str, target: CpuTarget):
        super().__init__(a, name, target, operands_of(a), a.symbols)
        # vectors in a row of keys, and in a row of values
        self.key_parts, self.value_parts = (self.padded(which) // self.lanes for which in ("k", "v"))

    @property
    def scalar(self):
        return self.e.builder(torch.float32)

    def write(self) -> KernelText:
        a, e = self.a, self.e
        self.begin()
        self.queries = take_floats(e, a.group * self.key_parts * self.lanes)
        self.scores = take_floats(e, a.group * KEYS)
        self.sums = take_floats(e, a.group * self.value_parts * self.lanes)
        self.totals = take_floats(e, a.group * self.lanes)
        self.largest = take_floats(e, a.group)
        batch, shared, keys = a.k.shape[:3]
        self.each_head(batch, shared, self.one_head)
        work = symbols.product([batch * shared, a.group, keys, FOR_A_VECTOR * (self.key_parts + self.value_parts)])
        return self.framed(work * 1, batch * shared)

    def rows(self, body) -> None:
        """`body(row)` for each head of the query that shares the keys."""

        def one(row: Value, state: list[Value]) -> list[Value]:
            body(row)
            return state

        if self.a.group == 1:
            body(self.e.i64(0))
        else:
            self.e.loop(self.e.i64(0), self.e.i64(self.a.group), self.e.i64(1), [], [], one)

    def part(self, place: Value, row: Value, vectors: int, number: int = 0) -> Value:
        """Vector `number` of a row of this many vectors in scratch."""
        b = self.e.index
        return advance(
            self.e, place, b.add(b.mul(row, self.e.i64(vectors * self.lanes)), self.e.i64(number * self.lanes))
        )

    def load_row(self, address: Value, rows: TensorInfo, number: int) -> Value:
        """Vector `number` of a row, as float32."""
        size = rows.shape[3]
        assert isinstance(size, int)
        here = advance(self.e, address, self.e.i64(number * self.lanes), rows.dtype)
        left = size - number * self.lanes
        if left >= self.lanes and rows.dtype == torch.float32:
            return load_floats(self.e, here)
        return load_floats(self.e, here, rows.dtype, lanes_below(self.e, self.e.i64(min(left, self.lanes))))

    # ---- one head of the keys

    def one_head(self, batch: Value, shared: Value) -> None:
        a, e, b = self.a, self.e, self.e.index
        first = b.mul(shared, e.i64(a.group))
        keys = place_of(e, e.env["k"], a.k, batch, shared)
        values = place_of(e, e.env["v"], a.v, batch, shared)

        def start(row: Value) -> None:
            query = place_of(e, e.env["q"], a.q, batch, b.add(first, row))
            for k in range(self.key_parts):
                value = self.wide.mul(self.load_row(query, a.q, k), self.wide.constant(a.scale))
                store_scratch(e, value, self.part(self.queries, row, self.key_parts, k))
            for k in range(self.value_parts):
                store_scratch(e, self.wide.constant(0.0), self.part(self.sums, row, self.value_parts, k))
            store_scratch(e, self.wide.constant(0.0), self.part(self.totals, row, 1))
            store_scalar(e, self.scalar.constant(-math.inf), advance(e, self.largest, row))

        self.rows(start)
        end = e.integer(a.k.shape[2])
        if a.causal != "none":
            end = b.minimum(end, b.maximum(b.add(e.integer(a.diagonal), e.i64(1)), e.i64(0)))

        with e.each(0, end, KEYS) as key:
            count = b.minimum(b.sub(end, key), e.i64(KEYS))
            self.score_keys(advance(e, keys, b.mul(key, e.integer(a.k.stride[2])), a.k.dtype), count)
            from_here = advance(e, values, b.mul(key, e.integer(a.v.stride[2])), a.v.dtype)

            def one(row: Value) -> None:
                if a.mask:
                    self.apply_mask(row, batch, b.add(first, row), key, count)
                self.accumulate_values(row, self.softmax(row, count), from_here, count)

            self.rows(one)
        self.rows(lambda row: self.finish(row, batch, b.add(first, row)))

    def score_keys(self, keys: Value, count: Value) -> None:
        """scores[row, key], and -inf behind the last key."""
        a, e, b = self.a, self.e, self.e.index
        along, last = e.integer(a.k.stride[2]), b.sub(count, e.i64(1))

        with e.each(0, count, self.lanes) as key:
            places = [b.minimum(b.add(key, e.i64(lane)), last) for lane in range(self.lanes)]
            addresses = [advance(e, keys, b.mul(place, along), a.k.dtype) for place in places]
            inside = lanes_below(e, b.sub(count, key))

            def one(row: Value) -> None:
                query = [
                    load_scratch(e, self.part(self.queries, row, self.key_parts, k)) for k in range(self.key_parts)
                ]
                sums = []
                for address in addresses:
                    total = self.wide.mul(query[0], self.load_row(address, a.k, 0))
                    for k in range(1, self.key_parts):
                        total = self.wide.fma(query[k], self.load_row(address, a.k, k), total)
                    sums.append(total)
                scores = self.wide.select(inside, across(e, sums), self.wide.constant(-math.inf))
                store_scratch(e, scores, self.score(row, key))

            self.rows(one)

    def score(self, row: Value, key: Value) -> Value:
        b = self.e.index
        return advance(self.e, self.scores, b.add(b.mul(row, self.e.i64(KEYS)), key))

    def apply_mask(self, row: Value, batch: Value, head: Value, key: Value, count: Value) -> None:
        e, b, info = self.e, self.e.index, self.a.mask
        assert info is not None
        mask = self.mask_of(info, batch, head)
        same = info.shape[3] == 1 or info.stride[3] == 0
        stride = e.i64(0) if same else e.integer(info.stride[3])

        with e.each(0, count, self.lanes) as i:
            at = b.add(key, i)
            here = advance(e, mask, b.mul(at, stride), info.dtype)
            if same:
                value = e.splat(load_scalar(e, here, info.dtype))
            elif info.stride[3] == 1:
                value = load_floats(e, here, info.dtype, lanes_below(e, b.sub(count, i)))
            else:
                wide = e.builder(torch.int64, True)
                lane = wide.minimum(e.lane_numbers(), e.splat(b.sub(b.sub(count, i), e.i64(1))))
                value = gather(e, here, wide.mul(lane, e.splat(stride)), info.dtype)
            place = self.score(row, i)
            store_scratch(e, masked(self.wide, info.dtype, value, load_scratch(e, place)), place)

    def softmax(self, row: Value, count: Value) -> Value:
        """Scores become exponentials; what came before shrinks by the factor that is returned."""
        e, wide, scalar = self.e, self.wide, self.scalar
        type_ = wide.type_text(torch.float32)
        place = advance(e, self.largest, row)
        before = load_scalar(e, place, torch.float32)

        def compare(i: Value, state: list[Value]) -> list[Value]:
            return [wide.maximum(state[0], load_scratch(e, self.score(row, i)))]

        (most,) = e.loop(e.i64(0), count, e.i64(self.lanes), [e.splat(before)], [type_], compare)
        largest = scalar.emit(f"vector.reduction <maxnumf>, {most} : {type_} into f32", torch.float32)
        store_scalar(e, largest, place)
        reference = reference_of(scalar, largest)
        factor = exponential(wide, e.splat(scalar.sub(before, reference)))
        from_ = e.splat(reference)

        def raise_all(i: Value, state: list[Value]) -> list[Value]:
            address = self.score(row, i)
            raised = exponential(wide, wide.sub(load_scratch(e, address), from_))
            store_scratch(e, raised, address)
            return [wide.add(state[0], raised)]

        totals = self.part(self.totals, row, 1)
        (total,) = e.loop(e.i64(0), count, e.i64(self.lanes), [wide.constant(0.0)], [type_], raise_all)
        store_scratch(e, wide.fma(load_scratch(e, totals), factor, total), totals)
        return factor

    def accumulate_values(self, row: Value, factor: Value, values: Value, count: Value) -> None:
        a, e, b, wide = self.a, self.e, self.e.index, self.wide
        along = e.integer(a.v.stride[2])
        places = [self.part(self.sums, row, self.value_parts, k) for k in range(self.value_parts)]
        chains = max(1, CHAINS // self.value_parts)

        def add(key: Value, sums: list[Value]) -> list[Value]:
            address = advance(e, values, b.mul(key, along), a.v.dtype)
            raised = e.splat(load_scalar(e, self.score(row, key), torch.float32))
            return [wide.fma(raised, self.load_row(address, a.v, k), x) for k, x in enumerate(sums)]

        none = [wide.constant(0.0)] * len(places)
        sums = unrolled_sums(e, (e.i64(0), count), 1, none, chains, add)
        for place, value in zip(places, sums, strict=True):
            store_scratch(e, wide.fma(load_scratch(e, place), factor, value), place)

    def finish(self, row: Value, batch: Value, head: Value) -> None:
        """The result and the logarithm of the total."""
        a, e, wide, scalar = self.a, self.e, self.wide, self.scalar
        type_ = wide.type_text(torch.float32)
        totals = load_scratch(e, self.part(self.totals, row, 1))
        total = scalar.emit(f"vector.reduction <add>, {totals} : {type_} into f32", torch.float32)
        inverse, logarithm = finished(scalar, total, load_scalar(e, advance(e, self.largest, row), torch.float32))
        store_scalar(e, logarithm, place_of(e, e.env["lse"], a.lse, batch, head))
        out = place_of(e, e.env["out"], a.out, batch, head)
        size = a.out.shape[3]
        assert isinstance(size, int)
        for k in range(self.value_parts):
            value = wide.mul(load_scratch(e, self.part(self.sums, row, self.value_parts, k)), e.splat(inverse))
            here = advance(e, out, e.i64(k * self.lanes), a.out.dtype)
            store_floats(e, value, here, a.out.dtype, lanes_below(e, e.i64(min(size - k * self.lanes, self.lanes))))

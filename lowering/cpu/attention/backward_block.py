"""One block of queries on one block of keys in attention's gradients (attention/backward.py): five matmuls, and the exponentials and
score gradients between them, all in scratch.
"""

from collections.abc import Callable
from dataclasses import replace

import torch

from mlirc.lowering.cpu.attention.call import Gradients
from mlirc.lowering.cpu.attention.memory import along_row, row_offsets, stage_rows
from mlirc.lowering.cpu.attention.scores import NOTHING, Scores
from mlirc.lowering.cpu.attention.softmax import exponential
from mlirc.lowering.cpu.attention.writer import AttentionWriter
from mlirc.lowering.cpu.emitter.addresses import advance, gather, load_floats, load_scratch, store_floats, store_scratch
from mlirc.lowering.cpu.emitter.scratch import take_floats
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.cpu.matmul.tile import GemmTile, Loop, most_rows
from mlirc.lowering.cpu.matmul.tile_rows import even_rows
from mlirc.lowering.cpu.matmul.transposes import transpose_all
from mlirc.lowering.target import CpuTarget

F32 = torch.float32
VECTORS = 2  # vectors of a tile's row
QUERIES = 4  # vectors of queries in a block
KEYS = 256  # keys of a block, at most
ROOM = 1 << 15  # elements of a block's keys and values, at most


class KeyBlock(AttentionWriter):
    def __init__(self, g: Gradients, name: str, target: CpuTarget):
        self.g, self.tensors = g, g.tensors
        super().__init__(g.call, name, target, list(g.tensors), g.symbols)
        self.width = QUERIES * self.lanes
        self.pitch = {which: self.padded(which) for which in ("k", "v")}
        keys, most = self.a.k.shape[2], most_rows(target, VECTORS)
        self.rows = even_rows(keys, most)  # of keys in a tile
        tiles = max(1, min(KEYS, ROOM // sum(self.pitch.values())) // self.rows)
        if isinstance(keys, int):
            every = max(1, -(-keys // self.rows))
            tiles = -(-every // -(-every // tiles))
        self.block = self.rows * tiles
        self.query_rows = even_rows(self.width, most)
        # where dq is added up: float32
        self.sums = replace(g.work, shape=g.dq.shape) if g.dq.dtype != F32 else g.dq

    def make_room(self) -> None:
        e, pitch, k, v = self.e, self.pitch, self.pitch["k"], self.pitch["v"]
        self.keys = {which: take_floats(e, self.block * pitch[which]) for which in ("k", "v")}
        self.key_sums = {which: take_floats(e, self.block * pitch[which]) for which in ("k", "v")}
        self.queries = {"k": take_floats(e, self.width * k), "v": take_floats(e, self.width * v)}  # of q, and of dout
        self.transposed = {"k": take_floats(e, self.width * k), "v": take_floats(e, self.width * v)}
        # the last tile of queries reads past the last row
        self.scores, self.slopes = (take_floats(e, self.block * self.width + self.width) for _ in range(2))
        self.query_sums = take_floats(e, (self.width + self.query_rows) * k)
        self.lse, self.delta = (take_floats(e, self.width) for _ in range(2))
        self.masks = Scores(e, self.a, self.scores, QUERIES)

    # ---- a block of queries on a block of keys

    def query_block(self, rows: dict[str, Value], query: Value, count: Value, key: Value, keys: Value) -> None:
        a, e, b = self.a, self.e, self.e.index
        self.read_queries(rows, query, count)

        def seen(lanes: Value) -> Value:
            """How many of the block's keys the queries before this lane see."""
            if a.causal == "none":
                return keys
            return b.minimum(keys, b.sub(b.add(b.add(query, lanes), e.integer(a.diagonal)), key))

        limit = seen(count)
        self.over_queries("k", self.scores, seen, count)
        self.over_queries("v", self.slopes, seen, count)
        if a.mask:
            self.masks.apply_mask(rows["mask"], query, e.integer(a.q.shape[2]), key, limit)
        step = e.i64(self.rows)
        tiles = e.ceildiv(limit, step)
        if a.causal != "none":
            self.masks.hide_later_keys(query, key, b.mul(tiles, step))
        self.exponentials(count, b.mul(tiles, step))
        hidden = b.sub(key, b.add(query, e.integer(a.diagonal)))  # queries that do not see the first key yet
        self.over_keys("v", self.scores, limit, count, hidden)
        self.over_keys("k", self.slopes, limit, count, hidden)
        self.add_to_queries(rows["sums"], query, count, seen)

    def read_queries(self, rows: dict[str, Value], query: Value, count: Value) -> None:
        """A block of q, times the scale, and of dout; both transposed too; lse and delta of each query."""
        a, e, b = self.a, self.e, self.e.index
        for which, name, scale in (("k", "q", a.scale), ("v", "dout", 1.0)):
            info, pitch = self.tensors[name], self.pitch[which]
            here = advance(e, rows[name], b.mul(query, e.integer(info.stride[2])), info.dtype)
            stage_rows(e, here, info, count, self.queries[which], pitch, scale)
            transpose_all(e, self.queries[which], pitch, self.width, pitch, self.transposed[which], self.width)
        ends = e.integer(a.q.shape[2])
        for name, to in (("lse", self.lse), ("work", self.delta)):
            for k in range(0, self.width, self.lanes):
                offsets = row_offsets(e, b.add(query, e.i64(k)), ends, e.integer(self.tensors[name].stride[2]))
                store_scratch(e, gather(e, rows[name], offsets, F32), advance(e, to, e.i64(k)))

    def exponentials(self, count: Value, keys: Value) -> None:
        """Scores become exponentials, and what is the slope of an exponential becomes that of its score. Lanes from `count` on hold
        anything: no gemm reads them, or what it makes of them is not kept."""
        e, wide = self.e, self.wide

        with e.each(0, count, self.lanes) as lane:
            lse, delta = (load_scratch(e, advance(e, x, lane)) for x in (self.lse, self.delta))
            of_hidden = wide.sub(lse, lse)  # 0, or NaN where the row has no softmax

            with e.each(0, keys) as i:
                here = e.index.add(e.index.mul(i, e.i64(self.width)), lane)
                exponentials, slopes = (advance(e, x, here) for x in (self.scores, self.slopes))
                score = load_scratch(e, exponentials)
                raised = exponential(wide, wide.sub(score, lse))
                store_scratch(e, raised, exponentials)
                slope = wide.mul(raised, wide.sub(load_scratch(e, slopes), delta))
                hidden = wide.eq(score, wide.constant(NOTHING))  # whatever its value holds
                store_scratch(e, wide.select(hidden, of_hidden, slope), slopes)

    # ---- gemms

    def over_queries(self, which: str, to: Value, seen, count: Value) -> None:
        """to[key, query] = the block's row of keys or values times the transposed column."""
        e, b, width = self.e, self.e.index, VECTORS * self.lanes
        tile = self.tile(self.rows, VECTORS, "zero")

        with e.each(0, count, width) as first:
            panel = advance(e, self.transposed[which], first)

            with e.each(0, seen(b.add(first, e.i64(width))), self.rows) as row:
                source = advance(e, self.keys[which], b.mul(row, e.i64(self.pitch[which])))
                places = source, panel, self.at(to, row, self.width, first)
                loop = Loop(e.i64(self.head(which)), 1, self.width)
                tile.call(e, places, self.pitch[which], [loop], self.width)

    def over_keys(self, which: str, factors: Value, limit: Value, count: Value, hidden: Value) -> None:
        """The sums of keys or values: sums[key] += factors[key, queries] @ the queries' rows."""
        e, b, pitch = self.e, self.e.index, self.pitch[which]
        for first, vectors in self.columns(which):
            tile = self.tile(self.rows, vectors, "tile")

            with e.each(0, limit, self.rows) as row:
                skip = e.i64(0) if self.a.causal == "none" else b.maximum(b.add(hidden, row), e.i64(0))
                source = self.at(factors, row, self.width, skip)
                panel = self.at(self.queries[which], skip, pitch, e.i64(first))
                places = source, panel, self.at(self.key_sums[which], row, pitch, e.i64(first))
                tile.call(e, places, self.width, [Loop(b.sub(count, skip), 1, pitch)], pitch)

    def add_to_queries(self, sums: Value, query: Value, count: Value, seen) -> None:
        """dq[query] += scale * slopes[keys, query]^T @ the keys' rows."""
        e, b, pitch = self.e, self.e.index, self.pitch["k"]
        for first, vectors in self.columns("k"):
            tile = self.tile(self.query_rows, vectors, "zero")
            panel = advance(e, self.keys["k"], e.i64(first))

            with e.each(0, count, self.query_rows) as row:
                keys = b.minimum(seen(count), seen(b.add(row, e.i64(self.query_rows))))
                to = self.at(self.query_sums, row, pitch, e.i64(first))
                tile.call(e, (advance(e, self.slopes, row), panel, to), 1, [Loop(keys, self.width, pitch)], pitch)

        wide = self.wide
        along = e.integer(self.sums.stride[2])

        with e.each(0, count) as i:
            target = advance(e, sums, b.mul(b.add(query, i), along))

            def value(d: Value, mask: Value | None) -> Value:
                here = load_scratch(e, self.at(self.query_sums, i, pitch, d))
                return wide.fma(here, wide.constant(self.a.scale), load_floats(e, advance(e, target, d), F32, mask))

            self.write_row(target, value)

    def tile(self, rows: int, vectors: int, start: str) -> GemmTile:
        return GemmTile(rows, vectors, self.lanes, start, align=4 * self.lanes)

    def columns(self, which: str) -> list[tuple[int, int]]:
        """A row's elements as columns of a tile: the first, and the number of vectors."""
        width, size = VECTORS * self.lanes, self.pitch[which]
        return [(first, min(VECTORS, (size - first) // self.lanes)) for first in range(0, size, width)]

    def at(self, place: Value, row: Value, pitch: int, column: Value) -> Value:
        return advance(self.e, place, self.e.index.add(self.e.index.mul(row, self.e.i64(pitch)), column))

    def clear(self, place: Value, count: int) -> None:
        e = self.e

        with e.each(0, count, self.lanes) as k:
            store_scratch(e, self.wide.constant(0.0), advance(e, place, k))

    def write_row(self, place: Value, value: Callable[[Value, Value | None], Value], dtype: torch.dtype = F32) -> None:
        """place[d] = value(d, mask) along a row of dq, a vector at a time."""
        e = self.e

        def part(d: Value, mask: Value | None, state: list[Value]) -> list[Value]:
            store_floats(e, value(d, mask), advance(e, place, d, dtype), dtype, mask)
            return state

        along_row(e, self.head("k"), [], part)

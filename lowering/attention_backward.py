"""Attention's gradients as functions in MLIR text: for a block of keys, the queries that see it, 64 at a time.

for (batch, head of the keys), shared among threads:
  delta = the sums of dout * out along the rows                  one a query, of each head that shares the keys
  for block of keys:
    keys, values = its rows; dk, dv = 0                          in scratch
    for head, block of queries:
      scores = keys @ queries^T; slopes = values @ dout^T        [keys, queries]
      the mask; powers = exp(scores - lse); slopes = powers * (slopes - delta)
      dv += powers @ dout; dk += slopes @ queries; dq += slopes^T @ keys

After Dao, "FlashAttention-2" (2023). A block's rows are copied to scratch, turned too where queries lie along the lanes,
so that any strides will do. Each thread owns all that it adds to: the same bits with any number of them.
"""

from collections.abc import Callable
from dataclasses import replace

import torch

from mlirc.dialects import symbols
from mlirc.lowering.attention_call import Gradients
from mlirc.lowering.attention_memory import (
    advance,
    along_row,
    gather,
    lanes_below,
    load_part,
    load_scalar,
    load_vector,
    place_of,
    row_offsets,
    scratch,
    stage_rows,
    store_part,
    store_rows,
    store_scalar,
    store_vector,
    turn_all,
)
from mlirc.lowering.attention_scores import NOTHING, Scores
from mlirc.lowering.attention_softmax import power
from mlirc.lowering.attention_tiles import VECTORS, Tile, even_rows, most_rows
from mlirc.lowering.cpu_target import CpuTarget
from mlirc.lowering.kernel_axes import Vector
from mlirc.lowering.kernel_emitter import Emitter
from mlirc.lowering.kernel_function import _LIBGOMP, _PART, KernelText, _entry, _load_words, _part
from mlirc.lowering.kernel_nodes import Kernel
from mlirc.lowering.kernel_threads import Split
from mlirc.lowering.vector_builder import Value

F32 = torch.float32
QUERIES = 4  # vectors of them, in a block
KEYS = 256  # of a block, at most
ROOM = 1 << 15  # elements of a block's keys and values


def backward_text(g: Gradients, name: str, target: CpuTarget) -> KernelText:
    """The functions of kernel `name`, for a call that `backward_refusal` of attention_call.py has nothing against."""
    return _Writer(g, name, target).write()


class _Writer:
    def __init__(self, g: Gradients, name: str, target: CpuTarget):
        self.g, self.a, self.name, self.target = g, g.call, name, target
        self.tensors = g.tensors
        self.e = Emitter(Vector(None, target.vector_bytes // 4), target)
        self.lanes = self.e.lanes
        self.width = QUERIES * self.lanes
        self.pitch = {which: -(-self.head(which) // self.lanes) * self.lanes for which in ("k", "v")}
        keys, most = self.a.k.shape[2], most_rows(target)
        self.rows = even_rows(keys, most)  # of keys in a tile
        tiles = max(1, min(KEYS, ROOM // sum(self.pitch.values())) // self.rows)
        if isinstance(keys, int):
            every = max(1, -(-keys // self.rows))
            tiles = -(-every // -(-every // tiles))
        self.block = self.rows * tiles
        self.query_rows = even_rows(self.width, most)
        self.tiles: dict[tuple, Tile] = {}
        # where dq is added up: float32
        self.sums = replace(g.work, shape=g.dq.shape) if g.dq.dtype != F32 else g.dq

    def head(self, which: str) -> int:
        size = (self.a.v if which == "v" else self.a.q).shape[3]
        assert isinstance(size, int)
        return size

    # ---- the function

    def write(self) -> KernelText:
        g, e = self.g, self.e
        kernel = Kernel({}, {}, [], [], len(self.tensors))
        e.env["thread"], e.env["threads"] = Value("%thread", torch.int64), Value("%threads", torch.int64)
        _load_words(e, kernel, g.symbols, "%args")
        for number, name in enumerate(self.tensors):
            e.env[name] = e.env["base", number]
        self.make_room()
        batch, heads = self.a.k.shape[:2]
        lo, hi = _part(e, e.integer(batch * heads))

        def unit(number: Value, state: list[Value]) -> list[Value]:
            count = e.integer(heads)
            self.unit(e.index.binary("arith.divui", number, count), e.index.binary("arith.remui", number, count))
            return state

        e.loop(lo, hi, e.i64(1), [], [], unit)
        head = f"llvm.func internal @{self.name}_body(%frame: !llvm.ptr, %thread: i64, %threads: i64) {{"
        args = "%args = llvm.load %frame : !llvm.ptr -> !llvm.ptr"
        body = "\n".join([head, args, *e.text.preamble, *e.lines, "llvm.return", "}"])
        work = symbols.product([*self.a.q.shape[:3], self.a.k.shape[2], self.head("k") + self.head("v")])
        split = Split(Vector(None, 1), units=batch * heads, work=symbols.floordiv(work * 1, 3))
        entry = _entry(kernel, split, g.symbols, self.name, self.target, 0)
        tiles = [tile.text for tile in self.tiles.values()]
        parts = [*tiles, *e.text.functions.values(), body, entry, _PART]
        return KernelText("\n".join(parts).replace("KERNEL", self.name), e.text.declarations + _LIBGOMP, g.symbols)

    def make_room(self) -> None:
        e, pitch, k, v = self.e, self.pitch, self.pitch["k"], self.pitch["v"]
        self.keys = {which: scratch(e, self.block * pitch[which]) for which in ("k", "v")}
        self.key_sums = {which: scratch(e, self.block * pitch[which]) for which in ("k", "v")}
        self.queries = {"k": scratch(e, self.width * k), "v": scratch(e, self.width * v)}  # of q, and of dout
        self.turned = {"k": scratch(e, self.width * k), "v": scratch(e, self.width * v)}
        # the last tile of queries reads past the last row
        self.scores, self.slopes = (scratch(e, self.block * self.width + self.width) for _ in range(2))
        self.query_sums = scratch(e, (self.width + self.query_rows) * k)
        self.lse, self.delta = (scratch(e, self.width) for _ in range(2))
        self.masks = Scores(e, self.a, self.scores, QUERIES)

    def unit(self, batch: Value, shared: Value) -> None:
        """The gradients of the keys and values of a head, and of the queries that read these."""
        a, g, e, b = self.a, self.g, self.e, self.e.index
        keys, queries = e.integer(a.k.shape[2]), e.integer(a.q.shape[2])
        places = {name: place_of(e, e.env[name], self.tensors[name], batch, shared) for name in ("k", "v", "dk", "dv")}
        self.each_head(batch, shared, self.start)

        def key_block(key: Value, state: list[Value]) -> list[Value]:
            count = b.minimum(b.sub(keys, key), e.i64(self.block))
            for which in ("k", "v"):
                info = self.tensors[which]
                here = advance(e, places[which], b.mul(key, e.integer(info.stride[2])), info.dtype)
                stage_rows(e, here, info, count, self.keys[which], self.pitch[which])
                self.clear(self.key_sums[which], self.block * self.pitch[which])
            first = b.maximum(b.sub(key, e.integer(a.diagonal)), e.i64(0)) if a.causal != "none" else e.i64(0)

            def head(rows: dict[str, Value]) -> None:
                def query_block(query: Value, state: list[Value]) -> list[Value]:
                    self.query_block(rows, query, b.minimum(b.sub(queries, query), e.i64(self.width)), key, count)
                    return state

                e.loop(first, queries, e.i64(self.width), [], [], query_block)

            self.each_head(batch, shared, head)
            for which in ("k", "v"):
                info = self.tensors["d" + which]
                here = advance(e, places["d" + which], b.mul(key, e.integer(info.stride[2])), info.dtype)
                store_rows(e, here, info, count, self.key_sums[which], self.pitch[which])
            return state

        e.loop(e.i64(0), keys, e.i64(self.block), [], [], key_block)
        if self.sums is not g.dq:
            self.each_head(batch, shared, self.finish)

    def each_head(self, batch: Value, shared: Value, body: Callable[[dict[str, Value]], None]) -> None:
        """`body`, given where each tensor's rows start, for the heads of the query that share the keys."""
        e, b, g, a = self.e, self.e.index, self.g, self.a

        def one(number: Value, state: list[Value]) -> list[Value]:
            head = b.add(b.mul(shared, e.i64(a.group)), number)
            rows = {
                name: place_of(e, e.env[name], self.tensors[name], batch, head)
                for name in ("dout", "q", "out", "lse", "dq", "work")
            }
            rows["sums"] = advance(e, rows["work"], e.i64(1)) if self.sums is not g.dq else rows["dq"]
            if a.mask:
                at = (x if n != 1 else e.i64(0) for x, n in zip((batch, head), a.mask.shape, strict=False))
                rows["mask"] = place_of(e, e.env["mask"], a.mask, *at)
            body(rows)
            return state

        e.loop(e.i64(0), e.i64(a.group), e.i64(1), [], [], one)

    # ---- before and after the blocks

    def start(self, rows: dict[str, Value]) -> None:
        """The queries' delta, and zeros to add dq to."""
        g, e, b = self.g, self.e, self.e.index

        def one(i: Value, state: list[Value]) -> list[Value]:
            x, y = (
                advance(e, rows[n], b.mul(i, e.integer(self.tensors[n].stride[2])), g.dout.dtype)
                for n in ("dout", "out")
            )
            delta = advance(e, rows["work"], b.mul(i, e.integer(g.work.stride[2])))
            store_scalar(e, self.row_product(x, y), delta)
            wide = e.builder(F32, True)
            self.write_row(
                advance(e, rows["sums"], b.mul(i, e.integer(self.sums.stride[2]))), lambda d, mask: wide.constant(0.0)
            )
            return state

        e.loop(e.i64(0), e.integer(self.a.q.shape[2]), e.i64(1), [], [], one)

    def row_product(self, x: Value, y: Value) -> Value:
        """The sum of the products of a row of dout and one of the result."""
        e, infos = self.e, (self.g.dout, self.a.out)
        wide = all(info.stride[3] == 1 for info in infos)
        f = e.builder(F32, wide)

        def part(d: Value, mask: Value | None, state: list[Value]) -> list[Value]:
            read = (
                load_part(e, advance(e, at, d, info.dtype), info.dtype, mask)
                for at, info in zip((x, y), infos, strict=True)
            )
            return [f.fma(*read, state[0])]

        def one(d: Value, state: list[Value]) -> list[Value]:
            places = (e.index.mul(d, e.integer(info.stride[3])) for info in infos)
            read = (
                load_scalar(e, advance(e, at, p, info.dtype), info.dtype)
                for at, p, info in zip((x, y), places, infos, strict=True)
            )
            return [f.fma(*read, state[0])]

        zero, size = f.constant(0.0), self.head("v")
        if not wide:
            return e.loop(e.i64(0), e.i64(size), e.i64(1), [zero], ["f32"], one)[0]
        (total,) = along_row(e, size, [zero], part)
        # in any order, the same at each call: a sum lane by lane takes four times as long
        text = f"vector.reduction <add>, {total} fastmath<reassoc> : {f.type_text(F32)} into f32"
        return e.builder(F32).emit(text, F32)

    def write_row(self, place: Value, value: Callable[[Value, Value | None], Value], dtype: torch.dtype = F32) -> None:
        """place[d] = value(d, mask) along a row of dq, a vector at a time."""
        e = self.e

        def part(d: Value, mask: Value | None, state: list[Value]) -> list[Value]:
            store_part(e, value(d, mask), advance(e, place, d, dtype), dtype, mask)
            return state

        along_row(e, self.head("k"), [], part)

    def finish(self, rows: dict[str, Value]) -> None:
        """dq in its own dtype."""
        g, e, b = self.g, self.e, self.e.index

        def one(i: Value, state: list[Value]) -> list[Value]:
            source = advance(e, rows["sums"], b.mul(i, e.integer(self.sums.stride[2])))
            target = advance(e, rows["dq"], b.mul(i, e.integer(g.dq.stride[2])), g.dq.dtype)
            self.write_row(target, lambda d, mask: load_part(e, advance(e, source, d), F32, mask), g.dq.dtype)
            return state

        e.loop(e.i64(0), e.integer(self.a.q.shape[2]), e.i64(1), [], [], one)

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
        tiles = b.binary("arith.divui", b.add(limit, b.sub(step, e.i64(1))), step)
        if a.causal != "none":
            self.masks.hide_later_keys(query, key, b.mul(tiles, step))
        self.powers(count, b.mul(tiles, step))
        hidden = b.sub(key, b.add(query, e.integer(a.diagonal)))  # queries that do not see the first key yet
        self.over_keys("v", self.scores, limit, count, hidden)
        self.over_keys("k", self.slopes, limit, count, hidden)
        self.add_to_queries(rows["sums"], query, count, seen)

    def read_queries(self, rows: dict[str, Value], query: Value, count: Value) -> None:
        """A block of q, times the scale, and of dout; both turned too; lse and delta of each query."""
        a, e, b = self.a, self.e, self.e.index
        for which, name, scale in (("k", "q", a.scale), ("v", "dout", 1.0)):
            info, pitch = self.tensors[name], self.pitch[which]
            here = advance(e, rows[name], b.mul(query, e.integer(info.stride[2])), info.dtype)
            stage_rows(e, here, info, count, self.queries[which], pitch, scale)
            turn_all(e, self.queries[which], pitch, self.width, pitch, self.turned[which], self.width)
        ends = e.integer(a.q.shape[2])
        for name, to in (("lse", self.lse), ("work", self.delta)):
            for k in range(0, self.width, self.lanes):
                offsets = row_offsets(e, b.add(query, e.i64(k)), ends, e.integer(self.tensors[name].stride[2]))
                store_vector(e, gather(e, rows[name], offsets, F32), advance(e, to, e.i64(k)))

    def powers(self, count: Value, keys: Value) -> None:
        """Scores become powers, and what is the slope of a power becomes that of its score."""
        e, wide = self.e, self.e.builder(F32, True)

        def vector(lane: Value, state: list[Value]) -> list[Value]:
            inside = lanes_below(e, e.index.sub(count, lane))
            lse, delta = (load_vector(e, advance(e, x, lane)) for x in (self.lse, self.delta))

            def key(i: Value, state: list[Value]) -> list[Value]:
                here = e.index.add(e.index.mul(i, e.i64(self.width)), lane)
                powers, slopes = (advance(e, x, here) for x in (self.scores, self.slopes))
                score = wide.select(inside, load_vector(e, powers), wide.constant(NOTHING))
                raised = power(wide, wide.sub(score, lse))
                store_vector(e, raised, powers)
                slope = wide.mul(raised, wide.sub(load_vector(e, slopes), delta))
                hidden = wide.eq(score, wide.constant(NOTHING))  # whatever its value holds
                store_vector(e, wide.select(hidden, wide.constant(0.0), slope), slopes)
                return state

            e.loop(e.i64(0), keys, e.i64(1), [], [], key)
            return state

        e.loop(e.i64(0), count, e.i64(self.lanes), [], [], vector)

    # ---- products

    def over_queries(self, which: str, to: Value, seen, count: Value) -> None:
        """to[key, query] = the block's row of keys or values times the turned column."""
        e, b, width = self.e, self.e.index, VECTORS * self.lanes
        tile = self.tile(self.rows, self.pitch[which], 1, "zero", self.width, self.width, VECTORS)

        def group(first: Value, state: list[Value]) -> list[Value]:
            panel = advance(e, self.turned[which], first)

            def one(row: Value, state: list[Value]) -> list[Value]:
                source = advance(e, self.keys[which], b.mul(row, e.i64(self.pitch[which])))
                self.multiply(tile, source, e.i64(self.head(which)), panel, self.at(to, row, self.width, first))
                return state

            e.loop(e.i64(0), seen(b.add(first, e.i64(width))), e.i64(self.rows), [], [], one)
            return state

        e.loop(e.i64(0), count, e.i64(width), [], [], group)

    def over_keys(self, which: str, factors: Value, limit: Value, count: Value, hidden: Value) -> None:
        """The sums of keys or values: sums[key] += factors[key, queries] @ the queries' rows."""
        e, b, pitch = self.e, self.e.index, self.pitch[which]
        for first, vectors in self.columns(which):
            tile = self.tile(self.rows, self.width, 1, "tile", pitch, pitch, vectors)

            def one(row: Value, state: list[Value], first: int = first, tile: Tile = tile) -> list[Value]:
                skip = e.i64(0) if self.a.causal == "none" else b.maximum(b.add(hidden, row), e.i64(0))
                source = self.at(factors, row, self.width, skip)
                panel = self.at(self.queries[which], skip, pitch, e.i64(first))
                self.multiply(
                    tile, source, b.sub(count, skip), panel, self.at(self.key_sums[which], row, pitch, e.i64(first))
                )
                return state

            e.loop(e.i64(0), limit, e.i64(self.rows), [], [], one)

    def add_to_queries(self, sums: Value, query: Value, count: Value, seen) -> None:
        """dq[query] += scale * slopes[keys, query]^T @ the keys' rows."""
        e, b, pitch = self.e, self.e.index, self.pitch["k"]
        for first, vectors in self.columns("k"):
            tile = self.tile(self.query_rows, 1, self.width, "zero", pitch, pitch, vectors)
            panel = advance(e, self.keys["k"], e.i64(first))

            def one(row: Value, state: list[Value], first: int = first, tile: Tile = tile, panel: Value = panel):
                keys = b.minimum(seen(count), seen(b.add(row, e.i64(self.query_rows))))
                to = self.at(self.query_sums, row, pitch, e.i64(first))
                self.multiply(tile, advance(e, self.slopes, row), keys, panel, to)
                return state

            e.loop(e.i64(0), count, e.i64(self.query_rows), [], [], one)

        wide = e.builder(F32, True)
        along = e.integer(self.sums.stride[2])

        def add(i: Value, state: list[Value]) -> list[Value]:
            target = advance(e, sums, b.mul(b.add(query, i), along))

            def value(d: Value, mask: Value | None) -> Value:
                here = load_vector(e, self.at(self.query_sums, i, pitch, d))
                return wide.fma(here, wide.constant(self.a.scale), load_part(e, advance(e, target, d), F32, mask))

            self.write_row(target, value)
            return state

        e.loop(e.i64(0), count, e.i64(1), [], [], add)

    def tile(self, rows: int, row: int, step: int, start: str, panel: int, pitch: int, vectors: int) -> Tile:
        key = rows, row, step, start, panel, pitch, vectors
        if key not in self.tiles:
            name = f"{self.name}_tile{len(self.tiles)}"
            self.tiles[key] = Tile(name, rows, row, step, start, self.lanes, panel, pitch, vectors)
        return self.tiles[key]

    def multiply(self, tile: Tile, rows: Value, n: Value, panel: Value, to: Value) -> None:
        e = self.e
        self.e.lines.append(tile.call(rows, e.integer(tile.row), e.integer(tile.step), n, panel, to))

    def columns(self, which: str) -> list[tuple[int, int]]:
        """A row's elements as columns of a tile: the first, and the number of vectors."""
        width, size = VECTORS * self.lanes, self.pitch[which]
        return [(first, min(VECTORS, (size - first) // self.lanes)) for first in range(0, size, width)]

    def at(self, place: Value, row: Value, pitch: int, column: Value) -> Value:
        return advance(self.e, place, self.e.index.add(self.e.index.mul(row, self.e.i64(pitch)), column))

    def clear(self, place: Value, count: int) -> None:
        e = self.e

        def vector(k: Value, state: list[Value]) -> list[Value]:
            store_vector(e, e.builder(F32, True).constant(0.0), advance(e, place, k))
            return state

        e.loop(e.i64(0), e.i64(count), e.i64(self.lanes), [], [], vector)

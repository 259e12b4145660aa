"""Attention as functions in MLIR text: blocks of queries, one query a lane, over blocks of keys.

for some panels of queries (two vectors of them each), shared among threads:
  panel = its rows, transposed, times the scale                    [D, W]
  for block of keys:                                           copied, where rows lie badly
    for panel:
      scores = keys @ panel                                    [keys, W] in the L1 cache
      the mask; the largest score so far; exponentials = exp(scores - largest); their sums
      sums = sums * exp(old largest - largest) + values^T @ exponentials     [Dv, W]
  out = sums / the exponentials' sums, transposed back

After Dao et al., "FlashAttention" (2022), with the softmax of Milakov and Gimelshein (2018). With queries along the lanes
nothing is ever added or compared across a vector, and keys and values are read where they are.
"""

from collections.abc import Callable

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import TensorInfo
from mlirc.lowering.cpu.attention.call import AttentionProblem
from mlirc.lowering.cpu.attention.decode import decode_text, decodes
from mlirc.lowering.cpu.attention.memory import place_of, stage_rows, store_rows
from mlirc.lowering.cpu.attention.softmax import PanelSoftmax
from mlirc.lowering.cpu.attention.writer import AttentionWriter, divided, operands_of
from mlirc.lowering.cpu.emitter.addresses import advance, clear_scratch, load_scratch, store_scratch
from mlirc.lowering.cpu.emitter.scratch import take_floats
from mlirc.lowering.cpu.loops.frame import KernelText
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.cpu.matmul.tile import GemmTile, Loop, Stride, most_rows, times
from mlirc.lowering.cpu.matmul.tile_rows import split_any_rows, split_rows
from mlirc.lowering.cpu.matmul.transposes import transpose_all
from mlirc.lowering.target import CpuTarget

VECTORS = 2  # vectors of queries in a panel
SCORES = 3584  # scores of a panel of queries and a block of keys, at most: they fit into the L1 cache beside the panel
QUERIES = 256  # queries for which a block of keys is copied once
WORK_ITEMS = 24  # work items that any number of threads splits about evenly
FAR = 1024  # bytes from row to row, from which on rows are copied: few are in a page, and gemms would wait for the TLB
CONFLICT = 4096  # rows this many bytes apart fall into the same sets of the L1 cache


def attention_text(a: AttentionProblem, name: str, target: CpuTarget) -> KernelText:
    """The functions of kernel `name`, for a call that `refusal` of attention/call.py has nothing against."""
    if decodes(a):
        return decode_text(a, name, target)
    return AttentionForwardWriter(a, name, target, operands_of(a), a.symbols).write()


class AttentionForwardWriter(AttentionWriter):
    def choose_sizes(self) -> None:
        a, target = self.a, self.target
        self.width = VECTORS * self.lanes
        self.most = most_rows(target, VECTORS)
        rows, rests = self.rows_of_key_tiles()
        self.key_tiles = [rows, *rests]
        self.block = self.keys_of_a_block()
        self.panels = panels_at_once(a, self.width, self.queries_of_a_block())
        self.staged = {which: is_staged(x, self.panels) for which, x in (("k", a.k), ("v", a.v))}
        rows, rests = split_rows(self.head("v"), self.most)
        self.value_tiles = [self.tile("factor", n) for n in [rows, *rests]]

    # ---- sizes

    def rows_of_key_tiles(self) -> tuple[int, list[int]]:
        """Keys of a full tile, and of those that cover what is left of a block."""
        return split_any_rows(self.a.k.shape[2], self.most)

    def keys_of_a_block(self) -> int:
        rows = self.key_tiles[0]
        return rows * max(1, SCORES // self.width // rows)

    def queries_of_a_block(self) -> Int:
        """Queries of which no more are shared out at once."""
        return self.a.q.shape[2]

    @property
    def work(self) -> Int:
        """Scalar operations, by which the number of threads is chosen."""
        (batch, heads, queries, _), keys = self.a.q.shape, self.a.k.shape[2]
        each = symbols.product([batch * heads, queries, keys, self.head("k") + self.head("v")])
        return symbols.floordiv(each, 8)

    def tile(self, start: str, rows: int) -> GemmTile:
        return GemmTile(rows, VECTORS, self.lanes, start, align=4 * self.lanes)

    def row_strides(self, which: str) -> list[Stride]:
        """Strides, in elements, of the keys ("k") or values ("v") that the gemms read: from row to row, and within a row."""
        if self.staged[which]:
            return [self.padded(which), 1]
        info = self.a.k if which == "k" else self.a.v
        return [n if isinstance(n, int) else self.e.integer(n) for n in info.stride[2:]]

    # ---- the function

    def write(self) -> KernelText:
        a, e = self.a, self.e
        self.begin()
        self.take_scratch()
        batch, heads, queries, _ = a.q.shape
        together = self.panels * self.width
        blocks = symbols.floordiv(queries + (together - 1), together)
        items = batch * heads * blocks

        def one(number: Value) -> None:
            head, block = divided(e, number, e.integer(blocks))
            self.query_block(*divided(e, head, e.integer(heads)), e.index.mul(block, e.i64(together)))

        self.each_item(items, one)
        return self.framed(self.work, items)

    def take_scratch(self) -> None:
        e = self.e
        self.rows = take_floats(e, self.width * max(self.padded("k"), self.padded("v")))
        self.every_panel = take_floats(e, self.panels * self.padded("k") * self.width)
        self.every_sums = take_floats(e, self.panels * self.padded("v") * self.width)
        self.scores = take_floats(e, self.block * self.width)
        self.copies = {w: take_floats(e, self.block * self.padded(w)) for w in ("k", "v") if self.staged[w]}
        self.softmax = self.make_softmax()

    def make_softmax(self) -> PanelSoftmax:
        return PanelSoftmax(self.e, self.a, self.scores, VECTORS, self.panels)

    # ---- a block of queries: some panels

    def query_block(self, batch: Value, head: Value, first: Value) -> None:
        a, e, b = self.a, self.e, self.e.index
        queries, keys = e.integer(a.q.shape[2]), e.integer(a.k.shape[2])
        shared = b.binary("arith.divui", head, e.i64(a.group)) if a.group > 1 else head
        rows = {
            "q": place_of(e, e.env["q"], a.q, batch, head),
            "k": place_of(e, e.env["k"], a.k, batch, shared),
            "v": place_of(e, e.env["v"], a.v, batch, shared),
            "out": place_of(e, e.env["out"], a.out, batch, head),
            "lse": place_of(e, e.env["lse"], a.lse, batch, head),
        }
        if a.mask:
            rows["mask"] = self.mask_of(a.mask, batch, head)
        last = b.minimum(b.add(first, e.i64(self.panels * self.width)), queries)
        panels = e.ceildiv(b.sub(last, first), self.width)

        def each(start: Value, body: Callable[[Value], None]) -> None:
            self.each_panel(first, start, panels, body)

        each(e.i64(0), lambda query: self.start(rows["q"], query, queries))

        with e.each(0, self.end(b.sub(last, e.i64(self.width))), self.block) as key:
            count = b.minimum(b.sub(keys, key), e.i64(self.block))
            read = {which: self.rows_of(which, rows[which], key, count) for which in ("k", "v")}

            def panel(query: Value) -> None:
                seen = b.minimum(b.sub(self.end(query), key), count)
                self.score_tiles(read["k"], seen)
                self.softmax.hide(rows.get("mask"), query, queries, key, seen)
                self.softmax.step(seen)
                self.accumulate_values(read["v"], seen)

            each(self.first_panel(first, key), panel)
        each(e.i64(0), lambda query: self.finish(rows, query, queries))

    def each_panel(self, first: Value, start: Value, end: Value, body: Callable[[Value], None]) -> None:
        """`body`, given its first query, for each panel from number `start` on. The block begins with the query `first`."""
        e, b = self.e, self.e.index
        with e.each(start, end) as panel:
            self.select_panel(panel)
            body(b.add(first, b.mul(panel, e.i64(self.width))))

    def select_panel(self, panel: Value) -> None:
        """Points at this panel, its sums and its softmax, for the code that follows in this scope."""
        e = self.e
        self.panel = advance(e, self.every_panel, e.index.mul(panel, e.i64(self.padded("k") * self.width)))
        self.sums = advance(e, self.every_sums, e.index.mul(panel, e.i64(self.padded("v") * self.width)))
        self.softmax.select_panel(panel)

    def end(self, query: Value) -> Value:
        """The keys that a panel from this query on sees end before this one; the rest of the last tile is masked."""
        a, e, b = self.a, self.e, self.e.index
        keys = e.integer(a.k.shape[2])
        if a.causal == "none":
            return keys
        seen = b.add(b.minimum(b.add(query, e.i64(self.width)), e.integer(a.q.shape[2])), e.integer(a.diagonal))
        step = e.i64(self.key_tiles[0])
        tiles = e.ceildiv(b.maximum(seen, e.i64(0)), step)
        return b.minimum(keys, b.mul(tiles, step))

    def first_panel(self, first: Value, key: Value) -> Value:
        """The first panel of a block with a query that sees the key."""
        e, b = self.e, self.e.index
        if self.a.causal == "none":
            return e.i64(0)
        before = b.sub(key, b.add(first, e.integer(self.a.diagonal)))
        return b.binary("arith.divui", b.maximum(before, e.i64(0)), e.i64(self.width))

    def start(self, q: Value, query: Value, queries: Value) -> None:
        """A panel's queries become columns, and nothing is summed yet."""
        a, e = self.a, self.e
        here = advance(e, q, e.index.mul(query, e.integer(a.q.stride[2])), a.q.dtype)
        stage_rows(e, here, a.q, self.inside(query, queries), self.rows, self.padded("k"), a.scale)
        transpose_all(e, self.rows, self.padded("k"), self.width, self.padded("k"), self.panel, self.width)
        self.softmax.start()
        clear_scratch(e, self.sums, self.padded("v") * self.width)

    def inside(self, query: Value, queries: Value) -> Value:
        """How many of a panel's lanes are queries; what comes of the others is not kept."""
        return self.e.index.minimum(self.e.index.sub(queries, query), self.e.i64(self.width))

    def finish(self, rows: dict[str, Value], query: Value, queries: Value) -> None:
        a, e = self.a, self.e
        self.divide(self.softmax.finish(rows["lse"], query, queries))
        transpose_all(e, self.sums, self.width, self.padded("v"), self.width, self.rows, self.padded("v"))
        here = advance(e, rows["out"], e.index.mul(query, e.integer(a.out.stride[2])), a.out.dtype)
        store_rows(e, here, a.out, self.inside(query, queries), self.rows, self.padded("v"))

    def divide(self, inverse: list[Value]) -> None:
        e = self.e

        with e.each(0, self.head("v")) as d:
            for half, factor in enumerate(inverse):
                place = advance(e, self.sums, e.index.add(e.index.mul(d, e.i64(self.width)), e.i64(half * self.lanes)))
                store_scratch(e, self.wide.mul(load_scratch(e, place), factor), place)

    def rows_of(self, which: str, base: Value, key: Value, count: Value) -> Value:
        """Where the gemms read a block of keys or values: in place, or in a copy."""
        info = self.a.k if which == "k" else self.a.v
        here = advance(self.e, base, self.e.index.mul(key, self.e.integer(info.stride[2])), info.dtype)
        if not self.staged[which]:
            return here
        stage_rows(self.e, here, info, count, self.copies[which], self.padded(which))
        return self.copies[which]

    def score_tiles(self, keys: Value, count: Value) -> None:
        e, b = self.e, self.e.index
        along, within = self.row_strides("k")
        loop = Loop(e.i64(self.head("k")), within, self.width)
        for row, size in e.tiles((e.i64(0), count), self.key_tiles):
            source = advance(e, keys, times(e, along, row))
            target = advance(e, self.scores, b.mul(row, e.i64(self.width)))
            self.tile("zero", size).call(e, (source, self.panel, target), along, [loop], self.width)

    def accumulate_values(self, values: Value, count: Value) -> None:
        e, b = self.e, self.e.index
        along, within = self.row_strides("v")
        full, *rests = self.value_tiles
        whole = self.head("v") // full.rows * full.rows

        def one(row: Value, tile: GemmTile) -> None:
            places = (
                advance(e, values, times(e, within, row)),
                self.scores,
                advance(e, self.sums, b.mul(row, e.i64(self.width))),
            )
            tile.call(e, places, within, [Loop(count, along, self.width)], self.width, factor=self.softmax.factor)

        with e.each(0, whole, full.rows) as row:
            one(row, full)
        for tile in rests:
            one(e.i64(whole), tile)


def panels_at_once(a: AttentionProblem, width: int, queries: Int) -> int:
    """Panels of queries that pass over a block of keys before the next one is read: fewer, where threads need work items. Of so many
    `queries` no more are shared out at once."""
    heads, all_queries = a.q.shape[0] * a.q.shape[1], a.q.shape[2]
    most = QUERIES // width
    if isinstance(queries, int):
        most = min(most, -(-queries // width))
    if isinstance(all_queries, int) and isinstance(heads, int):
        while most > 1 and heads * -(-all_queries // (most * width)) < WORK_ITEMS:
            most = -(-most // 2)
    return max(1, most)


def is_staged(rows: TensorInfo, panels: int) -> bool:
    """Whether a block of keys or values is copied first: half types, rows that would evict each other, and rows that are
    far apart, where several panels read the copy."""
    along = rows.stride[2]
    if rows.dtype != torch.float32 or (isinstance(along, int) and along * 4 % CONFLICT == 0):
        return True
    return panels > 2 and (not isinstance(along, int) or along * 4 > FAR or rows.stride[3] != 1)

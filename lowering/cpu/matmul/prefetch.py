"""Prefetches, within a gemm's tile, the lines that come next into the second-level cache.

A step of a tile asks for one line, so that a few are on the way at any time. If all were fetched at once between two tiles, they
would fill all that a core can have on the way, and the next tile would wait for them as if nothing had been fetched.

Memory is fetched in runs of a power of two of bytes, equally far apart:

    address of step k = start + (pos / run) * apart + pos % run          pos = k * rate
"""

from dataclasses import dataclass
from typing import Any, Protocol

from mlirc.lowering.cpu.emitter.addresses import BYTE, CACHE_LINE, advance, choose_address
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.cpu.matmul.tile import Fetch
from mlirc.lowering.target import CpuTarget

RUN = 1024  # bytes of contiguous memory

Range = tuple[Value, Value]


def fetches(target: CpuTarget) -> bool:
    """Whether tiles ask for more than they multiply: where it was measured to gain."""
    return target.has_avx512


@dataclass(frozen=True)
class Runs:
    """`count` runs of `run` bytes, the first at `start`, `apart` bytes from one to the next."""

    start: Value
    apart: Value
    count: Value
    run: int = RUN

    def part(self, e: VectorEmitter, number: Value, parts: Value, steps: int) -> Fetch:
        """One of so many equal parts, for a tile of so many steps. What is more than a line a step is left out."""
        b = e.index
        each = parts_of(e, self.count, parts)
        rate = b.minimum(parts_of(e, b.mul(each, e.i64(self.run)), e.i64(steps)), e.i64(CACHE_LINE))
        return Fetch(advance(e, self.start, b.mul(b.mul(number, each), self.apart), BYTE), self.apart, rate)


def nothing(e: VectorEmitter, place: Value) -> Fetch:
    """The same line again and again: `place` is memory that is in use."""
    return Fetch(place, e.i64(0), e.i64(0))


def either(e: VectorEmitter, condition: Value, x: Fetch, y: Fetch) -> Fetch:
    """x where `condition` holds, else y."""
    numbers = (e.index.select(condition, *pair) for pair in zip(x[1:], y[1:], strict=True))
    return Fetch(choose_address(e, condition, x.start, y.start), *numbers)


def parts_of(e: VectorEmitter, count: Value, size: Value) -> Value:
    """How many parts of `size` there are in `count`, the last one perhaps not whole."""
    b = e.index
    return b.binary("arith.divui", b.add(count, b.sub(size, e.i64(1))), size)


class PrefetchWriter(Protocol):
    """What is asked of a BlockedWriter."""

    e: VectorEmitter
    p: Any
    full: int
    width: int
    steps: int
    group: int
    one_block: bool
    after: Value

    @property
    def panels(self) -> int: ...
    @property
    def run(self) -> int: ...
    def rows_at(self, row: Value, /) -> Value: ...


class Ahead:
    """What the tiles of a block of rows (the first, how many) fetch, for a block of k (the first step, how many): with the
    group's last panel the columns that are packed next, with the others the next block's rows."""

    def __init__(self, writer: PrefetchWriter, block: tuple[Value, int], k: Range, rows: Range, panels: Range):
        self.w, self.e, self.panels = writer, writer.e, panels
        e, b = self.e, self.e.index
        self.place, columns = writer.rows_at(block[0]), self.columns()
        self.rows = self.next_rows(block, k, rows)
        self.count = b.sub(panels[1], panels[0])
        self.among = b.maximum(b.sub(self.count, e.i64(1)), e.i64(1)) if columns else self.count
        blocks = parts_of(e, b.sub(rows[1], rows[0]), e.i64(writer.full))
        number = b.binary("arith.divui", b.sub(block[0], rows[0]), e.i64(writer.full))
        self.of_columns = columns and columns.part(e, number, blocks, writer.steps)

    def fetch(self, panel: Value) -> Fetch:
        """By the tile of this panel."""
        e, b = self.e, self.e.index
        number = b.sub(panel, self.panels[0])
        rows = self.rows.part(e, number, self.among, self.w.steps) if self.rows else nothing(e, self.place)
        if self.of_columns is None:
            return rows
        return either(e, b.eq(number, b.sub(self.count, e.i64(1))), self.of_columns, rows)

    def next_rows(self, block: tuple[Value, int], k: Range, rows: Range) -> Runs | None:
        """The next block's; after the last one the first's, at the next block of k. None where rows lie apart."""
        e, b, w = self.e, self.e.index, self.w
        after = b.add(block[0], e.i64(block[1]))
        more = b.lt(after, rows[1])
        start = w.rows_at(b.select(more, after, rows[0]))
        if w.one_block:
            contiguous = w.p.lda == w.p.k.size
            return Runs(start, e.i64(RUN), e.i64(-(-4 * block[1] * w.steps // RUN))) if contiguous else None
        later = b.add(k[0], k[1])
        later = b.select(b.lt(later, e.integer(w.p.k.size)), later, e.i64(0))
        start = advance(e, start, b.select(more, k[0], later))
        return Runs(start, b.mul(e.integer(w.p.lda), e.i64(4)), e.i64(block[1]), w.run)

    def columns(self) -> Runs | None:
        """As many as the group has, from those on that are packed next. None where they are not runs along k."""
        e, b, w, plain = self.e, self.e.index, self.w, self.w.p.plain
        assert plain is not None
        if plain[1] != 1:
            return None
        columns = b.mul(b.sub(self.panels[1], self.panels[0]), e.i64(w.width))
        if not w.one_block:
            return Runs(w.after, b.mul(e.integer(plain[0]), e.i64(4)), columns, w.run)
        if plain[0] != w.p.k.size or w.panels <= w.group:
            return None
        return Runs(w.after, e.i64(RUN), parts_of(e, b.mul(columns, e.i64(4 * w.steps)), e.i64(RUN)))

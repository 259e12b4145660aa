"""Prefetches into the L2 cache, from inside a gemm's tile, what the next tiles read.

Each step along k prefetches one cache line, so that few prefetches are in flight. If they were all issued between two tiles, they would
fill the core's miss buffers, and the next tile would wait for them as for loads.

Prefetched memory is a number of runs of `run` bytes, a power of two, that start `apart` bytes from each other:

    address of step k = start + (pos / run) * apart + pos % run          pos = k * rate
"""

from typing import Any, Protocol

from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.cpu.emitter.addresses import BYTE, CACHE_LINE, advance, choose_address
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.emitter.scope import Range
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.cpu.matmul.tile import Fetch
from mlirc.lowering.target import CpuTarget

RUN = 1024  # bytes of a run where all of the memory is contiguous


def fetches(target: CpuTarget) -> bool:
    """Whether tiles prefetch: only with AVX-512, where it was measured to gain (docs/measurements.md)."""
    return target.has_avx512


@dataclass(frozen=True)
class Runs:
    """`count` runs of `run` bytes, the first at `start`, `apart` bytes from one to the next."""

    start: Value
    apart: Value
    count: Value
    run: int = RUN

    def part(self, e: VectorEmitter, number: Value, parts: Value, steps: int) -> Fetch:
        """Part `number` of `parts` equal ones, for a tile of `steps` steps. At most one cache line is prefetched in a step; what
        does not fit is left out."""
        b = e.index
        each = e.ceildiv(self.count, parts)
        rate = b.minimum(e.ceildiv(b.mul(each, e.i64(self.run)), e.i64(steps)), e.i64(CACHE_LINE))
        return Fetch(advance(e, self.start, b.mul(b.mul(number, each), self.apart), BYTE), self.apart, rate)


def nothing(e: VectorEmitter, place: Value) -> Fetch:
    """A prefetch without effect, of the line at `place`, which is in use anyway."""
    return Fetch(place, e.i64(0), e.i64(0))


def either(e: VectorEmitter, condition: Value, x: Fetch, y: Fetch) -> Fetch:
    """x where `condition` holds, else y."""
    numbers = (e.index.select(condition, *pair) for pair in zip(x[1:], y[1:], strict=True))
    return Fetch(choose_address(e, condition, x.start, y.start), *numbers)


class PrefetchWriter(Protocol):
    """The part of BlockedWriter (blocked.py) that Ahead reads."""

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
    """What the tiles of a block of rows prefetch, for a block of k; both are given as (first, number).

    The tile with the group's last panel prefetches the columns that are packed next, the other tiles the next block's rows.
    """

    def __init__(self, writer: PrefetchWriter, block: tuple[Value, int], k: Range, rows: Range, panels: Range):
        self.w, self.e, self.panels = writer, writer.e, panels
        e, b = self.e, self.e.index
        self.place, columns = writer.rows_at(block[0]), self.columns()
        self.rows = self.next_rows(block, k, rows)
        self.count = b.sub(panels[1], panels[0])
        self.among = b.maximum(b.sub(self.count, e.i64(1)), e.i64(1)) if columns else self.count
        blocks = e.ceildiv(b.sub(rows[1], rows[0]), e.i64(writer.full))
        number = b.binary("arith.divui", b.sub(block[0], rows[0]), e.i64(writer.full))
        self.of_columns = columns and columns.part(e, number, blocks, writer.steps)

    def fetch(self, panel: Value) -> Fetch:
        """What the tile with this panel prefetches."""
        e, b = self.e, self.e.index
        number = b.sub(panel, self.panels[0])
        rows = self.rows.part(e, number, self.among, self.w.steps) if self.rows else nothing(e, self.place)
        if self.of_columns is None:
            return rows
        return either(e, b.eq(number, b.sub(self.count, e.i64(1))), self.of_columns, rows)

    def next_rows(self, block: tuple[Value, int], k: Range, rows: Range) -> Runs | None:
        """The next block's rows; after the last block, the first one's for the next block of k. None where rows are not contiguous."""
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
        """The columns of the next group of panels. None where columns are not contiguous along k."""
        e, b, w, plain = self.e, self.e.index, self.w, self.w.p.plain
        assert plain is not None
        if plain[1] != 1:
            return None
        columns = b.mul(b.sub(self.panels[1], self.panels[0]), e.i64(w.width))
        if not w.one_block:
            return Runs(w.after, b.mul(e.integer(plain[0]), e.i64(4)), columns, w.run)
        if plain[0] != w.p.k.size or w.panels <= w.group:
            return None
        return Runs(w.after, e.i64(RUN), e.ceildiv(b.mul(columns, e.i64(4 * w.steps)), e.i64(RUN)))

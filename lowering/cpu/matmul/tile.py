"""The micro-kernel of matmul, attention and convolution: a tile of sums in registers, as a function in MLIR text.

    tile[i, :] += sum over k, ... of a[i * row + k * a_step + ...] * panel[k * b_step + ... + :]          one or more loops

Elements of `a` are read in place, one at a time, and broadcast to all lanes. All sums of a tile stay in registers.

Known strides are constants of the code. Then addresses need no arithmetic, which on Intel's processors competes with the FMAs for
execution ports.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.cpu.emitter.addresses import BYTE, F32, PTR, SECOND_LEVEL, advance, call, prefetch
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.cpu.matmul.accumulators import rank_one_update, unrolled_sums
from mlirc.lowering.cpu.matmul.factors import Floats, Pairs
from mlirc.lowering.target import CpuTarget

FLOATS = Floats()
Stride = Value | int
Place = tuple[int, int]  # a vector of the tile: (row, number of the vector in the row)


class Loop(NamedTuple):
    """A reduction loop: its number of iterations, and its strides in `a` and in the panel, in elements."""

    count: Value
    a_step: Stride
    b_step: Stride


class Fetch(NamedTuple):
    """What a tile prefetches while it runs (matmul/prefetch.py): first address, bytes from run to run, bytes for each step."""

    start: Value
    apart: Value
    rate: Value


def registers(target: CpuTarget) -> int:
    """How many vector registers the processor has."""
    return 32 if target.vector_bytes == 64 or target.arch == "aarch64" else 16


def most_rows(target: CpuTarget, vectors: int) -> int:
    """The most rows of a tile of `vectors` vectors: its sums, a row of the panel and a broadcast element fit into the registers."""
    return max(1, (registers(target) - vectors - 1) // vectors)


@dataclass(frozen=True)
class GemmTile:
    """The shape and the variant of a tile. `call` writes a call of its function.

    rows, vectors   the tile has rows * vectors vector registers of sums; a vector has `lanes` elements
    start           what sums are added to in the end, so that rounding errors do not grow with the number of blocks: "zero"; "tile":
                    the tile in memory; "factor": the tile times a vector of factors (online softmax); "flag": the tile if a flag
                    is true, else zero
    factors         how factors are loaded and multiplied (factors.py)
    short           whether k is summed in registers in blocks, each then added to the tile, so that rounding errors do not
                    grow with k
    run             bytes of the runs of memory that it prefetches, 0 where it prefetches none
    align           alignment in bytes of the vectors of the panel and of the tile
    """

    rows: int
    vectors: int
    lanes: int
    start: str = "tile"
    factors: Floats | Pairs = FLOATS
    short: bool = False
    run: int = 0
    align: int = 4

    def call(
        self,
        e: VectorEmitter,
        places: Sequence[Value],
        row: Stride,
        loops: Sequence[Loop],
        pitch: Stride,
        factor: Value | None = None,
        adds: Value | None = None,
        fetch: Fetch | None = None,
    ) -> None:
        """`places`: of a, the panel and the tile, which has `pitch` elements from row to row. factor, adds, fetch: where
        `start` and `run` need them."""
        strides = [row, pitch, *(step for loop in loops for step in loop[1:])]
        unknown = [x for x in strides if isinstance(x, Value)]
        arguments = [(x, PTR) for x in places] + [(x, "i64") for x in (*unknown, *(loop.count for loop in loops))]
        arguments += [(factor, PTR)] if factor else []
        arguments += [(adds, "i1")] if adds else []
        arguments += [(fetch.start, PTR), (fetch.apart, "i64"), (fetch.rate, "i64")] if fetch else []
        known = [None if isinstance(x, Value) else x for x in strides]
        call(e, self.name(known), arguments, partial(self.write, known))

    def name(self, known: Sequence[int | None]) -> str:
        strides = "".join(f"_{n}" for n in known if n is not None)
        ways = f"_{self.start}" * (self.start != "tile") + f"_fetching{self.run}" * bool(self.run)
        return f"tile{self.rows}x{self.vectors * self.lanes}{strides}{ways}"

    def write(self, known: Sequence[int | None], e: VectorEmitter, parameters: list[Value]) -> None:
        e.lanes = self.lanes
        given = iter(parameters[3:])
        row, pitch, *steps = (next(given) if n is None else n for n in known)
        loops = [Loop(next(given), *steps[k : k + 2]) for k in range(0, len(steps), 2)]
        more = list(given)
        a, panel, to = parameters[:3]
        offsets = [times(e, row, i) for i in range(self.rows)]
        lines = [advance(e, to, times(e, pitch, i)) for i in range(self.rows)]
        cells = {(i, j): advance(e, lines[i], j * self.lanes) for i, j in self.places}
        tile = TileText(self, e, offsets, cells)
        if self.short:
            fetch = Fetch(*more[1:]) if self.run else None
            tile.short_sums(a, panel, loops[0], more[0], fetch)
            return
        sums = tile.nest(loops, a, panel, tile.zeros())
        if self.start == "factor":
            factors = [self.load(e, advance(e, more[0], j * self.lanes)) for j in range(self.vectors)]
            wide = e.builder(F32, True)
            places = zip(self.places, sums, strict=True)
            sums = [wide.fma(self.load(e, cells[i, j]), factors[j], total) for (i, j), total in places]
        tile.leave(sums, adds=self.start == "tile")

    @property
    def places(self) -> list[Place]:
        return [(i, j) for i in range(self.rows) for j in range(self.vectors)]

    def load(self, e: VectorEmitter, address: Value) -> Value:
        return FLOATS.load_columns(e, address, self.align)


@dataclass
class TileText:
    """The body of a tile's function, written with `e`: `offsets` of its rows in `a`, and where its vectors are."""

    tile: GemmTile
    e: VectorEmitter
    offsets: list[Value]
    cells: dict[Place, Value]

    def zeros(self) -> list[Value]:
        return [self.e.builder(F32, True).constant(0.0)] * len(self.cells)

    def nest(self, loops: Sequence[Loop], a: Value, panel: Value, sums: list[Value]) -> list[Value]:
        """The sums after all iterations of these loops."""
        if not loops:
            return self.multiply_accumulate(a, panel, sums)
        (count, *steps), *inside = loops
        e = self.e

        def once(k: Value, sums: list[Value]) -> list[Value]:
            return self.nest(inside, *self.at(a, panel, k, steps), sums)

        return e.loop(e.i64(0), count, e.i64(1), sums, self.types(sums), once)

    def at(self, a: Value, panel: Value, k: Value, steps: Sequence[Stride]) -> tuple[Value, Value]:
        e, factors = self.e, self.tile.factors
        b_offset, a_offset = times(e, steps[1], k), times(e, steps[0], k)
        return advance(e, a, a_offset, factors.element), advance(e, panel, b_offset, factors.panel)

    def multiply_accumulate(self, a: Value, panel: Value, sums: list[Value]) -> list[Value]:
        """Every sum plus a row's element times a vector of the panel."""
        e, tile, factors = self.e, self.tile, self.tile.factors
        columns = [
            factors.load_columns(e, advance(e, panel, j * tile.lanes, factors.panel), tile.align)
            for j in range(tile.vectors)
        ]
        rows = (factors.load_element(e, advance(e, a, offset, factors.element)) for offset in self.offsets)
        return rank_one_update(rows, columns, sums, partial(factors.multiply, e))

    def leave(self, sums: Sequence[Value], adds: bool) -> None:
        e, align = self.e, self.tile.align
        for address, total in zip(self.cells.values(), sums, strict=True):
            if adds:
                total = e.builder(F32, True).add(self.tile.load(e, address), total)
            type_ = e.builder(F32, True).type_text(F32)
            e.lines.append(f"llvm.store {total}, {address} {{alignment = {align} : i64}} : {type_}, !llvm.ptr")

    def types(self, sums: Sequence[Value]) -> list[str]:
        return [self.e.builder(F32, True).type_text(F32)] * len(sums)

    # ---- short sums

    def short_sums(self, a: Value, panel: Value, loop: Loop, adds: Value, fetch: Fetch | None) -> None:
        """Block by block of k. There is one even for no steps: it writes zeros. Few sums take several steps side by side."""
        e, b, size = self.e, self.e.index, len(self.cells)
        copies, block = max(1, min(8 // size, 4)), self.tile.factors.block

        def step(k: Value, sums: list[Value]) -> list[Value]:
            return self.multiply_accumulate(*self.at(a, panel, k, loop[1:]), sums)

        before = (lambda k, _: self.fetch(k, fetch)) if fetch else None
        with e.each(0, b.maximum(loop.count, e.i64(1)), block) as start:
            within = start, b.minimum(b.add(start, e.i64(block)), loop.count)
            totals = unrolled_sums(e, within, 1, self.zeros(), copies, step, before)
            for adding in e.either(b.or_(adds, b.ne(start, e.i64(0)))):
                self.leave(totals, adding)

    def fetch(self, k: Value, fetch: Fetch) -> None:
        """Asks for the line of step `k`."""
        e, b, run = self.e, self.e.index, self.tile.run
        place = b.mul(k, fetch.rate)
        number = b.binary("arith.shrui", place, e.i64(run.bit_length() - 1))
        offset = b.add(b.mul(number, fetch.apart), b.and_(place, e.i64(run - 1)))
        prefetch(e, advance(e, fetch.start, offset, BYTE), SECOND_LEVEL)


def times(e: VectorEmitter, x: Stride, y: Stride) -> Value:
    """x * y: a constant where both are known."""
    if isinstance(x, int) and isinstance(y, int):
        return e.i64(x * y)
    x, y = (v if isinstance(v, Value) else e.i64(v) for v in (x, y))
    return e.index.mul(y, x)

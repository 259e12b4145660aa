"""A convolution in groups with its epilogue as functions in MLIR text: filters along the lanes, some windows of a row at a time.

for some rows of windows:                                   threads share these, or the tiles
  for tile of filters:                                      its weights stay in the L1 cache
    for row, block of windows of the row:
      tile = for row of taps inside the image, channel:     sums in registers
               for pixel that the block reaches:
                 each sum += pixel * weight                 each pixel is read once, for all windows that it is in
      epilogue over the tile

A vector of filters of one group is multiplied by a channel of a pixel in all lanes. Where a vector has filters of several groups, each
lane has its own group's channel: two or three groups' are loaded, each into its lanes; those of more groups, which are neighbours, are
loaded as a vector and permuted.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.cpu.convolution.direct import DirectWriter, TapSums, WindowBlock
from mlirc.lowering.cpu.convolution.grouped_windows import GroupedSum
from mlirc.lowering.cpu.emitter.addresses import CACHE_LINE, F32, advance, load_floats, prefetch
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.loops.entry import decode_indices, thread_part
from mlirc.lowering.cpu.loops.epilogue import enter_row
from mlirc.lowering.cpu.loops.frame import KernelText
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.cpu.matmul.factors import Floats
from mlirc.lowering.cpu.matmul.tile import registers
from mlirc.lowering.kernel.typical_sizes import typical
from mlirc.lowering.target import CpuTarget

WINDOWS = 64  # windows, about, that a tile of weights is read for at a time
ENOUGH_ITEMS = 64  # work items that any number of threads splits about evenly
WIDEST = 4  # vectors of a tile of filters, at most
MOST_KINDS = 4  # kinds of tiles of filters that have code of their own, unless more are needed
SUMS = 8  # sums that hide the latency of an FMA
# groups of a vector from which on AVX-512 permutes their channels: a permutation runs where half of the FMAs do
MANY_GROUPS = 4
FEW_CHANNELS = 16  # a group of fewer channels multiplies too little for a pixel to hide the time that loading it takes

# products that a sum adds before it is added to those before: rounding errors do not grow with the channels
STEPS = 128

Lanes = tuple[int, ...]  # of each filter of a vector, its group, counted from the tile's first


@dataclass(frozen=True)
class FilterTile:
    """Some vectors of filters: the group of each lane that has a filter, of each vector."""

    vectors: tuple[Lanes, ...]

    @property
    def groups(self) -> int:
        return self.vectors[-1][-1] + 1


class GroupedWriter(DirectWriter):
    c: GroupedSum

    def __init__(self, c: GroupedSum, name: str, target: CpuTarget):
        super().__init__(c, name, target)
        tiles = filter_tiles(c, self.width, self.lanes)
        self.kinds = list(dict.fromkeys(tiles))
        self.numbers = [self.kinds.index(tile) for tile in tiles]

    def tile_shape(self) -> tuple[int, int]:
        self.width, most = tile_shape(self.c, self.target)
        return self.width * self.lanes, most

    def loops(self, rows: Int, columns: Int) -> Int:
        e = self.e
        some = max(1, min(-(-WINDOWS // max(typical(columns), 1)), typical(rows)))
        blocks, tiles = symbols.floordiv(rows + (some - 1), some), len(self.numbers)
        parts = max(1, min(tiles, -(-ENOUGH_ITEMS // max(typical(blocks), 1))))
        part = -(-tiles // parts)
        parts = -(-tiles // part)
        with e.each(*thread_part(e, e.integer(blocks * parts))) as item:
            b = e.index
            top = b.mul(b.binary("arith.divui", item, e.i64(parts)), e.i64(some))
            first = b.mul(b.binary("arith.remui", item, e.i64(parts)), e.i64(part))
            end, last = b.minimum(b.add(top, e.i64(some)), e.integer(rows)), b.add(first, e.i64(part))
            with e.each(first, b.minimum(last, e.i64(tiles))) as tile, e.each(top, end) as row:
                self.row(tile, row)
        return blocks * parts

    def row(self, tile: Value, row: Value) -> None:
        """A row of windows, for a tile of filters."""
        c, e, b = self.c, self.e, self.e.index
        if c.rows:
            decode_indices(e, c.rows, row)
        enter_row(e, c.epilogue, c.rows)
        first = b.mul(tile, e.i64(self.chunk))
        group = b.binary("arith.divui", first, e.i64(c.filters))
        x = advance(e, e.env["base", c.x.operand], e.integer(c.first_pixel))
        x = advance(e, x, b.mul(group, e.i64(c.more.count)))
        w = advance(e, e.env["base", c.w.operand], e.integer(c.first_weight))
        at = self.at_row(x, advance(e, w, b.mul(tile, e.i64(self.width * c.tile))))
        for kind in self.kind_of(tile):
            for block, start, stop in self.blocks():
                with e.each(start, stop, block.windows) as column:
                    self.tile_of_windows(kind, block, column, at, first)

    def kind_of(self, tile: Value) -> Iterator[int]:
        """The kinds of tiles of filters, each in a branch of its own: they come in turns, but for the last tile."""
        e, b = self.e, self.e.index
        if len(self.kinds) == 1:
            yield 0
            return
        *regular, last = self.numbers
        period = next(p for p in range(1, len(regular) + 1) if all(n == regular[k % p] for k, n in enumerate(regular)))
        turn = b.select(b.lt(tile, e.i64(len(regular))), b.binary("arith.remui", tile, e.i64(period)), e.i64(period))
        for k, number in enumerate([*regular[:period], last]):
            with e.when(b.eq(turn, e.i64(k))):
                yield number

    def tile_of_windows(
        self, kind: int, block: WindowBlock, column: Value, at: tuple[Value, Value, Value], first: Value
    ) -> None:
        x, w, counts = self.at_column(block, column, at)

        def write(e: VectorEmitter, given: list[Value], steps: list[int | Value]) -> None:
            GroupSums(self, block, e, given[3:], steps, self.kinds[kind]).write_sums(*given[:3])

        self.call_sums(f"{block.name}_{kind}", (x, w, self.tile), counts, write)
        self.finish_windows(block, column, first, self.e.i64(sum(map(len, self.kinds[kind].vectors))))


@dataclass
class GroupSums(TapSums):
    """Writes the sums of a block of windows and a tile of filters."""

    writer: GroupedWriter
    kind: FilterTile

    def write_sums(self, x: Value, w: Value, tile: Value) -> None:
        """tile[window, filter] = sums; x, w: addresses of the first group's first channel and of the first filter."""
        e, b, c, vectors = self.e, self.e.index, self.writer.c, len(self.kind.vectors)
        wide = e.builder(F32, True)
        zeros = [wide.constant(0.0)] * (self.block.windows * vectors)
        types = [wide.type_text(F32)] * len(zeros)

        def row(k: Value, sums: list[Value]) -> list[Value]:
            here = self.at(x, w, k, 0)
            if c.more.count < FEW_CHANNELS and self.block.inside is not None:
                self.fetch(here[0])
            return e.loop(*channels, e.i64(1), sums, types, partial(self.channel, *here))

        some = max(1, STEPS // (c.down.count * c.along.count))
        with e.each(0, c.more.count, some) as first:
            channels = first, b.minimum(b.add(first, e.i64(some)), e.i64(c.more.count))
            made = e.loop(e.i64(0), self.counts[0], e.i64(1), zeros, types, row)
            for adding in e.either(b.ne(first, e.i64(0))) if some < c.more.count else (False,):
                for k, total in enumerate(made):
                    to = advance(e, tile, (k // vectors) * self.writer.chunk + (k % vectors) * e.lanes)
                    total = wide.add(load_floats(e, to), total) if adding else total
                    e.lines.append(f"llvm.store {total}, {to} {{alignment = 4 : i64}} : {types[0]}, !llvm.ptr")

    def fetch(self, x: Value) -> None:
        """Asks for the pixels of the next tile, which follow those of this one: far apart as pixels are, no processor does by itself."""
        span = self.kind.groups * self.writer.c.more.count
        for window, tap in self.pixels_met():
            for k in range(0, span, CACHE_LINE // 4):
                prefetch(self.e, advance(self.e, x, self.e.index.add(self.offset(window, tap), self.e.i64(span + k))))

    def channel(self, x: Value, w: Value, channel: Value, sums: list[Value]) -> list[Value]:
        """The sums after a row of taps of a channel: pixel by pixel."""
        w = advance(self.e, w, self.times(channel, self.steps[5]))
        return self.pixel_by_pixel(x, w, sums, self.pixel_of(channel), self.weights)

    def weights(self, address: Value) -> list[Value]:
        """The filters' weights, of each vector; nothing past the last filter is read."""
        vectors = enumerate(self.kind.vectors)
        return [self.load_lanes(advance(self.e, address, v * self.writer.c.tile), len(groups)) for v, groups in vectors]

    # ---- channels of pixels

    def pixel_of(self, channel: Value) -> Callable[[Value], list[Value]]:
        """A function that gives, of the pixel at an address, the channel of each lane's group, for each vector."""
        e, channels = self.e, self.writer.c.more.count
        numbers: dict[Lanes, Value] = {}
        for groups in self.kind.vectors:
            if permutes(groups, channels, self.writer.target):
                numbers[groups] = self.places(groups, channel)

        def pixel(address: Value) -> list[Value]:
            first = advance(e, address, channel)
            loaded: dict[int, Value] = {}

            def every(group: int) -> Value:
                if group not in loaded:
                    loaded[group] = Floats().load_element(e, advance(e, first, group * channels))
                return loaded[group]

            made = []
            for groups in self.kind.vectors:
                if groups in numbers:
                    made.append(self.permuted(address, groups, numbers[groups]))
                    continue
                value = every(groups[0])
                for group in sorted(set(groups[1:]) - {groups[0]}):
                    mask = self.lanes_where([g == group for g in groups])
                    value = e.builder(F32, True).select(mask, every(group), value)
                made.append(value)
            return made

        return pixel

    def places(self, groups: Lanes, channel: Value) -> Value:
        """Where each lane finds the channel of its group among those from the vector's first group on."""
        e, channels = self.e, self.writer.c.more.count
        places = [(g - groups[0]) * channels for g in groups] + [0] * (e.lanes - len(groups))
        b = e.builder(torch.int32, True)
        starts = e.text.constant(f"dense<{places}>", b.type_text(torch.int32), torch.int32, None)
        number = e.index.emit(f"arith.trunci {channel} : i64 to i32", torch.int32)
        return b.add(starts, e.splat(number))

    def permuted(self, pixel: Value, groups: Lanes, places: Value) -> Value:
        """The channels of a pixel that `places` names."""
        e, channels = self.e, self.writer.c.more.count
        first = advance(e, pixel, groups[0] * channels)
        loaded = self.load_lanes(first, (groups[-1] - groups[0] + 1) * channels)
        b = e.builder(F32, True)
        floats, numbers = b.type_text(F32), b.type_text(torch.int32)
        name = "llvm.x86.avx512.permvar.sf.512" if e.lanes == 16 else "llvm.x86.avx2.permps"
        types = f"({floats}, {numbers}) -> {floats}"
        return b.emit(f'llvm.call_intrinsic "{name}"({loaded}, {places}) : {types}', F32)

    def load_lanes(self, address: Value, count: int) -> Value:
        """`count` neighbouring elements; zeros in the other lanes."""
        mask = self.lanes_where([True] * count) if count < self.e.lanes else None
        return load_floats(self.e, address, mask=mask)

    def lanes_where(self, holds: list[bool]) -> Value:
        """A mask: `holds` for the first lanes, false for the others."""
        lanes = self.e.lanes
        text = ", ".join("true" if k < len(holds) and holds[k] else "false" for k in range(lanes))
        return self.e.text.constant(f"dense<[{text}]>", f"vector<{lanes}xi1>", torch.bool, None)


def permutes(groups: Lanes, channels: int, target: CpuTarget) -> bool:
    """Whether a vector's channels are loaded as a vector and permuted; else each group's is loaded into its lanes."""
    count = groups[-1] - groups[0] + 1
    enough = MANY_GROUPS if target.has_avx512 else 2
    return target.has_avx2 and count >= enough and count * channels <= target.vector_bytes // 4


def filter_tiles(c: GroupedSum, width: int, lanes: int) -> list[FilterTile]:
    """All tiles of `width` vectors; the last one may have fewer."""
    filters, step = c.channel.known, width * lanes
    assert filters is not None
    made = []
    for first in range(0, filters, step):
        groups = [k // c.filters - first // c.filters for k in range(first, min(first + step, filters))]
        made.append(FilterTile(tuple(tuple(groups[k : k + lanes]) for k in range(0, len(groups), lanes))))
    return made


def tile_shape(c: GroupedSum, target: CpuTarget) -> tuple[int, int]:
    """Vectors of filters of a tile, and windows of a block at most: what takes the fewest cycles, of the shapes that need little code."""
    lanes, columns = target.vector_bytes // 4, typical(c.column.size) if c.column else 1
    found = []
    for width in range(1, WIDEST + 1):
        tiles, most = filter_tiles(c, width, lanes), most_windows(c, width, target)
        blocks = -(-columns // most)
        kinds = dict.fromkeys(tiles)
        costs = {tile: tile_cost(tile, c, -(-columns // max(blocks, 1)), target) for tile in kinds}
        found.append((max(len(kinds), MOST_KINDS), blocks * sum(costs[tile] for tile in tiles), width, most))
    return min(found)[2:]


def most_windows(c: GroupedSum, width: int, target: CpuTarget) -> int:
    """The most windows of a block: their sums, a row of weights, a pixel and the places of its channels fit into the registers."""
    return max(1, (registers(target) - width * (c.along.count + 1) - 1) // width)


def tile_cost(tile: FilterTile, c: GroupedSum, windows: int, target: CpuTarget) -> float:
    """Cycles of a row of taps of one channel: two FMAs or loads in each; with AVX-512, moves between lanes take an FMA's place."""
    axis, step = c.along, typical(c.x.address.strides.get(c.column.name, 0)) if c.column else 0
    pixels = len({j * step + k * typical(axis.x) for j in range(windows) for k in range(axis.count)})
    products = axis.count * windows * len(tile.vectors)
    loads, moves, broadcast = axis.count * len(tile.vectors), 0, set()
    for groups in tile.vectors:
        if permutes(groups, c.more.count, target):
            loads, moves = loads + pixels, moves + pixels
        else:
            broadcast |= set(groups)
            moves += (len(set(groups)) - 1) * pixels
    loads += len(broadcast) * pixels
    shared = (products + moves) / 2 if target.has_avx512 else max(products / 2, moves)
    # of equal shapes the one that loads less
    return max(shared, loads / 2, axis.count * SUMS / 2) + loads / 8


def grouped_text(c: GroupedSum, name: str, target: CpuTarget) -> KernelText:
    """The functions of kernel `name`."""
    return GroupedWriter(c, name, target).write()

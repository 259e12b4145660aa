"""A convolution, or the gradient of its images, as functions in MLIR text: out[window, o] = x[window's pixels, c] @ w[c, tap, o].

for some panels of filters:              threads split these and the blocks (each_part)
  pack the panels of w                   they stay in the L2 cache
  for block of windows:                  some whole rows of an image, or some images
    for panel:
      for column of taps, some channels:
        for row of windows, a few of these:
          sums += x @ panel              over the taps and windows that meet inside the image
      scale, shift, addition and relu

A result is summed up by one thread, in the same order for any number of them.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.dialect import OPS
from mlirc.dialects.core.symbols import Int
from mlirc.lowering.cpu.convolution.plan import ConvolutionPlan
from mlirc.lowering.cpu.convolution.writer import ConvolutionWriter, Panel
from mlirc.lowering.cpu.emitter.addresses import (
    PTR,
    advance,
    call,
    clear_scratch,
    copy_scalar,
    lanes_below,
    load_floats,
    store_floats,
)
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.emitter.scope import Range
from mlirc.lowering.cpu.loops.entry import load_slot, thread_part
from mlirc.lowering.cpu.loops.frame import KernelText
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.cpu.matmul.tile import GemmTile, Loop
from mlirc.lowering.target import CpuTarget

MANY_EACH = 4  # tiles (or blocks) of a thread, from which on one more or less of them is no great difference
AHEAD = 3  # channels whose weights are fetched before they are packed


class ForwardWriter(ConvolutionWriter):
    def write(self) -> KernelText:
        c = self.c
        # rows of the packed panels, and some more: square tiles are written whole
        self.panel_rows = c.channels * c.taps + self.lanes
        self.operands = ["x", "w", *["other"] * c.adds, *(step for step in c.after if step != "relu"), "out"]
        return self.function(self.operands, c.items, read=2)

    def body(self, items: Int) -> None:
        c, e = self.c, self.e
        self.panels = self.scratch(c.tiles_at_once * self.panel_rows * c.widest)
        self.sums = self.scratch(c.block_windows * c.widest)

        with self.each_part() as (tiles, blocks), e.parts(tiles, c.tiles_at_once) as some:
            with self.each_panel(some) as (column, panel, k):
                self.pack_channels(column, panel, self.place(k), e.i64(0), self.of(c.channels))

            with e.each(*blocks) as number:
                images, rows = self.block_at(number)
                with self.each_panel(some) as (column, panel, k), self.block_of_sums(column, panel, images, rows):
                    self.multiply_accumulate(panel, self.place(k), images, rows, (e.i64(0), self.of(c.channels)))

    # ---- threads

    @contextmanager
    def each_part(self) -> Iterator[tuple[Range, Range]]:
        """This thread's tiles of filters and blocks of windows.

        Threads split the pairs of a tile and a block, which are sorted by tiles (where weights are small: by blocks). A thread has the
        last blocks of a tile, then some whole tiles, then the first blocks of one more: three parts, of which some are empty. Where
        each thread has as many whole tiles, or about as many, it has no other part, because each part packs its weights.
        """
        c, e, b = self.c, self.e, self.e.index
        self.shrink_blocks()
        by_blocks = b.ne(self.of(c.shares_windows), e.i64(0))
        tiles, threads = self.of(c.column_tiles), e.env["threads"]
        outer, inner = b.select(by_blocks, self.blocks, tiles), b.select(by_blocks, tiles, self.blocks)
        even = b.eq(b.binary("arith.remui", outer, threads), e.i64(0))
        whole = b.or_(even, b.ge(outer, b.mul(threads, e.i64(MANY_EACH))))
        unit = b.select(whole, inner, e.i64(1))
        count = b.select(whole, outer, b.mul(outer, inner))
        lo, hi = (b.mul(x, unit) for x in thread_part(e, count))

        inner = b.maximum(inner, e.i64(1))
        middle = b.minimum(b.mul(e.ceildiv(lo, inner), inner), hi)
        last = b.maximum(middle, b.mul(b.binary("arith.divui", hi, inner), inner))
        with e.each(0, 3) as number:
            is_first, is_middle = b.eq(number, e.i64(0)), b.eq(number, e.i64(1))
            start = b.select(is_first, lo, b.select(is_middle, middle, last))
            stop = b.select(is_first, middle, b.select(is_middle, last, hi))
            with e.when(b.lt(start, stop)):
                slow = b.binary("arith.divui", start, inner), e.ceildiv(stop, inner)
                begin = b.binary("arith.remui", start, inner)
                fast = begin, b.select(is_middle, inner, b.add(begin, b.sub(stop, start)))
                choices = list(zip(slow, fast, strict=True))
                some = tuple(b.select(by_blocks, f, s) for s, f in choices)
                others = tuple(b.select(by_blocks, s, f) for s, f in choices)
                yield (some[0], some[1]), (others[0], others[1])

    def shrink_blocks(self) -> None:
        """Blocks of fewer images or rows, where there are more threads than pairs of a tile and a block."""
        c, e, b, one = self.c, self.e, self.e.index, self.e.i64(1)
        images, lines, down = self.of(c.images), self.of(c.block_rows), 1
        if c.results is not None:
            down, lines = c.tile_down, self.down(self.of(c.block_rows), c.tile_down)
        wanted = e.ceildiv(e.env["threads"], self.of(c.column_tiles))
        parts = b.maximum(b.minimum(images, self.up(wanted, c.row_blocks)), one)
        self.block_images = b.minimum(self.of(c.block_images), b.maximum(e.ceildiv(images, parts), one))
        image_blocks = e.ceildiv(images, self.block_images)
        there = b.maximum(b.mul(image_blocks, self.of(c.row_blocks)), one)
        parts = b.minimum(e.ceildiv(wanted, there), lines)
        self.block_rows = b.mul(e.ceildiv(lines, parts), self.of(down))
        self.row_blocks = e.ceildiv(self.of(c.rows.count), self.block_rows)
        self.blocks = b.mul(image_blocks, self.row_blocks)

    def block_at(self, number: Value) -> tuple[Range, Range]:
        """Images of a block, and rows of windows of each."""
        b = self.e.index
        image = b.mul(b.binary("arith.divui", number, self.row_blocks), self.block_images)
        row = b.mul(b.binary("arith.remui", number, self.row_blocks), self.block_rows)
        images = image, b.minimum(b.add(image, self.block_images), self.of(self.c.images))
        return images, (row, b.minimum(b.add(row, self.block_rows), self.of(self.c.rows.count)))

    # ---- weights

    def place(self, number: Value) -> Value:
        return advance(self.e, self.panels, self.e.index.mul(number, self.of(self.panel_rows * self.c.widest)))

    def pack_channels(self, column: Value, panel: Panel, to: Value, start: Value, count: Value) -> None:
        """to[c, tap, :] = the filters' weights for `count` channels from `start` on; of a gradient of images, w's filters
        are the channels here."""
        e, c = self.e, self.c
        numbers = [(x, "i64") for x in (column, start, count, *map(self.of, (c.filters, c.channels, c.taps)))]

        def write(e: VectorEmitter, p: list[Value], vectors: int) -> None:
            w, to, column, start, count, *sizes = p
            e.env |= dict(zip(("filters", "channels", "taps"), sizes, strict=True)) | {"w": w}
            with self.beside(e):
                self.write_panel(column, vectors, to, start, count)

        for vectors in self.by_width(panel):
            call(e, f"pack_{vectors}", [(e.env["w"], PTR), (to, PTR), *numbers], partial(write, vectors=vectors))

    def write_panel(self, column: Value, vectors: int, panel: Value, start: Value, count: Value) -> None:
        """The body of the function that `pack_channels` calls."""
        c, e, b = self.c, self.e, self.e.index
        packer = self.packer(0, vectors)
        if c.kind == "forward":
            taps = symbols.symbol("taps")
            base = advance(e, e.env["w"], b.mul(start, self.of(taps)))
            packer.transposed(base, c.channels * taps, column, c.filters, b.mul(count, self.of(taps)), panel)
            return
        taps = c.rows.taps * c.columns.taps
        assert isinstance(taps, int)  # as plan() has it for gradients of images
        whole = taps // self.lanes * self.lanes
        last = self.of(c.filters - 1)

        with e.each(0, count) as k:
            source = advance(e, e.env["w"], b.mul(b.add(start, k), self.of(c.filters * taps)))
            to = advance(e, panel, b.mul(k, e.i64(taps * packer.width)))
            # what lies side by side is short, and far from the next: no processor fetches that ahead by itself
            ahead = advance(e, source, self.sum_of((column, taps), c.filters * (AHEAD * taps)))
            for line in range(0, packer.width * taps, 16):
                here = advance(e, ahead, line)
                e.lines.append(
                    f'"llvm.intr.prefetch"({here}) {{rw = 0 : i32, hint = 3 : i32, cache = 1 : i32}} : (!llvm.ptr) -> ()'
                )
            if whole:
                packer.transposed(source, taps, column, c.filters, e.i64(whole), to)

            if whole < taps:
                with e.each(0, packer.width) as i:
                    first = b.mul(b.minimum(b.add(column, i), last), e.i64(taps))
                    for tap in range(whole, taps):
                        copy_scalar(
                            e,
                            advance(e, source, self.sum_of(first, tap)),
                            advance(e, to, self.sum_of(i, tap * packer.width)),
                        )

    # ---- a block of windows

    @contextmanager
    def block_of_sums(self, column: Value, panel: Panel, images: Range, rows: Range) -> Iterator[None]:
        """Results of a block and panel: zeros, to which what is written inside adds, and then what follows the sums."""
        c, b = self.c, self.e.index
        lines = b.mul(b.sub(images[1], images[0]), b.sub(rows[1], rows[0]))
        windows = b.mul(lines, self.of(c.columns.count))
        clear_scratch(self.e, self.sums, b.mul(windows, panel.width))
        yield
        first = b.mul(self.sum_of((images[0], c.rows.count), rows[0]), self.of(c.columns.count))
        self.finish(column, panel, first, windows, self.sums)

    def multiply_accumulate(self, panel: Panel, packed: Value, images: Range, rows: Range, channels: Range) -> None:
        """sums += x @ panel, `packed` from the first of these channels on."""
        c, e, b = self.c, self.e, self.e.index

        with e.each(0, c.columns.taps) as kw:
            axis = c.columns
            if axis.spread == 1:
                within = self.inside(axis, kw, e.i64(0), self.of(axis.count))
            else:
                within = self.elements_met(kw)

            with e.each(*channels, c.chunk) as channel:
                steps = b.minimum(b.sub(channels[1], channel), self.of(c.chunk))
                start = b.mul(b.mul(b.sub(channel, channels[0]), self.of(c.taps)), panel.width)
                weights = advance(e, packed, start)

                with e.each(*images) as n, e.each(*rows) as h:
                    line = self.sum_of(b.mul(b.sub(n, images[0]), b.sub(rows[1], rows[0])), b.sub(h, rows[0]))
                    sums = advance(e, self.sums, b.mul(b.mul(line, self.of(c.columns.count)), panel.width))
                    self.line(panel, weights, sums, (n, h, kw, channel), within, steps)

    def line(
        self, panel: Panel, packed: Value, sums: Value, at: tuple[Value, ...], within: Range, steps: Value
    ) -> None:
        """A row of windows, from left to right, of image n at height h: the taps of column kw, and some channels, which
        `packed` begins with. `within`: the windows, or the elements of a row that is spread, from where to where."""
        c, e, b = self.c, self.e, self.e.index
        n, h, kw, channel = at
        top, count, apart = self.taps_inside(h)
        y = self.sum_of((h, c.rows.stride), (top, c.rows.dilation), c.rows.padding * -1)
        x = self.sum_of((kw, c.columns.dilation), c.columns.padding * -1)
        first = e.i64(0)
        if c.columns.spread != 1:
            x, first = e.i64(0), b.sub(e.i64(0), x)
        y = self.down(y, c.rows.spread)
        pixel = self.sum_of((self.sum_of((n, c.rows.size), y), c.columns.size), x)
        image = advance(e, e.env["x"], self.sum_of((pixel, c.channels), channel))
        tap = self.sum_of((top, c.columns.taps), kw)
        if c.kind == "input":
            tap = b.sub(self.of(c.taps - 1), tap)
        down = b.mul(self.of(c.columns.taps * (-apart if c.kind == "input" else apart)), panel.width)
        weights = advance(e, packed, b.mul(tap, panel.width))
        row = self.of(c.columns.stride * c.channels)
        loops = (
            Loop(count, self.of(c.rows.dilation * apart // c.rows.spread * c.columns.size * c.channels), down),
            Loop(steps, e.i64(1), b.mul(self.of(c.taps), panel.width)),
        )
        pitch = b.mul(e.i64(c.columns.spread), panel.width)
        sums = advance(e, sums, b.mul(first, panel.width))
        self.add_rows(panel, within[0], self.cuts(*within), (image, weights, sums), (row, pitch), loops)

    def add_rows(
        self,
        panel: Panel,
        start: Value,
        cuts: list[tuple[int, Value]],
        places: tuple[Value, Value, Value],
        pitches: Range,
        loops: Sequence[Loop],
    ) -> None:
        """sums += rows @ weights, tile by tile. `places`: of row 0, of the weights, and of the sums of row 0; `pitches`: from
        row to row, and from sums to sums; `loops`: of a tile."""
        e, b = self.e, self.e.index
        rows_at, weights, sums_at = places
        for rows, stop in cuts:
            with e.each(start, stop, rows) as k:
                here = [advance(e, at, b.mul(k, pitch)) for at, pitch in zip((rows_at, sums_at), pitches, strict=True)]
                for vectors in self.by_width(panel):
                    tile = GemmTile(rows, vectors, self.lanes)
                    tile.call(e, (here[0], weights, here[1]), pitches[0], loops, pitches[1])
            start = stop

    def cuts(self, left: Value, right: Value) -> list[tuple[int, Value]]:
        """(rows of a tile, where such tiles end): full ones, then some of one row less, so that nothing is left, if it can be."""
        e, b, most = self.e, self.e.index, self.c.tile_rows
        count = b.maximum(b.sub(right, left), e.i64(0))
        short = b.binary("arith.remui", self.sum_of(b.mul(count, e.i64(most - 1)), 0), e.i64(most))
        fits = b.le(b.mul(short, e.i64(most - 1)), count)
        short = b.select(fits, short, e.i64(0))
        full = self.down(b.sub(count, b.mul(short, e.i64(most - 1))), most)
        whole = self.sum_of(left, (full, most))
        return [(most, whole), (most - 1, self.sum_of(whole, (short, most - 1))), (1, right)]

    def elements_met(self, tap: Value) -> tuple[Value, Value]:
        """The elements of a row, which is spread, that this tap of some window meets: from where to where."""
        e, b, axis = self.e, self.e.index, self.c.columns
        window = b.sub(self.of(axis.padding), b.mul(tap, e.i64(axis.dilation)))  # that meets element 0
        first = self.up(b.maximum(b.sub(e.i64(0), window), e.i64(0)), axis.spread)
        last = self.down(b.maximum(b.sub(self.of(axis.count - 1 + axis.spread), window), e.i64(0)), axis.spread)
        return first, b.minimum(last, self.of(axis.size))

    def taps_inside(self, window: Value) -> tuple[Value, Value, int]:
        """The taps of a window that meet rows of the image: the first, how many, and how far they are apart."""
        _e, b, axis = self.e, self.e.index, self.c.rows
        if axis.spread != 1:
            return self.taps_that_meet(window)
        top, end = self.taps_met(axis, window)
        return top, b.sub(b.minimum(end, self.of(axis.taps)), top), 1

    def taps_that_meet(self, window: Value) -> tuple[Value, Value, int]:
        """As `taps_inside`, where rows are `spread` apart: the taps k for which window + k * dilation - padding is a multiple of that."""
        e, b, axis = self.e, self.e.index, self.c.rows
        shared = math.gcd(axis.dilation, axis.spread)
        apart = axis.spread // shared
        missing = b.sub(self.of(axis.padding), window)  # what k * dilation has to be for row 0
        rest = b.binary("arith.remsi", missing, e.i64(axis.spread))
        rest = b.binary("arith.remui", b.add(rest, e.i64(axis.spread)), e.i64(axis.spread))
        met = pow(axis.dilation // shared, -1, apart)
        some = b.binary("arith.remui", b.mul(self.down(rest, shared), e.i64(met)), e.i64(apart))
        lowest = self.up(b.maximum(missing, e.i64(0)), axis.dilation)
        first = self.sum_of(some, (self.up(b.maximum(b.sub(lowest, some), e.i64(0)), apart), apart))
        reach = self.sum_of(missing, (self.of(axis.size - 1), axis.spread), axis.dilation)
        end = b.minimum(self.down(b.maximum(reach, e.i64(0)), axis.dilation), self.of(axis.taps))
        count = self.up(b.maximum(b.sub(end, first), e.i64(0)), apart)
        meets = b.eq(b.binary("arith.remui", rest, e.i64(shared)), e.i64(0))
        return first, b.select(meets, count, e.i64(0)), apart

    # ---- what follows

    def finish(self, column: Value, panel: Panel, first: Value, windows: Value, sums: Value) -> None:
        """out = relu(scale * sums + shift + other), for as many windows from `first` on."""
        numbers = [(x, "i64") for x in (column, first, windows, self.of(self.c.filters))]

        def write(e: VectorEmitter, p: list[Value], vectors: int) -> None:
            args, sums, column, first, windows, e.env["filters"] = p
            for k, name in enumerate(self.operands):
                e.env[name] = load_slot(e, args, k, PTR)
            with self.beside(e):
                self.write_results(column, vectors, first, windows, sums)

        given = [(Value("%args", torch.int64), PTR), (sums, PTR), *numbers]
        for vectors in self.by_width(panel):
            call(self.e, f"finish_{vectors}", given, partial(write, vectors=vectors))

    def write_results(self, column: Value, vectors: int, first: Value, windows: Value, sums: Value) -> None:
        """The body of the function that `finish` calls."""
        c, e, b, width = self.c, self.e, self.e.index, vectors * self.lanes
        wide = e.builder(torch.float32, True)
        masks = {
            j: lanes_below(e, b.sub(self.of(c.filters - j), column)) if c.ragged else None
            for j in range(0, width, self.lanes)
        }
        factors = {
            (name, j): load_floats(e, advance(e, e.env[name], self.sum_of(column, j)), mask=mask)
            for name in ("scale", "shift")
            for j, mask in masks.items()
            if name in c.after
        }
        start = self.sum_of(b.mul(first, self.of(c.filters)), column)

        with e.each(0, windows) as k:
            source, place = b.mul(k, e.i64(width)), self.sum_of(start, (k, c.filters))
            for j, mask in masks.items():
                value = load_floats(e, advance(e, sums, self.sum_of(source, j)))
                here = self.sum_of(place, j)
                if "scale" in c.after:
                    value = wide.mul(value, factors["scale", j])
                if "shift" in c.after:
                    value = wide.add(value, factors["shift", j])
                if c.adds:
                    value = wide.add(value, load_floats(e, advance(e, e.env["other"], here), mask=mask))
                if "relu" in c.after:
                    value = OPS["relu"].scalar(wide, value)
                to = advance(e, e.env["out"], here)
                if mask is None:
                    store_floats(e, value, to)
                else:
                    store_floats(e, value, to, mask=mask)


def convolution_text(c: ConvolutionPlan, name: str, target: CpuTarget) -> KernelText:
    """The functions of kernel `name`, for all calls of this plan."""
    return ForwardWriter(c, name, target).write()

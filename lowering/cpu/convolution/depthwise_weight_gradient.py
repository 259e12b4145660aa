"""The gradient of a depthwise convolution's weight as functions in MLIR text: sums[part, tap, c] of x[pixel, c] * dy[window, c].

for part of the images, chunk of channels:     threads share these
  for block of windows:                        some rows of an image
    pack x and dy by blocks of channels        pixels lie far apart, many in one set of the cache
    for block of channels:
      for some rows of windows:                they stay in the L1 cache
        for group of taps of a column:         up to four, which read dy once
          for column of taps:
            sums += x * dy                     channels along the lanes; windows that a tap misses are left out
  store the sums

What a part adds up does not depend on the number of threads. A sum goes over some hundred windows in registers, then over
blocks, then over parts: chains are short, as rounding errors are.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import torch

from mlirc.dialects.core.symbols import Int, symbol
from mlirc.lowering.cpu.convolution.depthwise_call import MOST_TAPS, DepthwisePlan
from mlirc.lowering.cpu.convolution.writer import ConvolutionWriter
from mlirc.lowering.cpu.emitter.addresses import (
    PTR,
    advance,
    call,
    clear_scratch,
    lanes_below,
    load_floats,
    load_scratch,
    store_floats,
    store_scratch,
)
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.emitter.scope import Range
from mlirc.lowering.cpu.loops.entry import thread_part
from mlirc.lowering.cpu.loops.frame import KernelText
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.target import CpuTarget


class DepthwiseWriter(ConvolutionWriter):
    c: DepthwisePlan  # type: ignore[assignment]

    def write(self) -> KernelText:
        return self.function(["x", "dy", "sums"], self.c.parts * self.c.chunks)

    def body(self, items: Int) -> None:
        c, e, b = self.c, self.e, self.e.index
        self.image = self.scratch(c.image_rows * c.columns.size * c.chunk * c.width)
        self.panel = self.scratch(c.block_rows * c.columns.count * c.chunk * c.width)
        self.sums = self.scratch(c.chunk * c.taps * c.width)

        with e.each(*thread_part(e, e.integer(items))) as number:
            part, chunk = self.down(number, c.chunks), b.binary("arith.remui", number, self.of(c.chunks))
            first = b.mul(chunk, self.of(c.chunk))
            last = b.minimum(self.sum_of(first, c.chunk), self.up(self.of(c.channels), c.width))
            clear_scratch(self.e, self.sums, self.of(c.chunk * c.taps * c.width))
            count = self.of(c.images * c.row_blocks)
            with e.each(*(self.down(b.mul(count, x), c.parts) for x in (part, self.sum_of(part, 1)))) as k:
                row = b.mul(b.binary("arith.remui", k, self.of(c.row_blocks)), self.of(c.block_rows))
                rows = row, b.minimum(self.sum_of(row, c.block_rows), self.of(c.rows.count))
                self.add_block(self.down(k, c.row_blocks), rows, (first, last))
            with e.each(first, last) as block:
                self.keep(part, block, self.sums_of(b.sub(block, first)))

    def sums_of(self, number: Value) -> Value:
        """The address of the sums [tap, channel] of block `number` of the chunk's blocks of channels."""
        return advance(self.e, self.sums, self.e.index.mul(number, self.of(self.c.taps * self.c.width)))

    # ---- a block of windows and of channels

    def add_block(self, image: Value, rows: Range, blocks: Range) -> None:
        c, e, b = self.c, self.e, self.e.index
        top = self.sum_of((rows[0], c.rows.stride), c.rows.padding * -1)
        below = self.sum_of((b.sub(rows[1], e.i64(1)), c.rows.stride), c.rows.padding * -1, self.reach + 1)
        top, below = b.maximum(top, e.i64(0)), b.minimum(below, self.of(c.rows.size))
        image_size = c.image_rows * c.columns.size * c.width
        panel_size = c.block_rows * c.columns.count * c.width
        self.pack("x", (image, c.rows.size, c.columns.size), (top, below), blocks, (self.image, image_size))
        self.pack("dy", (image, c.rows.count, c.columns.count), rows, blocks, (self.panel, panel_size))

        with e.each(0, b.sub(blocks[1], blocks[0])) as number:
            packed = advance(e, self.image, b.mul(number, self.of(image_size)))
            panel = advance(e, self.panel, b.mul(number, self.of(panel_size)))
            places = packed, panel, self.sums_of(number)

            with e.parts(rows, c.tile_rows) as some, e.each(0, c.groups) as k:
                tap = self.sum_of((k, c.group_taps), b.minimum(k, self.of(c.wide_groups)))
                is_wide = b.lt(k, self.of(c.wide_groups))
                taps = self.sum_of(c.group_taps, b.select(is_wide, e.i64(1), e.i64(0)))
                self.add_group((tap, b.add(tap, taps)), some, (top, rows[0]), places)

    @property
    def reach(self) -> Int:
        """Rows from the first to the last tap."""
        return (self.c.rows.taps - 1) * self.c.rows.dilation

    def pack(self, name: str, image: tuple[Value, Int, Int], rows: Range, blocks: Range, to: tuple[Value, Int]) -> None:
        """to[block, pixel, :] = these blocks of channels of some rows of an image; 0 past the last channel. `to`: where, and the
        size of a block."""
        c, e, b = self.c, self.e, self.e.index
        number, height, width = image
        channel = b.mul(blocks[0], e.i64(c.width))
        pixel = b.mul(self.sum_of((number, height), rows[0]), self.of(width))
        source = advance(e, e.env[name], self.sum_of((pixel, c.channels), channel))
        count = b.mul(b.sub(rows[1], rows[0]), self.of(width))
        left = b.minimum(b.sub(self.of(c.channels), channel), b.mul(b.sub(blocks[1], blocks[0]), e.i64(c.width)))

        def write(e: VectorEmitter, p: list[Value]) -> None:
            with self.beside(e):
                self.write_packed(*p)

        sizes = count, self.of(c.channels), left, self.of(to[1])
        call(e, "pack", [(source, PTR), (to[0], PTR), *((x, "i64") for x in sizes)], write)

    def write_packed(self, source: Value, to: Value, pixels: Value, pitch: Value, left: Value, apart: Value) -> None:
        """The body of the function that `pack` calls, for `left` channels. Whole blocks are copied pixel by pixel, in the order of
        memory."""
        c, e, b = self.c, self.e, self.e.index
        whole = self.down(left, c.width)

        def copy(pixel: Value, block: Value, masks: Sequence[Value | None]) -> None:
            here = advance(e, source, b.add(b.mul(pixel, pitch), b.mul(block, e.i64(c.width))))
            there = advance(e, to, b.add(b.mul(block, apart), b.mul(pixel, e.i64(c.width))))
            for j, mask in zip(range(0, c.width, self.lanes), masks, strict=True):
                store_scratch(e, load_floats(e, advance(e, here, j), mask=mask), advance(e, there, j))

        with e.each(0, pixels) as pixel, e.each(0, whole) as k:
            copy(pixel, k, [None] * c.vectors)
        with e.each(whole, self.up(left, c.width)) as block:
            masks = self.masks(b.sub(left, b.mul(block, e.i64(c.width))))

            with e.each(0, pixels) as pixel:
                copy(pixel, block, masks)

    def masks(self, left: Value) -> list[Value]:
        """The lanes that are channels, of each vector of a block, where `left` channels are left."""
        e, b = self.e, self.e.index
        return [lanes_below(e, b.sub(left, self.e.i64(j))) for j in range(0, self.c.width, self.lanes)]

    def add_group(self, taps: Range, rows: Range, starts: Range, places: tuple[Value, ...]) -> None:
        """The sums of some taps of each column, over some rows; `starts`: the first packed row of x, and of windows; `places`: of
        what is packed, and of the sums."""
        e, b, axis = self.e, self.e.index, self.c.rows
        lo, _ = self.inside(axis, taps[0], *rows)
        _, hi = self.inside(axis, b.sub(taps[1], e.i64(1)), *rows)
        lo = b.minimum(lo, rows[1])
        hi = b.maximum(lo, hi)
        self.add_rows(taps, (lo, hi), starts, places)  # all of these taps meet

        for some in (rows[0], lo), (hi, rows[1]):
            with e.each(*some) as row:
                top, below = self.taps_met(axis, row)
                met = b.maximum(taps[0], top), b.minimum(taps[1], below)
                self.add_rows(met, (row, b.add(row, e.i64(1))), starts, places)

    def add_rows(self, taps: Range, rows: Range, starts: Range, places: tuple[Value, ...]) -> None:
        """Adds to the sums of a group of taps, for rows of windows in which all of these taps are inside the image."""
        e = self.e
        frame = [(self.of(slot), "i64") for slot in self.sizes.values()]
        numbers = [(x, "i64") for x in (*taps, *rows, *starts)]

        def write(e: VectorEmitter, p: list[Value]) -> None:
            e.env |= dict(zip(self.sizes, p[9:], strict=True))
            with self.beside(e):
                self.write_rows(p[:3], *(tuple(p[k : k + 2]) for k in (3, 5, 7)))  # type: ignore[arg-type]

        call(e, "rows", [*((x, PTR) for x in places), *numbers, *frame], write)

    @property
    def sizes(self) -> dict[str, Int]:
        """Slots that a function of its own reads."""
        names = [f"columns_{what}" for what in ("size", "count", "padding", "taps", "stride")]
        return {name: symbol(name) for name in [*names, "rows_padding", "rows_stride"]}

    def write_rows(self, places: Sequence[Value], taps: Range, rows: Range, starts: Range) -> None:
        """The body of the function that `add_rows` calls."""
        c, e, b = self.c, self.e, self.e.index
        count, met = b.sub(rows[1], rows[0]), b.sub(taps[1], taps[0])
        y = self.sum_of((rows[0], c.rows.stride), (taps[0], c.rows.dilation), c.rows.padding * -1)
        line = b.mul(b.sub(y, starts[0]), self.of(c.columns.size))
        window = b.mul(b.sub(rows[0], starts[1]), self.of(c.columns.count))

        lines = e.lines
        lines.append(f"scf.if {b.and_(b.gt(count, e.i64(0)), b.gt(met, e.i64(0)))} {{")
        with e.each(0, c.columns.taps) as k:
            left, right = self.inside(c.columns, k, e.i64(0), self.of(c.columns.count))
            x = self.sum_of((left, c.columns.stride), (k, c.columns.dilation), c.columns.padding * -1)
            offsets = b.add(line, x), b.add(window, left), self.sum_of((taps[0], c.columns.taps), k)
            here = [advance(e, base, b.mul(at, e.i64(c.width))) for base, at in zip(places, offsets, strict=True)]
            self.by_taps(met, here, (count, b.sub(right, left)))
        lines.append("}")

    def by_taps(self, met: Value, places: list[Value], counts: Range) -> None:
        """The tile of so many taps."""
        c, e = self.c, self.e
        steps = [
            c.columns.size * (c.rows.dilation * c.width),
            c.columns.taps * c.width,
            c.columns.size * c.rows.stride * c.width,
            c.columns.count * c.width,
            c.columns.stride * c.width,
        ]
        numbers = [(x, "i64") for x in (*map(self.of, steps), *counts)]

        def write(e: VectorEmitter, p: list[Value], taps: int) -> None:
            with self.beside(e):
                self.write_tile(taps, *p)

        for taps in self.numbers_to(MOST_TAPS, met):
            call(e, f"tile_{taps}", [*((x, PTR) for x in places), *numbers], partial(write, taps=taps))

    def numbers_to(self, most: int, number: Value) -> Iterator[int]:
        """1 to `most`, as whichever `number` is: code for each."""
        if most == 1:
            yield 1
            return
        for is_most in self.e.either(self.e.index.eq(number, self.e.i64(most))):
            yield from [most] if is_most else self.numbers_to(most - 1, number)

    def write_tile(
        self, taps: int, x: Value, dy: Value, sums: Value, down, apart, x_row, dy_row, x_column, rows, columns
    ) -> None:
        """sums[tap] += x * dy over rows and columns of windows; taps lie `down` apart in x, `apart` in the sums."""
        c, e, b = self.c, self.e, self.e.index
        wide = e.builder(torch.float32, True)
        cells = [(i, j) for i in range(taps) for j in range(0, c.width, self.lanes)]
        types = [wide.type_text(torch.float32)] * len(cells)

        def row(i: Value, state: list[Value]) -> list[Value]:
            images = [advance(e, x, self.sum_of(b.mul(i, x_row), (down, k))) for k in range(taps)]
            panel = advance(e, dy, b.mul(i, dy_row))

            def column(k: Value, state: list[Value]) -> list[Value]:
                at, given = b.mul(k, x_column), advance(e, panel, b.mul(k, e.i64(c.width)))
                loaded = {j: load_scratch(e, advance(e, given, e.i64(j))) for j in range(0, c.width, self.lanes)}
                pixels = [advance(e, image, at) for image in images]
                pairs = [(load_scratch(e, advance(e, pixels[i], e.i64(j))), loaded[j]) for i, j in cells]
                return [wide.fma(*pair, total) for pair, total in zip(pairs, state, strict=True)]

            return e.loop(e.i64(0), columns, e.i64(1), state, types, column)

        totals = e.loop(e.i64(0), rows, e.i64(1), [wide.constant(0.0)] * len(cells), types, row)
        for (i, j), total in zip(cells, totals, strict=True):
            place = advance(e, sums, self.sum_of((apart, i), j))
            store_scratch(e, wide.add(load_scratch(e, place), total), place)

    # ---- what is left

    def keep(self, part: Value, block: Value, sums: Value) -> None:
        c, e, b = self.c, self.e, self.e.index
        channel = b.mul(block, e.i64(c.width))
        target = advance(e, e.env["sums"], self.sum_of((b.mul(part, self.of(c.taps)), c.channels), channel))
        masks = self.masks(b.sub(self.of(c.channels), channel))

        with e.each(0, c.taps) as k:
            source, to = advance(e, sums, b.mul(k, e.i64(c.width))), advance(e, target, b.mul(k, self.of(c.channels)))
            for j, mask in zip(range(0, c.width, self.lanes), masks, strict=True):
                value = load_scratch(e, advance(e, source, e.i64(j)))
                store_floats(e, value, advance(e, to, e.i64(j)), mask=mask)


def depthwise_text(c: DepthwisePlan, name: str, target: CpuTarget) -> KernelText:
    """The functions of kernel `name`, for all calls of this plan."""
    return DepthwiseWriter(c, name, target).write()  # type: ignore[arg-type]  # it reads what it needs of a plan

"""Winograd convolution of 3x3 taps, or the gradient of its images, as functions in MLIR text.

A tile of m x k results is computed from n x l points of the transformed domain (winograd_transform.py), with n = m + 2 and l = k + 2.
Each of these points is a matmul [tile, channel] @ [channel, filter]. A *map* is one of the three linear transforms, of pixels, of
weights, and of products to results.

for some panels of filters:              threads split these and the blocks (ForwardWriter.each_part)
  for block of tiles:                    some rows of tiles of an image, or some images
    for some channels:
      inputs[point, tile, channel] = the maps of each tile's n x l pixels; those outside of the image are 0
      for panel:
        weights[point, channel, filter] = the maps of its 3 x 3 taps
        products[point, tile, filter] += inputs @ weights, point by point
    for panel:
      results of each tile; scale, shift, addition and relu

NOT FINITE: a transform mixes all pixels of a tile, so an infinite pixel may spoil results whose windows do not contain it. So where a
result of a block and panel is infinite or NaN, all results of the block and panel are computed again as plain sums of products. No
result that should be infinite or NaN is missed: the transforms' product is 1 for each pixel in a result's window, so an infinity or an
overflow reaches that result through factors other than 0, and no addition makes it finite again.
"""

import torch

from mlirc.dialects.core.symbols import Int
from mlirc.lowering.cpu.convolution.forward import ForwardWriter
from mlirc.lowering.cpu.convolution.plan import ConvolutionPlan
from mlirc.lowering.cpu.convolution.winograd_maps import TileMaps
from mlirc.lowering.cpu.convolution.winograd_transform import TAPS, Winograd
from mlirc.lowering.cpu.convolution.writer import Panel
from mlirc.lowering.cpu.emitter.addresses import advance, clear_scratch, load_scratch
from mlirc.lowering.cpu.emitter.scope import Range
from mlirc.lowering.cpu.loops.frame import KernelText
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.cpu.matmul.tile import Loop
from mlirc.lowering.target import CpuTarget

F32 = torch.float32
STEPS = 32  # products along the channels in one partial sum: short sums, because the transforms amplify rounding errors
PADDING = 16  # elements after each point: points a power of two apart would fall into the same cache sets


class WinogradWriter(ForwardWriter):
    def __init__(self, c: ConvolutionPlan, name: str, target: CpuTarget):
        super().__init__(c, name, target)
        assert c.results is not None
        self.maps = TileMaps(self.e, *map(Winograd, c.results))
        self.tile_rows, self.tile_columns = c.tile_down, c.tile_along
        self.height, self.width = c.tile_down + (TAPS - 1), c.tile_along + (TAPS - 1)  # of a tile's pixels
        self.points = self.height * self.width

    def body(self, items: Int) -> None:
        c, e = self.c, self.e
        tiles, pixels = c.block_tiles, c.block_tiles * self.tile_rows * self.tile_columns
        self.inputs_apart = tiles * c.chunk + PADDING
        self.weights_apart = c.chunk * c.widest + PADDING
        self.inputs = self.scratch(self.inputs_apart * self.points)
        self.patch = self.scratch(c.chunk * self.points)
        self.plain = self.scratch((c.chunk * c.taps + self.lanes) * c.widest)
        self.weights = self.scratch(self.weights_apart * self.points * c.kept_panels)
        self.products = self.scratch(tiles * c.widest * self.points * c.open_panels)
        self.sums = self.scratch(pixels * c.widest)
        self.flags = self.scratch(self.lanes)

        with self.each_part() as (panels, blocks), e.parts(panels, c.tiles_at_once) as some, e.each(*blocks) as number:
            self.block(some, number, e.index.eq(number, blocks[0]))

    def block(self, panels: Range, number: Value, is_first: Value) -> None:
        c, e, b = self.c, self.e, self.e.index
        images, rows = self.block_at(number)
        lines = self.up(b.sub(rows[1], rows[0]), self.tile_rows)  # of tiles, of an image
        packs = b.or_(is_first, b.eq(self.of(c.keeps), e.i64(0)))

        with e.each(0, c.channels, c.chunk) as channel:
            steps = b.minimum(b.sub(self.of(c.channels), channel), self.of(c.chunk))
            self.map_inputs(images, rows[0], lines, channel, steps)

            with self.each_panel(panels) as (column, panel, k):
                with e.when(packs):
                    self.map_weights(column, panel, k, channel, steps)
                self.multiply(panel, k, channel, steps, b.mul(b.sub(images[1], images[0]), lines))
                is_last = b.ge(b.add(channel, steps), self.of(c.channels))
                with e.when(is_last):
                    self.results(column, panel, k, images, rows, lines)

    # ---- inputs

    def map_inputs(self, images: Range, row: Value, lines: Value, channel: Value, steps: Value) -> None:
        c, e, b = self.c, self.e, self.e.index
        line, column = self.of(c.columns.size * c.channels), self.of(c.channels)
        count = b.and_(self.sum_of(steps, self.lanes - 1), e.i64(-self.lanes))

        with e.each(*images) as n, e.each(0, lines) as r, e.each(0, c.tile_columns) as t:
            y = self.sum_of(row, (r, self.tile_rows), c.rows.padding * -1)
            x = self.sum_of((t, self.tile_columns), c.columns.padding * -1)
            before = b.add(b.mul(b.sub(n, images[0]), lines), r)
            number = self.sum_of((before, c.tile_columns), t)
            to = advance(e, self.inputs, b.mul(number, self.of(c.chunk)))
            image = advance(e, e.env["x"], self.sum_of((n, c.rows.size * c.columns.size * c.channels), channel))
            inside = [
                b.le(e.i64(0), y),
                b.le(e.i64(0), x),
                b.le(self.sum_of(y, self.height), self.of(c.rows.size)),
                b.le(self.sum_of(x, self.width), self.of(c.columns.size)),
            ]

            is_inside = b.and_(b.and_(inside[0], inside[1]), b.and_(inside[2], inside[3]))
            whole = b.eq(b.and_(self.of(c.channels), e.i64(self.lanes - 1)), e.i64(0))
            for is_there in e.either(b.and_(is_inside, whole)):
                if is_there:
                    source = advance(e, image, b.add(b.mul(y, line), b.mul(x, column)))
                    strides = line, column
                else:
                    source, strides = self.patch, (self.of(c.chunk * self.width), self.of(c.chunk))
                    sizes = self.of(c.rows.size), self.of(c.columns.size)
                    self.maps.patch(
                        image, (y, x), (line, column), sizes, steps, source, self.of(c.chunk), c.ragged_channels
                    )
                self.maps.inputs(source, *strides, count, to, self.of(self.inputs_apart))

    # ---- weights

    def weights_of(self, number: Value) -> Value:
        return advance(
            self.e, self.weights, self.e.index.mul(number, self.of(self.weights_apart * self.points * self.c.keeps))
        )

    def map_weights(self, column: Value, panel: Panel, number: Value, channel: Value, steps: Value) -> None:
        self.pack_channels(column, panel, self.plain, channel, steps)
        to, apart = self.weights_of(number), self.of(self.weights_apart)
        self.maps.weights(self.plain, steps, panel.width, to, apart, mirrored=self.c.kind == "input")

    # ---- products

    def products_of(self, number: Value) -> Value:
        size = self.c.block_tiles * self.c.widest * self.points
        return advance(self.e, self.products, self.e.index.mul(number, self.of(size * self.c.parts)))

    def multiply(self, panel: Panel, number: Value, channel: Value, steps: Value, lines: Value) -> None:
        """products[point, tile, :] += inputs @ weights. `lines`: of tiles, of all images."""
        c, e, b, width = self.c, self.e, self.e.index, panel.width
        tiles = b.mul(lines, self.of(c.tile_columns))
        sums, weights = self.products_of(number), self.weights_of(number)
        apart = b.mul(tiles, width)

        with e.when(b.eq(channel, e.i64(0))):
            clear_scratch(self.e, sums, b.mul(apart, self.of(self.points)))

        with e.each(0, self.points) as p:
            inputs = advance(e, self.inputs, b.mul(p, self.of(self.inputs_apart)))
            packed = advance(e, weights, b.mul(p, self.of(self.weights_apart)))
            to = advance(e, sums, b.mul(p, apart))

            with e.each(0, steps, STEPS) as first:
                count = b.minimum(b.sub(steps, first), e.i64(STEPS))
                here, there = advance(e, inputs, first), advance(e, packed, b.mul(first, width))
                cuts = super().cuts(e.i64(0), tiles)
                pitches = self.of(c.chunk), width
                loops = Loop(e.i64(1), e.i64(0), e.i64(0)), Loop(count, e.i64(1), width)
                self.add_rows(panel, e.i64(0), cuts, (here, there, to), pitches, loops)

    # ---- results

    def results(self, column: Value, panel: Panel, number: Value, images: Range, rows: Range, lines: Value) -> None:
        c, e, b = self.c, self.e, self.e.index
        every = b.mul(b.sub(images[1], images[0]), lines)
        columns = self.of(c.tile_columns)
        self.maps.results(self.products_of(number), every, columns, panel.width, self.sums, self.flags)
        pitch = b.mul(self.of(c.tile_columns * self.tile_columns), panel.width)

        flags = load_scratch(e, self.flags)
        wide = e.builder(F32, True)
        bad = wide.ne(flags, flags)
        text = f"vector.reduction <or>, {bad} : {wide.type_text(torch.bool)} into i1"
        for is_bad in e.either(b.emit(text, torch.bool)):
            if is_bad:
                self.sum_anew(column, panel, images, rows)
                continue
            with e.each(*images) as n, e.each(*rows) as h:
                first = b.mul(self.sum_of((n, c.rows.count), h), self.of(c.columns.count))
                place = b.add(b.mul(b.mul(b.sub(n, images[0]), lines), self.of(self.tile_rows)), b.sub(h, rows[0]))
                sums = advance(e, self.sums, b.mul(place, pitch))
                self.finish(column, panel, first, self.of(c.columns.count), sums)

    def sum_anew(self, column: Value, panel: Panel, images: Range, rows: Range) -> None:
        """The results as sums of products."""
        c, e = self.c, self.e
        every = e.i64(0), self.of(c.channels)
        with self.block_of_sums(column, panel, images, rows), e.parts(every, c.chunk) as channels:
            self.pack_channels(column, panel, self.plain, channels[0], e.index.sub(channels[1], channels[0]))
            self.multiply_accumulate(panel, self.plain, images, rows, channels)

    def cuts(self, left: Value, right: Value) -> list[tuple[int, Value]]:
        """For results that are computed again: rare, so that short code for one row is enough."""
        return [(1, right)]


def winograd_text(c: ConvolutionPlan, name: str, target: CpuTarget) -> KernelText:
    """The functions of kernel `name`, for all calls of this plan."""
    return WinogradWriter(c, name, target).write()

"""The gradient of a convolution's weight as functions in MLIR text: dw[o, c, tap] = sum over pixels of x[pixel, c] * dy[pixel, o].

for some tiles of filters:               a work item: some tiles of filters, and a tile of channels
  for group of channels:                 its sums [channel, tap, filter] stay in the L2 cache
    for block of windows:                some whole rows of an image, or some images
      pack these filters' part of dy     a tile's stays in the L1 cache
      for tile, tap, a few channels:
        sums += x^T @ dy                 x read where it is; windows that the tap misses are left out
    transpose the sums, store them to dw

A sum is made by one thread, block by block: the same bits with any number of threads.
"""

from mlirc.dialects.core.symbols import Int
from mlirc.lowering.cpu.convolution.plan import ConvolutionPlan
from mlirc.lowering.cpu.convolution.writer import ConvolutionWriter
from mlirc.lowering.cpu.emitter.addresses import (
    advance,
    clear_scratch,
    copy_scalar,
    lanes_below,
    load_floats,
    store_floats,
    whole_vectors,
)
from mlirc.lowering.cpu.loops.entry import thread_part
from mlirc.lowering.cpu.loops.frame import KernelText
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.cpu.matmul.tile import GemmTile, Loop
from mlirc.lowering.cpu.matmul.transposes import transpose_all
from mlirc.lowering.target import CpuTarget


class WeightGradientWriter(ConvolutionWriter):
    def write(self) -> KernelText:
        c = self.c
        channel_tiles = c.full_channel_tiles + (c.last_channel_tile > 0)
        return self.function(["x", "dy", "dw"], channel_tiles * c.groups)

    def body(self, items: Int) -> None:
        c, e, b = self.c, self.e, self.e.index
        lo, hi = thread_part(e, e.integer(items))
        self.sums = self.scratch(c.sum_rows * c.widest * c.tiles_at_once)
        self.transposed = self.scratch(c.sum_rows * c.widest)
        self.panels = self.scratch(c.block_windows * c.widest * c.tiles_at_once)

        with e.each(0, c.groups) as number:
            own = [self.down(b.sub(self.sum_of(x, c.groups - 1), number), c.groups) for x in (lo, hi)]
            first = b.mul(number, self.of(c.tiles_at_once))
            tiles = first, b.minimum(self.sum_of(first, c.tiles_at_once), self.of(c.column_tiles))

            with e.parts((own[0], own[1]), c.group) as (start, end):
                self.sum_tiles(tiles, start, end)

    def sum_tiles(self, tiles: tuple[Value, Value], start: Value, end: Value) -> None:
        """The sums of some tiles of filters, and of the channel tiles from start to end."""
        c, e, zero = self.c, self.e, self.e.i64(0)
        clear_scratch(self.e, self.sums, self.of(c.sum_rows * c.widest * c.tiles_at_once))
        rows = zero, self.of(c.rows.count)
        with e.parts((zero, self.of(c.images)), c.block_images) as image, e.parts(rows, c.block_rows) as row:
            block = image, row
            for column, vectors, k in self.each_tile(tiles):
                self.pack(column, vectors, k, *block)
            for _, vectors, k in self.each_tile(tiles):
                self.taps(vectors, k, start, end, *block)
        for column, vectors, k in self.each_tile(tiles):
            self.keep(column, vectors, k, start, end)

    def place(self, base: Value, number: Value, rows: Int) -> Value:
        """The address of tile `number` of filters, in scratch that has `rows` rows for each tile."""
        return advance(self.e, base, self.e.index.mul(number, self.of(rows * self.c.widest)))

    def pack(
        self, column: Value, vectors: int, number: Value, images: tuple[Value, Value], rows: tuple[Value, Value]
    ) -> None:
        """panel[window, :] = the tile's part of dy. The windows of a block lie in memory as one."""
        c, e, b = self.c, self.e, self.e.index
        packer, panel = self.packer(0, vectors), self.place(self.panels, number, c.block_windows)
        windows = b.mul(b.mul(b.sub(images[1], images[0]), b.sub(rows[1], rows[0])), self.of(c.columns.count))
        first = b.mul(self.sum_of((images[0], c.rows.count), rows[0]), self.of(c.columns.count))
        source = advance(e, e.env["dy"], self.sum_of((first, c.filters), column))

        with e.each(0, windows) as k:
            here, to = (
                advance(e, source, b.mul(k, self.of(c.filters))),
                advance(e, panel, b.mul(k, e.i64(packer.width))),
            )
            for j in range(0, packer.width, self.lanes):
                mask = lanes_below(e, b.sub(self.of(c.filters - j), column)) if c.ragged else None
                store_floats(e, load_floats(e, advance(e, here, j), mask=mask), advance(e, to, j))

    def taps(
        self,
        vectors: int,
        number: Value,
        start: Value,
        end: Value,
        images: tuple[Value, Value],
        rows: tuple[Value, Value],
    ) -> None:
        c, e, b, width = self.c, self.e, self.e.index, vectors * self.lanes
        columns = e.i64(0), self.of(c.columns.count)
        panels = self.place(self.panels, number, c.block_windows)
        every = self.place(self.sums, number, c.sum_rows)

        with e.each(0, c.rows.taps) as kh:
            top, bottom = self.inside(c.rows, kh, *rows)

            with e.each(0, c.columns.taps) as kw:
                left, right = self.inside(c.columns, kw, *columns)
                y = self.sum_of((top, c.rows.stride), (kh, c.rows.dilation), c.rows.padding * -1)
                x = self.sum_of((left, c.columns.stride), (kw, c.columns.dilation), c.columns.padding * -1)
                pixel = self.sum_of((self.sum_of((images[0], c.rows.size), y), c.columns.size), x)
                image = advance(e, e.env["x"], b.mul(pixel, self.of(c.channels)))
                window = self.sum_of((b.sub(top, rows[0]), c.columns.count), left)
                panel = advance(e, panels, b.mul(window, e.i64(width)))
                sums = advance(e, every, self.sum_of((kh, c.columns.taps * width), (kw, width)))
                counts = b.sub(images[1], images[0]), b.sub(bottom, top), b.sub(right, left)
                self.channel_tiles_of(vectors, start, end, image, panel, sums, counts)

    def channel_tiles_of(self, vectors, start, end, image, panel, sums, counts) -> None:
        c, e, b, width = self.c, self.e, self.e.index, vectors * self.lanes
        row, x = c.columns.stride * c.channels, c.columns.size * c.channels
        along_x = (c.rows.size * x, c.rows.stride * x, row)
        along_panel = (c.rows.count * c.columns.count * width, c.columns.count * width, width)
        loops = [Loop(*loop) for loop in zip(counts, map(self.of, along_x), map(self.of, along_panel), strict=True)]
        pitch, full = self.of(c.taps * width), self.of(c.full_channel_tiles)

        of_full, of_last = (start, b.minimum(end, full)), (b.maximum(start, full), end)
        for rows, tiles in (c.tile_rows, of_full), (c.last_channel_tile, of_last):
            if not rows:
                continue
            with e.each(*tiles) as k:
                a = advance(e, image, b.mul(k, e.i64(c.tile_rows)))
                to = advance(e, sums, b.mul(b.sub(k, start), self.of(c.taps * (c.tile_rows * width))))
                GemmTile(rows, vectors, self.lanes).call(e, (a, panel, to), 1, loops, pitch)

    def keep(self, column: Value, vectors: int, number: Value, start: Value, end: Value) -> None:
        """dw[o, c, tap] = sums[c, tap, o]"""
        c, e, b, width = self.c, self.e, self.e.index, vectors * self.lanes
        transpose_all(
            e, self.place(self.sums, number, c.sum_rows), width, c.sum_rows, width, self.transposed, c.sum_rows
        )
        first = b.mul(start, e.i64(c.tile_rows))
        count = b.mul(b.sub(b.minimum(b.mul(end, e.i64(c.tile_rows)), self.of(c.channels)), first), self.of(c.taps))
        each = c.channels * c.taps
        target = advance(e, e.env["dw"], self.sum_of((column, each), (first, c.taps)))
        whole = whole_vectors(e, count)

        with e.each(0, b.minimum(e.i64(width), b.sub(self.of(c.filters), column))) as o:
            source, to = (
                advance(e, self.transposed, b.mul(o, self.of(c.sum_rows))),
                advance(e, target, b.mul(o, self.of(each))),
            )

            with e.each(0, whole, self.lanes) as k:
                store_floats(e, load_floats(e, advance(e, source, k)), advance(e, to, k))
            with e.each(whole, count) as k:
                copy_scalar(e, advance(e, source, k), advance(e, to, k))


def weight_gradient_text(c: ConvolutionPlan, name: str, target: CpuTarget) -> KernelText:
    """The functions of kernel `name`, for all calls of this plan."""
    return WeightGradientWriter(c, name, target).write()

"""The gradient of a convolution's weight as functions in MLIR text: dw[o, c, tap] = sum over pixels of x[pixel, c] * dy[pixel, o].

for some tiles of filters:               threads share pairs of a few channels and of these
  for group of channels:                 its sums [channel, tap, filter] stay in the second-level cache
    for block of windows:                some whole rows of an image, or some images
      pack these filters' part of dy     a tile's stays in the first-level cache
      for tile, tap, a few channels:
        sums += x^T @ dy                 x read where it is; windows that the tap misses are left out
    turn the sums to dw

A sum is made by one thread, block by block: the same bits with any number of threads.
"""

from mlirc.lowering.attention_memory import advance, scratch, turn_all
from mlirc.lowering.convolution_call import Convolution
from mlirc.lowering.convolution_tile import Tile
from mlirc.lowering.convolution_writer import ConvolutionWriter
from mlirc.lowering.cpu_target import CpuTarget
from mlirc.lowering.kernel_function import KernelText
from mlirc.lowering.vector_builder import Value

TOGETHER = 4  # tiles of filters that pass over a block of x
SUM_BYTES = 160 << 10  # of these and a group of channels


class WeightGradientWriter(ConvolutionWriter):
    def write(self) -> KernelText:
        self.channel_tiles = -(-self.c.channels // self.rows)
        self.groups = -(-self.column_tiles // TOGETHER)
        self.together = -(-self.column_tiles // self.groups)
        each = self.together * self.rows * self.c.taps * self.widest() * 4
        self.group = max(1, min(self.channel_tiles, SUM_BYTES // each))
        return self.function(["x", "dy", "dw"], self.channel_tiles * self.groups)

    def body(self, lo: Value, hi: Value) -> None:
        e, b, width = self.e, self.e.index, self.widest()
        self.sum_rows = -(-self.group * self.rows * self.c.taps // self.lanes) * self.lanes
        self.sums = scratch(e, self.together * self.sum_rows * width)
        self.turned = scratch(e, self.sum_rows * width)
        self.panels = scratch(e, self.together * self.block_windows * width)

        def one(number: Value, state: list[Value]) -> list[Value]:
            # unit u is of the channels u // groups and of the filters u % groups
            own = [self.down(b.sub(self.sum_of(x, self.groups - 1), number), self.groups) for x in (lo, hi)]
            first = b.mul(number, e.i64(self.together))
            tiles = first, b.minimum(self.sum_of(first, self.together), e.i64(self.column_tiles))

            def group(start: Value, state: list[Value]) -> list[Value]:
                self.unit(tiles, start, b.minimum(self.sum_of(start, self.group), own[1]))
                return state

            e.loop(own[0], own[1], e.i64(self.group), [], [], group)
            return state

        e.loop(e.i64(0), e.i64(self.groups), e.i64(1), [], [], one)

    def unit(self, tiles: tuple[Value, Value], start: Value, end: Value) -> None:
        """The sums of some tiles of filters, and of the channel tiles from start to end."""
        c, e, b = self.c, self.e, self.e.index
        self.clear(self.sums, e.i64(self.together * self.sum_rows * self.widest()))
        images = e.integer(c.x.shape[0])

        def some_images(image: Value, state: list[Value]) -> list[Value]:
            def some_rows(row: Value, state: list[Value]) -> list[Value]:
                block = (
                    (image, b.minimum(self.sum_of(image, self.block_images), images)),
                    (row, b.minimum(self.sum_of(row, self.block_rows), e.i64(c.rows.count))),
                )
                self.each_tile(tiles, lambda column, vectors, k: self.pack(column, vectors, k, *block))
                self.each_tile(tiles, lambda column, vectors, k: self.taps(vectors, k, start, end, *block))
                return state

            e.loop(e.i64(0), e.i64(c.rows.count), e.i64(self.block_rows), [], [], some_rows)
            return state

        e.loop(e.i64(0), images, e.i64(self.block_images), [], [], some_images)
        self.each_tile(tiles, lambda column, vectors, k: self.keep(column, vectors, k, start, end))

    def place(self, base: Value, number: Value, rows: int) -> Value:
        """Of a tile of filters, in scratch for several."""
        return advance(self.e, base, self.e.index.mul(number, self.e.i64(rows * self.widest())))

    def pack(
        self, column: Value, vectors: int, number: Value, images: tuple[Value, Value], rows: tuple[Value, Value]
    ) -> None:
        """panel[window, :] = the tile's part of dy. The windows of a block lie in memory as one."""
        c, e, b = self.c, self.e, self.e.index
        packer, panel = self.packer(self.block_windows, vectors), self.place(self.panels, number, self.block_windows)
        windows = b.mul(b.mul(b.sub(images[1], images[0]), b.sub(rows[1], rows[0])), e.i64(c.columns.count))
        first = b.mul(self.sum_of((images[0], c.rows.count), rows[0]), e.i64(c.columns.count))
        source = advance(e, e.env["dy"], self.sum_of((first, c.filters), column))

        def window(k: Value, state: list[Value]) -> list[Value]:
            here, to = packer.at(source, b.mul(k, e.i64(c.filters))), packer.at(panel, b.mul(k, e.i64(packer.width)))
            for j in range(0, packer.width, self.lanes):
                ragged = c.filters % self.lanes
                mask = packer.below(b.sub(e.i64(c.filters - j), column)) if ragged else None
                packer.store(packer.load(packer.at(here, e.i64(j)), mask), packer.at(to, e.i64(j)))
            return state

        e.loop(e.i64(0), windows, e.i64(1), [], [], window)

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
        columns = e.i64(0), e.i64(c.columns.count)
        panels = self.place(self.panels, number, self.block_windows)
        every = self.place(self.sums, number, self.sum_rows)

        def tap_row(kh: Value, state: list[Value]) -> list[Value]:
            top, bottom = self.inside(c.rows, kh, *rows)

            def tap(kw: Value, state: list[Value]) -> list[Value]:
                left, right = self.inside(c.columns, kw, *columns)
                y = self.sum_of((top, c.rows.stride), (kh, c.rows.dilation), -c.rows.padding)
                x = self.sum_of((left, c.columns.stride), (kw, c.columns.dilation), -c.columns.padding)
                pixel = self.sum_of((self.sum_of((images[0], c.rows.size), y), c.columns.size), x)
                image = advance(e, e.env["x"], b.mul(pixel, e.i64(c.channels)))
                window = self.sum_of((b.sub(top, rows[0]), c.columns.count), left)
                panel = advance(e, panels, b.mul(window, e.i64(width)))
                sums = advance(e, every, self.sum_of((kh, c.columns.taps * width), (kw, width)))
                counts = b.sub(images[1], images[0]), b.sub(bottom, top), b.sub(right, left)
                self.channel_tiles_of(vectors, start, end, image, panel, sums, counts)
                return state

            e.loop(e.i64(0), e.i64(c.columns.taps), e.i64(1), [], [], tap)
            return state

        e.loop(e.i64(0), e.i64(c.rows.taps), e.i64(1), [], [], tap_row)

    def channel_tiles_of(self, vectors, start, end, image, panel, sums, counts) -> None:
        c, e, b, width = self.c, self.e, self.e.index, vectors * self.lanes
        row, x = c.columns.stride * c.channels, c.columns.size * c.channels
        steps = (
            (c.rows.size * x, c.rows.count * c.columns.count * width),
            (c.rows.stride * x, c.columns.count * width),
            (row, width),
        )
        whole, rest = divmod(c.channels, self.rows)

        def some(tile: Tile):
            def one(k: Value, state: list[Value]) -> list[Value]:
                a = advance(e, image, b.mul(k, e.i64(self.rows)))
                to = advance(e, sums, b.mul(b.sub(k, start), e.i64(self.rows * c.taps * width)))
                e.lines.append(tile.call(a, panel, to, counts))
                return state

            return one

        full = e.i64(whole)
        if whole:
            tile = self.tile(self.rows, vectors, 1, steps, c.taps * width)
            e.loop(start, b.minimum(end, full), e.i64(1), [], [], some(tile))
        if rest:
            tile = self.tile(rest, vectors, 1, steps, c.taps * width)
            e.loop(b.maximum(start, full), end, e.i64(1), [], [], some(tile))

    def keep(self, column: Value, vectors: int, number: Value, start: Value, end: Value) -> None:
        """dw[o, c, tap] = sums[c, tap, o]"""
        c, e, b, width = self.c, self.e, self.e.index, vectors * self.lanes
        packer = self.packer(0, vectors)
        turn_all(
            e, self.place(self.sums, number, self.sum_rows), width, self.sum_rows, width, self.turned, self.sum_rows
        )
        first = b.mul(start, e.i64(self.rows))
        count = b.mul(b.sub(b.minimum(b.mul(end, e.i64(self.rows)), e.i64(c.channels)), first), e.i64(c.taps))
        each = c.channels * c.taps
        target = advance(e, e.env["dw"], self.sum_of((column, each), (first, c.taps)))
        whole = packer.down_to_lanes(count)

        def filter_(o: Value, state: list[Value]) -> list[Value]:
            source, to = (
                advance(e, self.turned, b.mul(o, e.i64(self.sum_rows))),
                advance(e, target, b.mul(o, e.i64(each))),
            )

            def vector(k: Value, state: list[Value]) -> list[Value]:
                packer.store(packer.load(packer.at(source, k), None), packer.at(to, k))
                return state

            def one(k: Value, state: list[Value]) -> list[Value]:
                packer.copy_one(source, k, to, k)
                return state

            e.loop(e.i64(0), whole, e.i64(self.lanes), [], [], vector)
            e.loop(whole, count, e.i64(1), [], [], one)
            return state

        e.loop(e.i64(0), b.minimum(e.i64(width), b.sub(e.i64(c.filters), column)), e.i64(1), [], [], filter_)


def weight_gradient_text(c: Convolution, name: str, target: CpuTarget) -> KernelText:
    """The functions of kernel `name`, for a call that `refusal` of convolution_call.py has nothing against."""
    return WeightGradientWriter(c, name, target).write()

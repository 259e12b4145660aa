"""A convolution with its epilogue as functions in MLIR text, depthwise or of few channels: filters along the lanes, some windows of a
row at a time.

for row of windows, part of the filters:                    threads share these
  for block of windows of the row:
    for some filters:                                       they and what they reach stay in the L1 cache
      tile = for channel, row of taps inside the image:     sums in registers; depthwise: of the filter's own channel
               for pixel that the block reaches:
                 each sum += pixel * weight                 each pixel is read once, for all windows that it is in
      epilogue over the tile

Where the sizes are known, the taps of each window of a block that lie inside are part of its code, and blocks that have the same ones
share it. Else windows at the borders are blocks of their own, whose taps are counted as they run.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.cpu.convolution.windows import Taps, WindowedSum
from mlirc.lowering.cpu.emitter.addresses import F32, PTR, advance, call, lanes_below, load_floats, vectors
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.emitter.scratch import take_floats
from mlirc.lowering.cpu.loops.entry import decode_indices, thread_part
from mlirc.lowering.cpu.loops.epilogue import enter_call, enter_row, finish_vector
from mlirc.lowering.cpu.loops.frame import KernelText, begin, framed
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.cpu.matmul.factors import Floats
from mlirc.lowering.cpu.matmul.tile import most_rows, registers
from mlirc.lowering.kernel.axes import Vector
from mlirc.lowering.kernel.typical_sizes import typical
from mlirc.lowering.target import CpuTarget

CHUNK = 128  # channels of a tile
MOST_WINDOWS = 8  # windows of a block in a depthwise convolution
SUMS = 8  # accumulators that hide the latency of an FMA
ENOUGH_ITEMS = 64  # work items that any number of threads splits about evenly
MOST_KINDS = 4  # kinds of blocks that have code of their own

Inside = tuple[tuple[int, ...], ...]
Load = Callable[[Value], list[Value]]
WriteSums = Callable[[VectorEmitter, list[Value], list[int | Value]], None]


@dataclass(frozen=True)
class WindowBlock:
    """Neighbouring windows of a row. inside: for each, the taps of a row of the filter that are inside the image; None: they are
    counted when the kernel runs."""

    inside: Inside | None
    windows: int

    @property
    def name(self) -> str:
        if self.inside is None:
            return f"taps{self.windows}_counted"
        return f"taps{self.windows}_" + "_".join("".join(map(str, taps)) for taps in dict.fromkeys(self.inside))


class DirectWriter:
    def __init__(self, c: WindowedSum, name: str, target: CpuTarget):
        self.c, self.name, self.target = c, name, target
        self.e = VectorEmitter(Vector(c.channel, target.vector_bytes // 4), target)
        self.lanes = self.e.lanes
        channels = c.channel.known
        assert channels is not None
        self.channels = channels
        self.chunk, self.most = self.tile_shape()
        self.known = known_blocks(c, self.most)

    def tile_shape(self) -> tuple[int, int]:
        """The channels of a tile, and the most windows of a block."""
        most = MOST_WINDOWS if self.c.depthwise else most_rows(self.target, self.dense_vectors)
        return min(CHUNK, -(-self.channels // self.lanes) * self.lanes), most

    def write(self) -> KernelText:
        c, e, names = self.c, self.e, self.c.kernel.symbols
        begin(e, c.kernel, names)
        enter_call(e, c.epilogue)
        self.tile = take_floats(e, self.most * self.chunk)
        rows, columns = symbols.product(axis.size for axis in c.rows), c.column.size if c.column else 1
        items = self.loops(rows, columns)
        work = symbols.floordiv(rows * columns * (self.channels * c.more.count * c.down.count * c.along.count), 8)
        return framed(e, self.name, self.target, c.kernel, names, work, items)

    def loops(self, rows: Int, columns: Int) -> Int:
        """Writes the loops over a thread's part of so many rows of windows; how many work items there are."""
        chunks = -(-self.channels // self.chunk)
        parts = max(1, min(chunks, ENOUGH_ITEMS // max(typical(rows), 1)))
        part = -(-chunks // parts) * self.chunk
        parts = -(-self.channels // part)
        with self.e.each(*thread_part(self.e, self.e.integer(rows * parts))) as item:
            self.some_channels(item, parts, part)
        return rows * parts

    def some_channels(self, item: Value, parts: int, part: int) -> None:
        """A row of windows, for a part of the channels."""
        c, e, b = self.c, self.e, self.e.index
        row = b.binary("arith.divui", item, e.i64(parts)) if parts > 1 else item
        first = b.mul(b.binary("arith.remui", item, e.i64(parts)), e.i64(part)) if parts > 1 else e.i64(0)
        last = b.minimum(b.add(first, e.i64(part)), e.i64(self.channels))
        if c.rows:
            decode_indices(e, c.rows, row)
        enter_row(e, c.epilogue, c.rows)
        at = self.at_row(*(advance(e, e.env["base", a.operand], e.integer(a.address.rest)) for a in (c.x, c.w)))
        for block, start, stop in self.blocks():
            step = e.i64(block.windows)
            with e.each(start, stop, step) as column:
                self.block(block, column, at, (first, last))

    def at_row(self, x: Value, w: Value) -> tuple[Value, Value, Value]:
        """Where the first row of taps of a row of windows reads the image and the weight, and how many such rows there are."""
        c, e, b = self.c, self.e, self.e.index
        for axis in c.rows:
            x = advance(e, x, b.mul(e.env[axis.name], e.integer(c.x.address.strides.get(axis.name, 0))))
        top, down = self.taps_inside(c.down, e.env.get(c.down.window))
        x, w = (advance(e, at, b.mul(top, e.integer(step))) for at, step in ((x, c.down.x), (w, c.down.w)))
        return x, w, down

    def at_column(
        self, block: WindowBlock, column: Value, at: tuple[Value, Value, Value]
    ) -> tuple[Value, Value, list[Value]]:
        """Where the first tap of a block of windows reads the image and the weight, and how many taps there are, by axis."""
        c, e, b = self.c, self.e, self.e.index
        x, w, down = at
        x = advance(e, x, b.mul(column, e.integer(self.column_step)))
        counts = [down]
        if block.inside is None and block.windows == 1:
            left, along = self.taps_inside(c.along, column)
            x, w = (advance(e, here, b.mul(left, e.integer(step))) for here, step in ((x, c.along.x), (w, c.along.w)))
            counts.append(along)
        return x, w, counts

    def block(
        self, block: WindowBlock, column: Value, at: tuple[Value, Value, Value], channels: tuple[Value, Value]
    ) -> None:
        c, e, b = self.c, self.e, self.e.index
        x, w, counts = self.at_column(block, column, at)
        with e.each(*channels, self.chunk) as channel:
            count = b.minimum(e.i64(self.chunk), b.sub(channels[1], channel))
            here = advance(e, x, channel) if c.depthwise else x, advance(e, w, channel), self.tile
            self.call_sums(block.name, here, (count, *counts), partial(self.write_tile, block))
            self.finish_windows(block, column, channel, count)

    def call_sums(self, name: str, places: Sequence[Value], numbers: Sequence[Value], write: WriteSums) -> None:
        """Calls a function of sums, which `write` writes, given its parameters: `places` and `numbers`, and the steps that they are for."""
        arguments = [*((p, PTR) for p in places), *((n, "i64") for n in numbers)]
        unknown = [(self.e.integer(n), "i64") for n in self.steps if not isinstance(n, int)]

        def body(e: VectorEmitter, parameters: list[Value]) -> None:
            given = iter(parameters[len(arguments) :])
            write(e, parameters[: len(arguments)], [n if isinstance(n, int) else next(given) for n in self.steps])

        call(self.e, name, [*arguments, *unknown], body)

    def finish_windows(self, block: WindowBlock, column: Value, channel: Value, count: Value) -> None:
        e, b = self.e, self.e.index
        with e.each(0, block.windows) as k:
            self.finish(b.add(column, k), advance(e, self.tile, b.mul(k, e.i64(self.chunk))), channel, count)

    def finish(self, column: Value, sums: Value, channel: Value, count: Value) -> None:
        """The epilogue of a window."""
        c, e, b = self.c, self.e, self.e.index
        if c.column is not None:
            e.env[c.column.name] = column
            enter_row(e, c.epilogue, [*c.rows, c.column])
        for k, mask in vectors(e, count, self.channels % self.lanes != 0):
            made = {c.total: load_floats(e, advance(e, sums, k))}
            finish_vector(e, c.kernel, c.channel, b.add(channel, k), made, mask)

    # ---- blocks of windows

    @property
    def column_step(self) -> Int:
        """Elements of the image from window to window of a row."""
        return self.c.x.address.strides.get(self.c.column.name, 0) if self.c.column else 0

    def blocks(self) -> Iterator[tuple[WindowBlock, Value, Value]]:
        """Blocks, each kind with the first window and an end: all of a row."""
        c, e, b = self.c, self.e, self.e.index
        if self.known is not None:
            start = 0
            for block, count in self.known:
                yield block, e.i64(start), e.i64(start + count * block.windows)
                start += count * block.windows
            return
        assert c.column is not None
        columns, zero, axis = e.integer(c.column.size), e.i64(0), c.along
        left, right = zero, columns
        if axis.bounded:
            left = e.ceildiv(e.i64(axis.padding), axis.stride)
            reach = (axis.count - 1) * axis.dilation - axis.padding
            if axis.size is not None:
                room = b.maximum(b.sub(e.integer(axis.size), e.i64(reach)), zero)
                right = b.minimum(columns, e.ceildiv(room, axis.stride))
            left = b.minimum(left, columns)
            right = b.maximum(left, right)
        whole = b.mul(b.binary("arith.divui", b.sub(right, left), e.i64(self.most)), e.i64(self.most))
        every = tuple(range(axis.count))
        middle = b.add(left, whole)
        yield WindowBlock(None, 1), zero, left
        yield WindowBlock((every,) * self.most, self.most), left, middle
        yield WindowBlock(None, 1), middle, columns

    def taps_inside(self, axis: Taps, window: Value | None) -> tuple[Value, Value]:
        """The first tap of a window that is inside the image, and how many are."""
        e, b = self.e, self.e.index
        if not axis.bounded:
            return e.i64(0), e.i64(axis.count)
        zero, start = e.i64(0), e.i64(-axis.padding)
        if window is not None:
            start = b.add(b.mul(window, e.i64(axis.stride)), start)
        first = e.ceildiv(b.maximum(b.sub(zero, start), zero), axis.dilation)
        end = e.i64(axis.count)
        if axis.size is not None:
            end = b.minimum(end, e.ceildiv(b.maximum(b.sub(e.integer(axis.size), start), zero), axis.dilation))
        return first, b.maximum(b.sub(end, first), zero)

    # ---- sums

    @property
    def steps(self) -> tuple[Int, ...]:
        """Elements in the image and in the weights: from tap to tap down, along, and of more steps; then from window to window."""
        c = self.c
        return (c.down.x, c.down.w, c.along.x, c.along.w, c.more.x, c.more.w, self.column_step)

    def write_tile(self, block: WindowBlock, e: VectorEmitter, given: list[Value], steps: list[int | Value]) -> None:
        """tile[window, channel] = the sums of a block, as a function of its own."""
        x, w, tile, count, *counts = given
        taps = TapSums(self, block, e, counts, steps)
        b, most = e.index, self.vectors(block)

        def some(k: Value, vectors: int, mask: Value | None) -> None:
            image = advance(e, x, k) if self.c.depthwise else x
            taps.write(image, advance(e, w, k), advance(e, tile, k), vectors, mask)

        several = most * self.lanes
        done = b.sub(count, b.binary("arith.remui", count, e.i64(several)))
        with e.each(0, done, several) as k:
            some(k, most, None)
        whole = b.and_(count, e.i64(-self.lanes))
        if most > 1 and (self.channels % several or self.chunk % several):  # else each count is a multiple
            with e.each(done, whole, self.lanes) as k:
                some(k, 1, None)
        if self.channels % self.lanes:
            with e.each(whole, count, self.lanes) as k:
                some(k, 1, lanes_below(e, b.sub(count, k)))

    @property
    def dense_vectors(self) -> int:
        """Vectors of filters that a pixel is multiplied by at a time."""
        return max(1, min(2, self.channels // self.lanes))

    def vectors(self, block: WindowBlock) -> int:
        """Vectors of channels that a block sums at a time: enough independent accumulators to hide the latency of an FMA, if they fit
        into the registers beside a row of weights and a pixel."""
        if not self.c.depthwise:
            return self.dense_vectors
        room = registers(self.target)
        most = SUMS * 2 if room == 32 else SUMS
        weights = 1 if block.inside is None else self.c.along.count
        vectors = max(1, most // block.windows)
        while vectors > 1 and vectors * (block.windows + weights + 1) > room:
            vectors -= 1
        return vectors


@dataclass
class TapSums:
    """Writes the sums of a block of windows with `e`. counts: rows of taps; and taps of a row, where they are counted."""

    writer: DirectWriter
    block: WindowBlock
    e: VectorEmitter
    counts: list[Value]
    steps: list[int | Value]

    def write(self, x: Value, w: Value, tile: Value, vectors: int, mask: Value | None) -> None:
        """tile[window, :] = sums of this many vectors of channels; x, w: addresses of their first channels."""
        e, windows = self.e, self.block.windows
        wide = e.builder(F32, True)
        sums = [wide.constant(0.0)] * (windows * vectors)
        types = [wide.type_text(F32)] * len(sums)

        def rows(x: Value, w: Value, sums: list[Value]) -> list[Value]:
            def row(k: Value, sums: list[Value]) -> list[Value]:
                return self.row(*self.at(x, w, k, 0), sums, vectors, mask)

            return e.loop(e.i64(0), self.counts[0], e.i64(1), sums, types, row)

        more = self.writer.c.more.count
        if more == 1:
            sums = rows(x, w, sums)
        else:
            sums = e.loop(
                e.i64(0), e.i64(more), e.i64(1), sums, types, lambda k, sums: rows(*self.at(x, w, k, 4), sums)
            )
        for k, total in enumerate(sums):
            place = (k // vectors) * self.writer.chunk + (k % vectors) * e.lanes
            to = advance(e, tile, place)
            e.lines.append(f"llvm.store {total}, {to} {{alignment = 4 : i64}} : {types[0]}, !llvm.ptr")

    def at(self, x: Value, w: Value, k: Value, step: int) -> tuple[Value, Value]:
        """Step `k` of those at this place of `steps`."""
        e = self.e
        return advance(e, x, self.times(k, self.steps[step])), advance(e, w, self.times(k, self.steps[step + 1]))

    def row(self, x: Value, w: Value, sums: list[Value], vectors: int, mask: Value | None) -> list[Value]:
        """The sums after a row of taps."""
        if self.block.inside is not None and not self.writer.c.depthwise:
            return self.tap_by_tap(x, w, sums, vectors, mask)
        pixel, weights = (partial(load, vectors=vectors, mask=mask) for load in (self.pixel, self.load))
        return self.pixel_by_pixel(x, w, sums, pixel, weights)

    def pixel_by_pixel(self, x: Value, w: Value, sums: list[Value], pixel: Load, load: Load) -> list[Value]:
        """The sums after a row of taps; `pixel` and `load` give the factors of the vectors of a pixel and of weights."""
        e = self.e
        wide = e.builder(F32, True)
        if self.block.inside is None:

            def tap(k: Value, sums: list[Value]) -> list[Value]:
                here = self.at(x, w, k, 2)
                factors = pixel(here[0]), load(here[1])
                return [wide.fma(a, b, total) for a, b, total in zip(*factors, sums, strict=True)]

            return e.loop(e.i64(0), self.counts[1], e.i64(1), sums, [wide.type_text(F32)] * len(sums), tap)
        weights: dict[int, list[Value]] = {}
        made, vectors = list(sums), len(sums) // self.block.windows
        for place, met in self.pixels_met().items():
            here = pixel(advance(e, x, self.offset(*place)))
            for window, number in met:
                if number not in weights:
                    weights[number] = load(advance(e, w, self.times(e.i64(number), self.steps[3])))
                for v in range(vectors):
                    k = window * vectors + v
                    made[k] = wide.fma(here[v], weights[number][v], made[k])
        return made

    def tap_by_tap(self, x: Value, w: Value, sums: list[Value], vectors: int, mask: Value | None) -> list[Value]:
        """As `row`, for more filters than registers hold the weights of a row for: neighbouring taps that the same windows have are a
        loop, for LLVM would keep each pixel for the next taps, on the stack."""
        e, inside = self.e, self.block.inside
        wide = e.builder(F32, True)
        assert inside is not None
        met = [tuple(w for w, taps in enumerate(inside) if tap in taps) for tap in range(self.writer.c.along.count)]
        start = 0
        for windows, some in groupby(met):
            end = start + len(list(some))

            def tap(k: Value, sums: list[Value], windows: tuple[int, ...] = windows) -> list[Value]:
                here, weights = self.at(x, w, k, 2)
                factors, made = self.load(weights, vectors, mask), list(sums)
                for window in windows:
                    pixel = self.pixel(advance(e, here, self.offset(window, 0)), vectors, None)
                    for v in range(vectors):
                        place = window * vectors + v
                        made[place] = wide.fma(pixel[v], factors[v], made[place])
                return made

            sums = e.loop(e.i64(start), e.i64(end), e.i64(1), sums, [wide.type_text(F32)] * len(sums), tap)
            start = end
        return sums

    def pixels_met(self) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """The windows of the block, each with the tap, that meet each pixel; by the first of them."""
        assert self.block.inside is not None
        pixels: dict[tuple[int, int], list[tuple[int, int]]] = {}
        stride, dilation = self.apart()
        for window, taps in enumerate(self.block.inside):
            for tap in taps:
                place = (window * stride + tap * dilation, 0) if stride else (window, tap)
                pixels.setdefault(place, []).append((window, tap))
        return {met[0]: met for _, met in sorted(pixels.items())}

    def offset(self, window: int, tap: int) -> Value:
        """Elements of the image from the block's first pixel to the tap of a window."""
        e = self.e
        return e.index.add(self.times(e.i64(window), self.steps[6]), self.times(e.i64(tap), self.steps[2]))

    def apart(self) -> tuple[int, int]:
        """Elements from window to window, and from tap to tap, where they are known; else zeros."""
        window, tap = self.steps[6], self.steps[2]
        if isinstance(window, int) and isinstance(tap, int) and window > 0 and tap > 0:
            return window, tap
        return 0, 0

    def pixel(self, address: Value, vectors: int, mask: Value | None) -> list[Value]:
        if self.writer.c.depthwise:
            return self.load(address, vectors, mask)
        return [Floats().load_element(self.e, address)] * vectors

    def load(self, address: Value, vectors: int, mask: Value | None) -> list[Value]:
        return [load_floats(self.e, advance(self.e, address, v * self.e.lanes), mask=mask) for v in range(vectors)]

    def times(self, k: Value, step: int | Value) -> Value:
        e = self.e
        known = e.text.constant_values.get(k)
        if isinstance(step, int) and not isinstance(step, Value):
            return e.i64(known * step) if isinstance(known, int) else e.index.mul(k, e.i64(step))
        return e.index.mul(k, step)  # type: ignore[arg-type]


def known_blocks(c: WindowedSum, most: int) -> list[tuple[WindowBlock, int]] | None:
    """The blocks of a row, and how many of each follow one another; None where they are not known, or of many kinds."""
    axis, columns = c.along, c.column.size if c.column else 1
    size = axis.size if axis.size is not None else 1 << 62
    if not isinstance(columns, int) or not isinstance(size, int):
        return None
    count = -(-columns // most)
    narrow, wider = divmod(columns, max(count, 1))

    def inside(window: int) -> tuple[int, ...]:
        first = window * axis.stride - axis.padding
        return tuple(k for k in range(axis.count) if not axis.bounded or 0 <= first + k * axis.dilation < size)

    made, start = [], 0
    for k in range(count):
        windows = narrow + (k >= count - wider)
        made.append(WindowBlock(tuple(inside(start + j) for j in range(windows)), windows))
        start += windows
    groups = [(block, len(list(some))) for block, some in groupby(made)]
    return groups if len({block for block, _ in groups}) <= MOST_KINDS else None


def direct_text(c: WindowedSum, name: str, target: CpuTarget) -> KernelText:
    """The functions of kernel `name`."""
    return DirectWriter(c, name, target).write()

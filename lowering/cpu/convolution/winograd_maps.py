"""Winograd's transforms of pixels, weights and products in MLIR text (winograd_transform.py), a vector of channels or filters at a
time.

Each map is a function of its own beside the kernel's body, for all panels and parts of images.
"""

import torch

from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.cpu.convolution.winograd_transform import TAPS, Winograd
from mlirc.lowering.cpu.emitter.addresses import (
    PTR,
    advance,
    call,
    load_floats,
    store_floats,
    vectors,
)
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.math.builder import Value

F32 = torch.float32


@dataclass
class TileMaps:
    """Writes calls with `e`. `down` and `along` are the maps of a tile's rows and columns. Strides, and what
    lies between points (`apart`), are in elements."""

    e: VectorEmitter
    down: Winograd
    along: Winograd

    @property
    def height(self) -> int:
        """Rows of a tile's pixels."""
        return self.down.n

    @property
    def width(self) -> int:
        return self.along.n

    @property
    def points(self) -> int:
        return self.height * self.width

    def inputs(self, source: Value, line: Value, column: Value, count: Value, to: Value, apart: Value) -> None:
        """to[point, :count] of the pixels at `source`; `count`: whole vectors of channels."""

        def write(e: VectorEmitter, p: list[Value]) -> None:
            source, line, column, count, to, apart = p
            b, wide = e.index, e.builder(F32, True)

            with e.each(0, count, e.lanes) as k:
                mapped = []
                for j in range(self.width):
                    here = [b.add(k, b.add(b.mul(line, e.i64(i)), b.mul(column, e.i64(j)))) for i in range(self.height)]
                    mapped.append(self.down.inputs(wide, [load_floats(e, advance(e, source, x)) for x in here]))
                for i in range(self.height):
                    row = self.along.inputs(wide, [values[i] for values in mapped])
                    for j, value in enumerate(row):
                        place = b.add(k, b.mul(apart, e.i64(i * self.width + j)))
                        store_floats(e, value, advance(e, to, place))

        numbers = [(x, "i64") for x in (line, column, count)]
        call(self.e, "inputs", [(source, PTR), *numbers, (to, PTR), (apart, "i64")], write)

    def patch(
        self,
        image: Value,
        at: tuple[Value, Value],
        strides: tuple[Value, Value],
        sizes: tuple[Value, Value],
        steps: Value,
        patch: Value,
        chunk: Value,
        ragged: bool,
    ) -> None:
        """patch[i, j, :steps] = the image's pixel `at` + (i, j); zeros outside of it. A pixel of the patch has room for `chunk`
        channels. ragged: `steps` may be no whole vectors."""

        def write(e: VectorEmitter, p: list[Value]) -> None:
            image, y, x, line, column, height, width, steps, patch, chunk = p
            b = e.index
            zero = e.builder(F32, True).constant(0.0)

            with e.each(0, self.height) as i, e.each(0, self.width) as j:
                at = b.add(y, i), b.add(x, j)
                inside = b.and_(
                    b.and_(b.le(e.i64(0), at[0]), b.lt(at[0], height)),
                    b.and_(b.le(e.i64(0), at[1]), b.lt(at[1], width)),
                )
                source = advance(e, image, b.add(b.mul(at[0], line), b.mul(at[1], column)))
                to = advance(e, patch, b.mul(b.add(b.mul(i, e.i64(self.width)), j), chunk))

                for is_inside in e.either(inside):
                    for k, mask in vectors(e, steps, ragged):
                        value = load_floats(e, advance(e, source, k), mask=mask) if is_inside else zero
                        store_floats(e, value, advance(e, to, k))

        numbers = [(n, "i64") for n in (*at, *strides, *sizes, steps)]
        call(self.e, "patch", [(image, PTR), *numbers, (patch, PTR), (chunk, "i64")], write)

    def weights(self, plain: Value, steps: Value, width: Value, to: Value, apart: Value, mirrored: bool) -> None:
        """to[point, c, :] of plain[c, tap, :], for `steps` channels of a panel; `mirrored`: the last tap is the first."""

        def write(e: VectorEmitter, p: list[Value]) -> None:
            plain, steps, width, to, apart = p
            b, wide = e.index, e.builder(F32, True)

            def vector(k: Value, j: Value) -> None:
                source = b.add(b.mul(b.mul(k, width), e.i64(TAPS * TAPS)), j)
                taps = [
                    load_floats(e, advance(e, plain, b.add(source, b.mul(width, e.i64(tap)))))
                    for tap in range(TAPS * TAPS)
                ]
                if mirrored:
                    taps.reverse()
                rows = [self.along.weights(wide, taps[i * TAPS : (i + 1) * TAPS]) for i in range(TAPS)]
                for n in range(self.width):
                    for i, value in enumerate(self.down.weights(wide, [row[n] for row in rows])):
                        place = b.add(b.add(b.mul(k, width), j), b.mul(apart, e.i64(i * self.width + n)))
                        store_floats(e, value, advance(e, to, place))

            with e.each(0, steps) as k, e.each(0, width, e.lanes) as j:
                vector(k, j)

        numbers = [(steps, "i64"), (width, "i64")]
        call(self.e, "weights", [(plain, PTR), *numbers, (to, PTR), (apart, "i64")], write)

    def results(self, products: Value, lines: Value, columns: Value, width: Value, sums: Value, flags: Value) -> None:
        """sums[line, pixel, :] of each tile of products[point, tile, :]; `flags`, a vector, are NaN where any is infinite or NaN."""

        def write(e: VectorEmitter, p: list[Value]) -> None:
            products, lines, columns, width, sums, flags = p
            b, wide = e.index, e.builder(F32, True)
            apart = b.mul(b.mul(lines, columns), width)
            high, along = self.down.m, self.along.m
            pitch = b.mul(b.mul(columns, e.i64(along)), width)
            zero, kind = wide.constant(0.0), wide.type_text(F32)

            def tile(r: Value, t: Value, j: Value, total: Value) -> Value:
                source = b.add(b.mul(b.add(b.mul(r, columns), t), width), j)
                points = [
                    load_floats(e, advance(e, products, b.add(source, b.mul(apart, e.i64(k)))))
                    for k in range(self.points)
                ]
                rows = [
                    self.along.results(wide, points[i * self.width : (i + 1) * self.width]) for i in range(self.height)
                ]
                start = b.add(b.add(b.mul(b.mul(r, e.i64(high)), pitch), b.mul(b.mul(t, e.i64(along)), width)), j)
                for k in range(along):
                    for i, value in enumerate(self.down.results(wide, [row[k] for row in rows])):
                        place = b.add(start, b.add(b.mul(pitch, e.i64(i)), b.mul(width, e.i64(k))))
                        store_floats(e, value, advance(e, sums, place))
                        total = wide.fma(value, zero, total)
                return total

            def each(lo: list[Value], state: list[Value]) -> list[Value]:
                if len(lo) == 3:
                    return [tile(lo[0], lo[1], lo[2], state[0])]
                end, step = ((lines, 1), (columns, 1), (width, e.lanes))[len(lo)]
                return e.loop(e.i64(0), end, e.i64(step), state, [kind], lambda k, s: each([*lo, k], s))

            store_floats(e, each([], [zero])[0], flags)

        numbers = [(x, "i64") for x in (lines, columns, width)]
        call(self.e, "results", [(products, PTR), *numbers, (sums, PTR), (flags, PTR)], write)

"""Packs a part of a matrix for a gemm, a vector at a time: columns into panels, or rows one after another.

A panel is `width` columns, step by step along k. What stands for columns past the last one is any number: a gemm's tile keeps nothing of it.
"""

import torch

from mlirc.dialects.core.symbols import Int
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.cpu.emitter.addresses import (
    advance,
    choose_address,
    copy_scalar,
    lanes_below,
    load_floats,
    store_floats,
    vectors,
)
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.cpu.matmul.transposes import transpose_panel, transpose_tile

F32 = torch.float32


@dataclass
class Packer:
    """Writes the code that packs.

    e       its lanes are float32's
    room    steps along k that a packed panel has room for, a multiple of the lanes
    width   columns of a panel

    Strides are in elements, unless they are called `row_bytes`.
    """

    e: VectorEmitter
    room: int
    width: int

    # ---- columns: panel[k * width + i] = column first + i, at k

    def panels(
        self,
        base: Value,
        strides: tuple[Int, Int],
        within: tuple[Value, Value],
        columns: int,
        steps: Value,
        to: Value,
        then: Value,
    ) -> None:
        """Packs panels within[0] to within[1] - 1 of a matrix, one after another, for `steps` steps along k.

        base      the address of column 0 at the first step
        strides   from column to column, and from step to step
        columns   of the whole matrix
        to        the address of the first packed panel
        then      the address of what is packed after them, which is prefetched
        """
        e, b = self.e, self.e.index
        along, down = strides
        if along == 1:
            self.side_by_side(base, down, within, columns, steps, to)
            return

        with e.each(*within) as number:
            place, first = self.panel_at(to, b.sub(number, within[0])), b.mul(number, e.i64(self.width))
            if down == 1:
                more = b.lt(b.add(number, e.i64(1)), within[1])
                beside = advance(e, base, b.mul(b.add(first, e.i64(self.width)), e.integer(along)))
                self.transposed(base, along, first, columns, steps, place, choose_address(e, more, beside, then))
            else:
                self.one_by_one(base, strides, first, columns, steps, place)

    def panel_at(self, panels: Value, number: Value) -> Value:
        """The address of packed panel `number` behind `panels`."""
        return advance(self.e, panels, self.e.index.mul(number, self.e.i64(self.room * self.width)))

    def side_by_side(
        self, base: Value, down: Int, within: tuple[Value, Value], columns: int, steps: Value, to: Value
    ) -> None:
        """Packs panels whose columns lie side by side: all panels at one step, then at the next. Reads are long runs, of few pages at a time."""
        e, b = self.e, self.e.index
        step = e.integer(down)

        with e.each(0, steps) as k:
            start, row_of = advance(e, base, b.mul(k, step)), advance(e, to, b.mul(k, e.i64(self.width)))

            with e.each(*within) as number:
                first, target = b.mul(number, e.i64(self.width)), self.panel_at(row_of, b.sub(number, within[0]))
                for j in range(0, self.width, e.lanes):
                    column = b.add(first, e.i64(j))
                    mask = lanes_below(e, b.sub(e.i64(columns), column)) if columns % self.width else None
                    store_floats(e, load_floats(e, advance(e, start, column), mask=mask), advance(e, target, j))

    def transposed(
        self,
        base: Value,
        along: Int,
        first: Value,
        columns: Int,
        steps: Value,
        to: Value,
        then: Value | None = None,
    ) -> None:
        """Packs one panel, from column `first` on, whose columns are contiguous along k: square tiles are transposed in registers.

        `then` is the address of what is packed next, where that is not the columns beside these.
        """
        e, b = self.e, self.e.index
        last, stride = e.integer(columns - 1), e.integer(along)
        row_bytes = b.mul(stride, e.i64(4))
        whole = b.ge(e.integer(columns), b.add(first, e.i64(self.width)))
        packed = b.select(whole, b.and_(steps, e.i64(-2 * e.lanes)), e.i64(0))
        source = advance(e, base, b.mul(b.minimum(first, last), stride))
        then = then or advance(e, source, b.mul(e.i64(self.width), stride))
        transpose_panel(e, source, row_bytes, packed, to, self.width, then)

        with e.each(0, self.width, e.lanes) as column:
            start = b.minimum(b.add(first, column), last)
            source = advance(e, base, b.mul(start, stride))

            with e.each(packed, steps, e.lanes) as k:
                place = advance(e, to, b.add(b.mul(k, e.i64(self.width)), column))
                sizes = b.sub(last, start), b.sub(steps, k)
                transpose_tile(e, F32, advance(e, source, k), row_bytes, *sizes, place, 4 * self.width, fetch=True)

    def one_by_one(
        self, base: Value, strides: tuple[Int, Int], first: Value, columns: int, steps: Value, to: Value
    ) -> None:
        """Packs one panel element by element, whatever the strides are."""
        e, b = self.e, self.e.index
        along, down = map(e.integer, strides)
        last = e.i64(columns - 1)

        with e.each(0, steps) as k, e.each(0, self.width) as i:
            column = b.minimum(b.add(first, i), last)
            copy_scalar(
                e,
                advance(e, base, b.add(b.mul(column, along), b.mul(k, down))),
                advance(e, to, b.add(b.mul(k, e.i64(self.width)), i)),
            )

    # ---- rows

    def rows(self, base: Value, stride: Value, size: int, steps: Value, to: Value, room: int) -> None:
        """to[i * room + k] = row i at k, for i below `size` and k below `steps`. Rows are contiguous; the last vector of each is written whole."""
        e, b = self.e, self.e.index
        for k, mask in vectors(e, steps):
            for i in range(size):
                source = advance(e, base, b.add(b.mul(stride, e.i64(i)), k))
                store_floats(e, load_floats(e, source, mask=mask), advance(e, to, b.add(e.i64(i * room), k)))

    def step_of_rows(self, source: Value, apart: Value | None, size: int, to: Value) -> None:
        """to[i] = row i at one step, for i below `size`. `source` is the address of row 0 there; `apart` the elements from row to row, None for 1."""
        e = self.e
        if apart is not None:
            for i in range(size):
                copy_scalar(e, advance(e, source, e.index.mul(apart, e.i64(i))), advance(e, to, i))
            return
        room = 1 << (size - 1).bit_length()
        vector, masked = f"vector<{room}xf32>", f"vector<{room}xi1>"
        text = f"llvm.load {source} {{alignment = 4 : i64}} : !llvm.ptr -> {vector}"
        if size < room:
            inside = ", ".join("true" if i < size else "false" for i in range(room))
            mask = e.text.constant(f"dense<[{inside}]>", masked, torch.bool, -1)
            zero = e.text.constant("dense<0.0>", vector, F32, 0)
            text = f"llvm.intr.masked.load {source}, {mask}, {zero} {{alignment = 4 : i32}} : "
            text += f"(!llvm.ptr, {masked}, {vector}) -> {vector}"
        x = e.index.emit(text, F32)
        e.lines.append(f"llvm.store {x}, {to} {{alignment = 4 : i64}} : {vector}, !llvm.ptr")

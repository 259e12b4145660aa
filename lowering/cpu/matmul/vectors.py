"""Vectors of a gemm's factors: loads, stores, and square transposes. Offsets and strides are in bytes."""

import torch

from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.emitter.register_transpose import transposed
from mlirc.lowering.cpu.math.builder import Value

F32, BF16 = torch.float32, torch.bfloat16
CACHE_LINE = 64
PACKED_AHEAD = 256  # bytes of a column between what is packed and what is fetched


class Vectors:
    """Appends to `e`, whose lanes are float32's; functions beside the kernel's body are called after it."""

    def __init__(self, e: VectorEmitter, name: str):
        self.e, self.name, self.lanes = e, name, e.lanes

    def at(self, address: Value, bytes_: Value) -> Value:
        text = f"llvm.getelementptr {address}[{bytes_}] : (!llvm.ptr, i64) -> !llvm.ptr, i8"
        return self.e.index.emit(text, torch.int64)

    def below(self, count: Value) -> Value:
        """The first `count` lanes."""
        e = self.e
        return e.builder(torch.int64, True).lt(e.lane_numbers(), e.splat(count))

    def load(self, dtype: torch.dtype, address: Value, mask: Value | None) -> Value:
        """A vector, widened to float32; 0 where the mask does not hold."""
        memory = torch.int16 if dtype == BF16 else F32
        b = self.e.builder(memory, True)
        vector, align = b.type_text(memory), memory.itemsize
        text = f"llvm.load {address} {{alignment = {align} : i64}} : !llvm.ptr -> {vector}"
        if mask is not None:
            text = f"llvm.intr.masked.load {address}, {mask}, {b.constant(0, memory)} {{alignment = {align} : i32}} : "
            text += f"(!llvm.ptr, {b.type_text(torch.bool)}, {vector}) -> {vector}"
        x = b.emit(text, memory)
        return b.cast(b.bitcast(x, BF16), F32) if dtype == BF16 else x

    def store(self, value: Value, address: Value) -> None:
        vector = self.e.builder(F32, True).type_text(F32)
        self.e.lines.append(f"llvm.store {value}, {address} {{alignment = 4 : i64}} : {vector}, !llvm.ptr")

    def square(
        self,
        dtype: torch.dtype,
        source: Value,
        apart: Value,
        last: Value,
        count: Value,
        to: Value,
        step: int,
        fetch: bool = False,
    ) -> None:
        """to[j, i] = source[min(i, last), j], for i and j below the lanes; 0 from j = `count` on.

        fetch: what the lines after those of the square have at the same places comes to the second-level cache.
        A function: LLVM takes long for its shuffles, each time that they stand in the text.
        """
        e, name = self.e, f"{self.name}_{'fetching_' * fetch}square_{'bf16' if dtype == BF16 else 'f32'}"
        if name not in e.text.functions:
            e.text.functions[name] = self.square_function(name, dtype, fetch)
        arguments = f"{source}, {apart}, {last}, {count}, {to}, {e.i64(step)}"
        e.lines.append(f"llvm.call @{name}({arguments}) : (!llvm.ptr, i64, i64, i64, !llvm.ptr, i64) -> ()")

    def square_function(self, name: str, dtype: torch.dtype, fetch: bool) -> str:
        outside, self.e = self.e, VectorEmitter(self.e.vector, self.e.text.target)
        e, b = self.e, self.e.index
        apart, last, count, step = (Value(x, torch.int64) for x in ("%apart", "%last", "%count", "%step"))
        inside, rows, beyond = self.below(count), [], b.mul(apart, e.i64(self.lanes))
        for i in range(self.lanes):
            place = self.at(Value("%source", torch.int64), b.mul(b.minimum(e.i64(i), last), apart))
            rows.append(self.load(dtype, place, inside))
            if fetch:
                e.lines.append(
                    f'"llvm.intr.prefetch"({self.at(place, beyond)}) '
                    "<{cache = 1 : i32, hint = 2 : i32, rw = 0 : i32}> : (!llvm.ptr) -> ()"
                )
        for j, values in enumerate(transposed(e, rows)):
            self.store(values, self.at(Value("%to", torch.int64), b.mul(e.i64(j), step)))
        self.e = outside
        parameters = "%source: !llvm.ptr, %apart: i64, %last: i64, %count: i64, %to: !llvm.ptr, %step: i64"
        return "\n".join(
            [f"llvm.func internal @{name}({parameters}) {{", *e.text.preamble, *e.lines, "llvm.return", "}"]
        )

    def panel(self, source: Value, apart: Value, steps: Value, to: Value, width: int, then: Value) -> None:
        """to[k, i] = source[i, k], of float32, for i below `width` and k below `steps`, an even number of vectors.

        A cache line of each column is read at once, and the panel is written from its beginning to its end. Meanwhile the
        columns at `then`, which are packed next, are fetched in the order in which they lie.
        """
        e, name = self.e, f"{self.name}_panel{width}"
        if name not in e.text.functions:
            e.text.functions[name] = self.panel_function(name, width)
        types = "(!llvm.ptr, i64, i64, !llvm.ptr, !llvm.ptr) -> ()"
        e.lines.append(f"llvm.call @{name}({source}, {apart}, {steps}, {to}, {then}) : {types}")

    def panel_function(self, name: str, width: int) -> str:
        outside, self.e = self.e, VectorEmitter(self.e.vector, self.e.text.target)
        e, b, lanes = self.e, self.e.index, self.lanes
        source, apart, steps, to, then = (
            Value(x, torch.int64) for x in ("%source", "%apart", "%steps", "%to", "%then")
        )
        length = b.mul(steps, e.i64(4))

        def transpose_lines(here: Value, there: Value) -> None:
            rows = [here]
            for _ in range(lanes - 1):
                rows.append(self.at(rows[-1], apart))
            for row in rows:
                fetch_line(e, self.at(row, e.i64(PACKED_AHEAD)), 3)
            for first in (0, lanes):
                found = [self.load(F32, self.at(row, e.i64(4 * first)), None) for row in rows]
                for j, values in enumerate(transposed(e, found)):
                    self.store(values, self.at(there, e.i64(4 * (first + j) * width)))

        def fetch_next(column: Value, offset: Value) -> list[Value]:
            """As many lines as a transpose reads."""
            place = self.at(self.at(then, column), offset)
            for line in range(0, 8 * lanes * lanes, CACHE_LINE):
                fetch_line(e, self.at(place, e.i64(line)), 2)
            offset = b.add(offset, e.i64(8 * lanes * lanes))
            inside = b.gt(length, offset)
            return [b.select(inside, column, b.add(column, apart)), b.select(inside, offset, e.i64(0))]

        def some_steps(k: Value, state: list[Value]) -> list[Value]:
            here, there = self.at(source, b.mul(k, e.i64(4))), self.at(to, b.mul(k, e.i64(4 * width)))

            def columns(i: Value, state: list[Value]) -> list[Value]:
                transpose_lines(self.at(here, b.mul(i, apart)), self.at(there, b.mul(i, e.i64(4))))
                return fetch_next(*state)

            return e.loop(e.i64(0), e.i64(width), e.i64(lanes), state, ["i64", "i64"], columns)

        e.loop(e.i64(0), steps, e.i64(2 * lanes), [e.i64(0), e.i64(0)], ["i64", "i64"], some_steps)
        self.e = outside
        parameters = "%source: !llvm.ptr, %apart: i64, %steps: i64, %to: !llvm.ptr, %then: !llvm.ptr"
        return "\n".join(
            [f"llvm.func internal @{name}({parameters}) {{", *e.text.preamble, *e.lines, "llvm.return", "}"]
        )


def fetch_line(e: VectorEmitter, address: Value, level: int) -> None:
    """level: 3 for the first-level cache, 2 for the second"""
    hint = f"<{{cache = 1 : i32, hint = {level} : i32, rw = 0 : i32}}>"
    e.lines.append(f'"llvm.intr.prefetch"({address}) {hint} : (!llvm.ptr) -> ()')

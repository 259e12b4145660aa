"""A product of a few rows with a matrix whose columns lie along k: sums of products along the lanes, added up at their end.

for unit of columns:                            threads share them; a vector of them
  for column in unit:                           the matrix is read once, from beginning to end
    tile[rows, column] = rows @ column          the sums in registers
  epilogue over the unit's rows
"""

import torch

from mlirc.lowering.cpu_target import CpuTarget
from mlirc.lowering.kernel_emitter import Emitter
from mlirc.lowering.product_match import Product
from mlirc.lowering.product_tile import Pairs
from mlirc.lowering.product_units import Range, UnitsWriter
from mlirc.lowering.product_vectors import F32
from mlirc.lowering.vector_builder import Value

MOST_ROWS = 8
SUMS = 8  # of vectors, side by side: each addition waits for the one before it
ROW_BYTES = 24 << 10  # of rows: they stay in the first-level cache
MOST_STEPS = 2048  # along k: so few are summed in a lane before they are added to the rest
CACHE_LINE = 64


def takes_dots(product: Product) -> bool:
    """Whether rows are few, and lie along k as columns do."""
    few = isinstance(product.m_size, int) and 0 < product.m_size <= MOST_ROWS
    return few and product.ka == 1


class DotWriter(UnitsWriter):
    """
    copies   of the sums, each of which takes every so many vectors along k
    steps    along k, of a block
    """

    panel = MOST_ROWS  # all rows: one thread does them

    def __init__(self, product: Product, name: str, target: CpuTarget):
        assert isinstance(product.m_size, int)
        super().__init__(product, name, target)
        self.unit, self.row_count = self.lanes, product.m_size
        self.copies = max(1, SUMS // self.row_count)
        most = ROW_BYTES // (self.row_count * self.step * CACHE_LINE) * CACHE_LINE
        self.steps = min(MOST_STEPS, most)

    def make_room(self) -> None:
        self.take("turned", self.row_count * self.lanes)

    def multiply(self, units: Range, panels: Range) -> None:
        self.dot_function()
        self.each(units, self.one_unit)

    def one_unit(self, unit: Value) -> None:
        e, b = self.e, self.e.index
        turned, wide = e.env["turned"], e.builder(F32, True)
        x, rows_apart = self.rows_from()
        for i in range(self.row_count):
            self.store(wide.constant(0, F32), self.at(turned, e.i64(4 * self.lanes * i)))

        def block(k: Value) -> None:
            a, apart = self.columns_at(unit, k)
            here, steps = self.at(x, b.mul(k, e.i64(self.step))), b.minimum(e.i64(self.steps), b.sub(self.k, k))

            def column(number: Value) -> None:
                there, to = self.at(a, b.mul(apart, number)), self.at(turned, b.mul(number, e.i64(4)))
                e.lines.append(
                    f"llvm.call @{self.name}_dots({here}, {rows_apart}, {there}, {apart}, {to}, {steps}) : {_TYPES}"
                )

            self.each((e.i64(0), self.size_of(unit)), column)

        def row(number: Value) -> None:
            self.bind_row(number)
            line = self.at(turned, b.mul(number, e.i64(4 * self.lanes)))
            self.epilogue(b.mul(unit, e.i64(self.unit)), self.size_of(unit), line)

        self.each((e.i64(0), self.k), block, self.steps)
        self.each((e.i64(0), self.m), row)

    def dot_function(self) -> None:
        """to[i, 0] += row i times a column; the stride in bytes, rows of `to` are a vector apart."""
        outside, self.e = self.e, Emitter(self.e.vector, self.e.text.target)
        e, b = self.e, self.e.index
        steps, many = Value("%steps", torch.int64), self.copies * self.lanes
        whole = b.sub(steps, b.binary("arith.remui", steps, e.i64(many)))
        vectors = b.and_(steps, e.i64(-self.lanes))
        self.sums(e.i64(0), whole, self.copies, None)
        if self.copies > 1:
            self.sums(whole, vectors, 1, None)
        e.lines.append(f"scf.if {b.lt(vectors, steps)} {{")
        self.sums(vectors, steps, 1, self.below(b.sub(steps, vectors)))
        e.lines.append("}")
        self.e = outside
        head = f"llvm.func internal @{self.name}_dots({_PARAMETERS}) {{"
        self.e.text.functions["dots"] = "\n".join([head, *e.text.preamble, *e.lines, "llvm.return", "}"])

    def sums(self, start: Value, end: Value, copies: int, mask: Value | None) -> None:
        """Adds to `to` what the steps from `start` to `end` give."""
        e = self.e
        wide = e.builder(F32, True)
        cells = [(u, i) for u in range(copies) for i in range(self.row_count)]
        x, apart, w = (Value(n, torch.int64) for n in ("%x", "%x_apart", "%w"))

        def step(k: Value, state: list[Value]) -> list[Value]:
            offset, found = e.index.mul(k, e.i64(self.step)), []
            for u in range(copies):
                here = e.index.add(offset, e.i64(u * self.lanes * self.step))
                if self.row_count > 1 and mask is None and u * self.lanes * self.step % CACHE_LINE == 0:
                    self.prefetch(self.at(self.at(w, Value("%w_apart", torch.int64)), here))
                column = self.load(self.factor, self.at(w, here), mask)
                for i in range(self.row_count):
                    place = self.at(x, e.index.add(e.index.mul(apart, e.i64(i)), here))
                    found.append(self.times(self.load(self.factor, place, mask), column, state[len(found)]))
            return found

        zeros = [wide.constant(0, F32)] * len(cells)
        totals = e.loop(start, end, e.i64(copies * self.lanes), zeros, [wide.type_text(F32)] * len(cells), step)
        for i in range(self.row_count):
            total = totals[i]
            for other in totals[i + self.row_count :: self.row_count]:
                total = wide.add(total, other)
            text = f"vector.reduction <add>, {total} fastmath<reassoc> : {wide.type_text(F32)} into f32"
            one, place = e.builder(F32), self.cell(i)
            before = one.emit(f"llvm.load {place} {{alignment = 4 : i64}} : !llvm.ptr -> f32", F32)
            sum_ = one.add(before, one.emit(text, F32))
            e.lines.append(f"llvm.store {sum_}, {place} {{alignment = 4 : i64}} : f32, !llvm.ptr")

    def prefetch(self, address: Value) -> None:
        """Of the next column: the processor follows a stream less well while several rows are read beside it."""
        e = self.e
        options = "{rw = 0 : i32, hint = 3 : i32, cache = 1 : i32}"
        e.lines.append(f'"llvm.intr.prefetch"({address}) {options} : (!llvm.ptr) -> ()')

    def cell(self, row: int) -> Value:
        return self.at(Value("%to", torch.int64), self.e.i64(4 * row * self.lanes))

    def times(self, x: Value, y: Value, z: Value) -> Value:
        if not self.pairs:
            return self.e.builder(F32, True).fma(x, y, z)
        pair = f"vector<{self.lanes}xf32> to vector<{2 * self.lanes}xbf16>"
        name = self.e.text.new_name()
        self.e.lines += [f"{name}x = llvm.bitcast {x} : {pair}", f"{name}y = llvm.bitcast {y} : {pair}"]
        Pairs().multiply(self.e.lines, name, f"{name}x", f"{name}y", z, self.lanes)
        return Value(name, F32)


_PARAMETERS = "%x: !llvm.ptr, %x_apart: i64, %w: !llvm.ptr, %w_apart: i64, %to: !llvm.ptr, %steps: i64"
_TYPES = "(!llvm.ptr, i64, !llvm.ptr, i64, !llvm.ptr, i64) -> ()"

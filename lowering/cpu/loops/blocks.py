"""Loops of a kernel whose vectors lie across the reduced axis, so that each lane folds a column, row by row. Also transposes.

    for tile of columns:                 wide enough to read memory well; its accumulators are in scratch memory
      for block of rows:
        for vector of columns:
          read a square tile of each transposed operand, and transpose it in registers
          for row in block:              folds into registers, which are added to the scratch memory once a block
            ...

The columns go along the vector's axis, the rows along the `block` axis of the schedule.

A fold has two levels. The lower one is in registers, and folds one block of rows. The upper one has an accumulator for each column in scratch
memory, of float64 where a sum is long; the lower one is added to it after each block. A scan has the upper level alone, which goes on from block to
block.
"""

from dataclasses import replace
from functools import partial

import torch

from mlirc.dialects.core import symbols
from mlirc.lowering.cpu.emitter.memory import prefetch_store, store, stored_dtype
from mlirc.lowering.cpu.emitter.register_transpose import load_transposed, store_transposed
from mlirc.lowering.cpu.emitter.scratch import take
from mlirc.lowering.cpu.loops.loops import Loops
from mlirc.lowering.cpu.loops.partial_reductions import barrier
from mlirc.lowering.cpu.loops.reductions import BLOCK, LaneFold, folds_of
from mlirc.lowering.cpu.loops.schedule import Pass
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.kernel.axes import Axis
from mlirc.lowering.kernel.nodes import Access, Linear, Node, Output

TILES = 4


class BlockLoops(Loops):
    """The last axis of a pass is `schedule.block`; around it, in blocks, goes the vector's axis."""

    @property
    def column_axis(self) -> Axis:
        assert self.schedule.vector.axis is not None
        return self.schedule.vector.axis

    @property
    def row_axis(self) -> Axis:
        assert self.schedule.block is not None
        return self.schedule.block

    def prepare(self) -> None:
        """The scratch memory, at the top of the function."""
        e = self.e
        self.places: dict[tuple[Node, int], int] = {}
        nodes = [n for step in self.schedule.passes for n in step.scans + step.reductions]
        for fold in (LaneFold(n, 1, upper=True, exact=True) for n in nodes):
            for k in range(len(fold.dtypes)):
                # a scan that several passes go through has one place
                self.places.setdefault((fold.node, k), len(self.places) * self.schedule.tile * 8)
        self.scratch = self.allocate(len(self.places) * self.schedule.tile * 8)
        self.combined = self.scratch
        if self.partials:
            self.scratch = self.partials.mine()
        self.transposed = {a: self.allocate(e.lanes * e.lanes * a.dtype.itemsize) for a in self.schedule.transposed}

    def allocate(self, size: int) -> Value:
        return take(self.e, size, "i8", 1)

    def enters(self, axis: Axis) -> bool:
        return axis is self.schedule.vector.axis

    def point_loops(self, axes) -> None:
        if axes and axes[0] is self.schedule.vector.axis:
            self.tiles(axes[0])
        else:
            super().point_loops(axes)

    def tiles(self, axis: Axis) -> None:
        def tile(state: list[Value]) -> list[Value]:
            self.passes()
            return state

        self.in_parts(axis, self.schedule.tile, [], [], tile)

    # ---- one pass

    def run_pass(self, step: Pass) -> dict[Node, Value]:
        e, schedule = self.e, self.schedule
        lower = folds_of(step.scans + step.reductions, lambda node: e.lanes)
        count = symbols.product(a.size for a in schedule.axes if a is not schedule.vector.axis)
        is_long = not (isinstance(count, int) and count <= BLOCK * schedule.block_rows)
        # 6 additions for each block of rows: those of float64 are compensated however few there are
        upper = [replace(f, upper=is_long or f.dtype == torch.float64, exact=True) for f in lower]
        if lower:
            self.over_vectors(lambda at: self.save(upper, self.starts(upper), self.scratch, at))
        around = [a for a in schedule.axes[self.first_axis :] if a not in (schedule.vector.axis, schedule.block)]
        self.nest(around, [], [], lambda state, types: self.blocks(step, lower, upper))
        if self.partials and step.reductions:
            barrier(e)
            self.over_vectors(partial(self.combine, [f for f in upper if f.node.kind == "reduce"]))
        for fold in upper:
            if fold.node.kind == "reduce":
                for each in fold.each:
                    e.late[each.node] = partial(self.result, fold, each)
        return {}

    def blocks(self, step: Pass, lower: list[LaneFold], upper: list[LaneFold]) -> list[Value]:
        e, axis = self.e, self.row_axis
        lo, hi = self.range(axis)
        rows = self.schedule.block_rows
        # SEVERAL TILES: what a transposed read touches in one page before it goes on to the next
        most = rows * TILES if self.schedule.transposed else rows

        def tile(end: Value, start: Value, state: list[Value]) -> list[Value]:
            end = e.index.minimum(e.index.add(start, e.i64(rows)), end)
            with self.part(axis, start, end, rows):
                self.load_transposed(step, start, end)
                self.rows(step, lower, upper, axis)
                self.store_transposed(step, start, end)
            return state

        def body(start: Value, state: list[Value]) -> list[Value]:
            end = e.index.minimum(e.index.add(start, e.i64(most)), hi)

            def across(state: list[Value], copy: int) -> list[Value]:
                if most == rows:
                    return tile(end, start, state)
                return e.loop(start, end, e.i64(rows), [], [], partial(tile, end))

            return self.vector_loop(self.column_axis, across, [], [], 1)

        e.loop(lo, hi, e.i64(most), [], [], body)
        return []

    def rows(self, step: Pass, lower: list[LaneFold], upper: list[LaneFold], axis: Axis) -> None:
        """One block of rows, for one vector of columns: `lower` and `upper` are the two levels of the same folds."""
        e = self.e
        at = e.index.sub(e.env[self.column_axis.name], self.tile_start())
        held = [self.load(fold, self.scratch, at) for fold in upper]
        state: list[Value] = []
        for fold, mine in zip(lower, held, strict=True):
            state += mine if fold.node.kind == "scan" else fold.start(self.builder(fold))
        types = [self.builder(f).type_text(t) for f in lower for t in f.dtypes]
        lo, hi = self.range(axis)

        def body(index: Value, state: list[Value]) -> list[Value]:
            e.env[axis.name] = index
            e.bound.add(axis.name)
            if self.schedule.transposed:
                for output in step.outputs:
                    prefetch_store(e, output.access)
            return self.body(step, lower, state, axis)

        state = e.loop(lo, hi, e.i64(1), state, types, body)
        result: list[Value] = []
        for fold, above, mine in zip(lower, upper, held, strict=True):
            found, state = state[: len(fold.dtypes)], state[len(fold.dtypes) :]
            result += found if fold.node.kind == "scan" else above.merge(self.builder(above), mine, found)
        self.save(upper, result, self.scratch, at)

    # ---- scratch memory: one value for each column of the tile

    def tile_start(self) -> Value:
        return self.range(self.column_axis)[0] if self.schedule.outer else self.e.i64(0)

    def over_vectors(self, body) -> None:
        """`body(offset)` for each vector of the tile, an incomplete one included."""
        e = self.e
        lo, hi = self.range(self.column_axis)
        e.loop(e.i64(0), e.index.sub(hi, lo), e.i64(e.lanes), [], [], lambda at, state: (body(at), state)[1])

    def starts(self, folds: list[LaneFold]) -> list[Value]:
        return [x for f in folds for x in f.start(self.builder(f))]

    def place(self, base: Value, fold: LaneFold, component: int, at: Value) -> Value:
        b = self.e.index
        start = b.add(b.mul(at, self.e.i64(8)), self.e.i64(self.places[fold.node, component]))
        return b.emit(f"llvm.getelementptr {base}[{start}] : (!llvm.ptr, i64) -> !llvm.ptr, i8", torch.int64)

    def load(self, fold: LaneFold, base: Value, at: Value) -> list[Value]:
        b, found = self.builder(fold), []
        for k, dtype in enumerate(fold.dtypes):
            address = self.place(base, fold, k, at)
            found.append(
                b.emit(f"llvm.load {address} {{alignment = 8 : i64}} : !llvm.ptr -> {b.type_text(dtype)}", dtype)
            )
        return found

    def save(self, folds: list[LaneFold], values: list[Value], base: Value, at: Value) -> None:
        taken = 0
        for fold in folds:
            for k, dtype in enumerate(fold.dtypes):
                address, type_ = self.place(base, fold, k, at), self.builder(fold).type_text(dtype)
                self.e.lines.append(
                    f"llvm.store {values[taken]}, {address} {{alignment = 8 : i64}} : {type_}, !llvm.ptr"
                )
                taken += 1

    def combine(self, folds: list[LaneFold], at: Value) -> None:
        """Combines all threads' accumulators of one vector, in the order of the threads."""
        e, partials = self.e, self.partials
        assert partials is not None
        types = [self.builder(f).type_text(t) for f in folds for t in f.dtypes]

        def body(thread: Value, state: list[Value]) -> list[Value]:
            base, result = partials.of(thread), []
            for fold in folds:
                mine = state[len(result) : len(result) + len(fold.dtypes)]
                result += fold.merge(self.builder(fold), mine, self.load(fold, base, at))
            return result

        state = e.loop(e.i64(0), e.env["threads"], e.i64(1), self.starts(folds), types, body)
        self.save(folds, state, self.combined, at)

    def result(self, fold: LaneFold, each: LaneFold) -> Value:
        """The result of `each`, which is one of the nodes of `fold`."""
        e = self.e
        at = e.index.sub(e.env[self.column_axis.name], self.tile_start())
        value = each.result(self.builder(fold), self.load(fold, self.combined, at))
        if e.is_wide(each.node):
            return value
        b = e.builder(value.dtype)
        vector = e.builder(value.dtype, True).type_text(value.dtype)
        return b.emit(f"vector.extract {value}[0] : {b.type_text(value.dtype)} from {vector}", value.dtype)

    def precompute(self, node: Node) -> None:
        """Only one thread computes what it writes for a column."""

    def write_outer(self) -> None:
        """Writes the outputs that have one value for each column."""
        e, outputs = self.e, self.schedule.outer_outputs
        if not outputs:
            return

        def body(state: list[Value], copy: int) -> list[Value]:
            for output in outputs:
                e.value(output.node)
            for output in outputs:
                store(e, output.access, output.node)
            return state

        self.vector_loop(self.column_axis, body, [], [], 1)

    # ---- transposed operands: full vectors only, what is left at the edge is gathered and scattered

    def load_transposed(self, step: Pass, start: Value, end: Value) -> None:
        """Reads a square tile of each transposed operand, and leaves it in memory with its columns as rows."""
        e = self.e
        for node in step.nodes:
            if node.access in self.transposed and e.mask is None and node not in e.env:
                load_transposed(e, node.access, start, end, self.transposed[node.access])
                e.saved = {**e.saved, node: self.tile_access(node.access, start)}

    def store_transposed(self, step: Pass, start: Value, end: Value) -> None:
        """Writes the square tiles of the transposed outputs that `write` left in memory."""
        e = self.e
        for output in step.outputs:
            if output.access in self.transposed and e.mask is None:
                store_transposed(e, output.access, start, end, self.transposed[output.access])

    def write(self, output: Output) -> None:
        e = self.e
        transposed = output.access in self.transposed and e.mask is None
        store(
            e,
            self.tile_access(output.access, self.range(self.row_axis)[0]) if transposed else output.access,
            output.node,
        )

    def tile_access(self, access: Access, start: Value) -> Access:
        """A square tile in memory, addressed by the index along the block, which is `start` at its first row."""
        e, size = self.e, stored_dtype(access.dtype).itemsize
        key = ("tile", access)
        if ("base", key) not in e.env:
            back = e.index.mul(start, e.i64(-e.lanes * size))
            text = f"llvm.getelementptr {self.transposed[access]}[{back}] : (!llvm.ptr, i64) -> !llvm.ptr, i8"
            e.env["base", key] = e.index.emit(text, torch.int64)
        return Access(key, access.dtype, Linear({self.row_axis.name: e.lanes}, 0), contiguous_lanes=True)

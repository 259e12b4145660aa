"""Rows of queries, keys and results between memory and scratch: turned, so that a row becomes a column, or as they are."""

import torch

from mlirc.dialects.tensor_types import TensorInfo
from mlirc.lowering.attention_tiles import VECTORS
from mlirc.lowering.kernel_emitter import Emitter
from mlirc.lowering.kernel_memory import stored_dtype
from mlirc.lowering.kernel_squares import transposed
from mlirc.lowering.vector_builder import Value, element_text


def scratch(e: Emitter, count: int, dtype: torch.dtype = torch.float32) -> Value:
    """Memory on the stack for so many elements."""
    text = f"llvm.alloca {e.i64(count)} x {element_text(dtype)} {{alignment = 64 : i64}} : (i64) -> !llvm.ptr"
    return e.index.emit(text, torch.int64)


def advance(e: Emitter, address: Value, offset: Value, dtype: torch.dtype = torch.float32) -> Value:
    element = element_text(stored_dtype(dtype))
    return e.index.emit(
        f"llvm.getelementptr {address}[{offset}] : (!llvm.ptr, i64) -> !llvm.ptr, {element}", torch.int64
    )


def load_vector(e: Emitter, address: Value, dtype: torch.dtype = torch.float32, align: int = 64) -> Value:
    b = e.builder(dtype, True)
    text = f"llvm.load {address} {{alignment = {align} : i64}} : !llvm.ptr -> {b.type_text(dtype)}"
    return b.emit(text, dtype)


def store_vector(e: Emitter, value: Value, address: Value) -> None:
    type_ = e.builder(torch.float32, True).type_text(torch.float32)
    e.lines.append(f"llvm.store {value}, {address} {{alignment = 64 : i64}} : {type_}, !llvm.ptr")


def store_scalar(e: Emitter, value: Value, address: Value) -> None:
    e.lines.append(f"llvm.store {value}, {address} {{alignment = 4 : i64}} : f32, !llvm.ptr")


def store_masked(e: Emitter, value: Value, address: Value, dtype: torch.dtype, mask: Value) -> None:
    """Lanes of float32 as neighbouring elements of `dtype`."""
    stored = stored_dtype(dtype)
    b = e.builder(stored, True)
    value = b.bitcast(e.builder(torch.float32, True).cast(value, dtype), stored)
    e.lines.append(
        f"llvm.intr.masked.store {value}, {address}, {mask} {{alignment = {stored.itemsize} : i32}} : "
        f"{b.type_text(stored)}, {b.type_text(torch.bool)} into !llvm.ptr"
    )


def place_of(e: Emitter, base: Value, info: TensorInfo, *index: Value) -> Value:
    """The address of the element at `index`; dimensions after those given count as 0."""
    offset = e.i64(0)
    for at, stride in zip(index, info.stride, strict=False):
        offset = e.index.add(offset, e.index.mul(at, e.integer(stride)))
    return advance(e, base, offset, info.dtype)


def lanes_below(e: Emitter, count: Value) -> Value:
    """A mask of the first `count` lanes."""
    return e.builder(torch.int64, True).lt(e.lane_numbers(), e.splat(count))


def load_masked(e: Emitter, address: Value, dtype: torch.dtype, mask: Value) -> Value:
    """Neighbouring elements as float32 (booleans as 0 or 1); 0 where the mask does not hold."""
    stored = stored_dtype(dtype)
    b = e.builder(stored, True)
    vector, bools = b.type_text(stored), b.type_text(torch.bool)
    loaded = b.emit(
        f"llvm.intr.masked.load {address}, {mask}, {b.constant(0, stored)} {{alignment = {stored.itemsize} : i32}} : "
        f"(!llvm.ptr, {bools}, {vector}) -> {vector}",
        stored,
    )
    return widened(e, loaded, dtype, True)


def load_scalar(e: Emitter, address: Value, dtype: torch.dtype) -> Value:
    """One element as float32."""
    stored = stored_dtype(dtype)
    element = element_text(stored)
    text = f"llvm.load {address} {{alignment = {stored.itemsize} : i64}} : !llvm.ptr -> {element}"
    return widened(e, e.builder(stored).emit(text, stored), dtype, False)


def widened(e: Emitter, loaded: Value, dtype: torch.dtype, wide: bool) -> Value:
    b = e.builder(torch.float32, wide)
    value = b.cast(loaded, torch.bool) if dtype == torch.bool else b.bitcast(loaded, dtype)
    return b.cast(value, torch.float32)


def gather(e: Emitter, address: Value, offsets: Value, dtype: torch.dtype) -> Value:
    """The elements at `offsets` (in elements) from `address`, as float32."""
    stored = stored_dtype(dtype)
    b = e.builder(stored, True)
    pointers = e.index.emit(
        f"llvm.getelementptr {address}[{offsets}] : (!llvm.ptr, vector<{e.lanes}xi64>) -> "
        f"vector<{e.lanes}x!llvm.ptr>, {element_text(stored)}",
        torch.int64,
    )
    vector, bools = b.type_text(stored), b.type_text(torch.bool)
    loaded = b.emit(
        f"llvm.intr.masked.gather {pointers}, {b.constant(True, torch.bool)}, {b.constant(0, stored)} "
        f"{{alignment = {stored.itemsize} : i32}} : (vector<{e.lanes}x!llvm.ptr>, {bools}, {vector}) -> {vector}",
        stored,
    )
    return widened(e, loaded, dtype, True)


def row_offsets(e: Emitter, first: Value, half: int, end: Value, stride: Value) -> Value:
    """Where the rows of a half of the lanes start; those from `end` on are the last row again."""
    b = e.builder(torch.int64, True)
    row = b.add(e.lane_numbers(), e.splat(e.index.add(first, e.i64(half * e.lanes))))
    return b.mul(b.minimum(row, e.splat(e.index.sub(end, e.i64(1)))), e.splat(stride))


def load_columns(
    e: Emitter, base: Value, rows: TensorInfo, first: Value, end: Value, panel: Value, scale: float
) -> None:
    """panel[d, i] = rows[first + i, d] * scale. Rows from `end` on are the last one again: what comes of them is not kept."""
    head, width = rows.shape[3], VECTORS * e.lanes
    assert isinstance(head, int)
    wide, b = e.builder(torch.float32, True), e.index
    along, within = e.integer(rows.stride[2]), e.integer(rows.stride[3])
    if rows.stride[3] != 1:
        for half in range(VECTORS):
            offsets = row_offsets(e, first, half, end, along)

            def element(d: Value, state: list[Value], half: int = half, offsets: Value = offsets) -> list[Value]:
                here = advance(e, base, b.mul(d, within), rows.dtype)
                value = wide.mul(gather(e, here, offsets, rows.dtype), wide.constant(scale))
                store_vector(e, value, advance(e, panel, b.add(b.mul(d, e.i64(width)), e.i64(half * e.lanes))))
                return state

            e.loop(e.i64(0), e.i64(head), e.i64(1), [], [], element)
        return
    last = b.sub(end, e.i64(1))

    def square(d: Value, state: list[Value]) -> list[Value]:
        mask = lanes_below(e, b.sub(e.i64(head), d))
        for half in range(VECTORS):
            read = []
            for lane in range(e.lanes):
                row = b.minimum(b.add(first, e.i64(half * e.lanes + lane)), last)
                address = advance(e, base, b.add(b.mul(row, along), d), rows.dtype)
                read.append(load_masked(e, address, rows.dtype, mask))
            for k, column in enumerate(transposed(e, read)):
                place = b.add(b.mul(b.add(d, e.i64(k)), e.i64(width)), e.i64(half * e.lanes))
                store_vector(e, wide.mul(column, wide.constant(scale)), advance(e, panel, place))
        return state

    e.loop(e.i64(0), e.i64(head), e.i64(e.lanes), [], [], square)


def store_columns(
    e: Emitter, base: Value, rows: TensorInfo, first: Value, end: Value, sums: Value, factors: list[Value]
) -> None:
    """rows[first + i, d] = sums[d, i] * factor[i] for the rows before `end`, whose elements lie side by side."""
    head, width = rows.shape[3], VECTORS * e.lanes
    assert isinstance(head, int)
    wide, b = e.builder(torch.float32, True), e.index
    along = e.integer(rows.stride[2])

    def square(d: Value, state: list[Value]) -> list[Value]:
        for half, factor in enumerate(factors):
            columns = []
            for k in range(e.lanes):
                place = b.add(b.mul(b.add(d, e.i64(k)), e.i64(width)), e.i64(half * e.lanes))
                columns.append(wide.mul(load_vector(e, advance(e, sums, place)), factor))
            for lane, value in enumerate(transposed(e, columns)):
                row = b.add(first, e.i64(half * e.lanes + lane))
                left = b.select(b.lt(row, end), b.sub(e.i64(head), d), e.i64(0))
                address = advance(e, base, b.add(b.mul(row, along), d), rows.dtype)
                store_masked(e, value, address, rows.dtype, lanes_below(e, left))
        return state

    e.loop(e.i64(0), e.i64(head), e.i64(e.lanes), [], [], square)


def stage_rows(e: Emitter, base: Value, rows: TensorInfo, count: Value, copy: Value, pitch: int) -> None:
    """copy[i, d] = rows[i, d] as float32, in rows of `pitch` elements."""
    head, b = rows.shape[3], e.index
    assert isinstance(head, int)
    along, within = e.integer(rows.stride[2]), e.integer(rows.stride[3])
    side_by_side = rows.stride[3] == 1

    def row(i: Value, state: list[Value]) -> list[Value]:
        source = advance(e, base, b.mul(i, along), rows.dtype)
        target = advance(e, copy, b.mul(i, e.i64(pitch)))

        def part(d: Value, state: list[Value]) -> list[Value]:
            here = advance(e, source, d if side_by_side else b.mul(d, within), rows.dtype)
            if side_by_side:
                value = load_masked(e, here, rows.dtype, lanes_below(e, b.sub(e.i64(head), d)))
                store_vector(e, value, advance(e, target, d))
            else:
                value = load_scalar(e, here, rows.dtype)
                store_scalar(e, value, advance(e, target, d))
            return state

        e.loop(e.i64(0), e.i64(head), e.i64(e.lanes if side_by_side else 1), [], [], part)
        return state

    e.loop(e.i64(0), count, e.i64(1), [], [], row)

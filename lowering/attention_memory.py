"""Rows of queries, keys and results between memory and scratch; and scratch turned, so that rows become columns."""

from collections.abc import Callable

import torch

from mlirc.dialects.tensor_types import TensorInfo
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


def load_vector(e: Emitter, address: Value, dtype: torch.dtype = torch.float32, align: int = 0) -> Value:
    """A vector in scratch, which lies at a multiple of its size; or at one of `align`."""
    b = e.builder(dtype, True)
    align = align or dtype.itemsize * e.lanes
    text = f"llvm.load {address} {{alignment = {align} : i64}} : !llvm.ptr -> {b.type_text(dtype)}"
    return b.emit(text, dtype)


def store_vector(e: Emitter, value: Value, address: Value) -> None:
    type_ = e.builder(torch.float32, True).type_text(torch.float32)
    e.lines.append(f"llvm.store {value}, {address} {{alignment = {4 * e.lanes} : i64}} : {type_}, !llvm.ptr")


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


def row_offsets(e: Emitter, first: Value, end: Value, stride: Value) -> Value:
    """Where the row of each lane starts, from row `first` on; those from `end` on are the last row again."""
    b = e.builder(torch.int64, True)
    row = b.add(e.lane_numbers(), e.splat(first))
    return b.mul(b.minimum(row, e.splat(e.index.sub(end, e.i64(1)))), e.splat(stride))


def turn(e: Emitter, source: Value, source_pitch: int, target: Value, target_pitch: int) -> None:
    """target[k, i] = source[i, k] for as many rows and columns as a vector has lanes, in scratch. The code stands in a
    function of its own: LLVM takes long to choose instructions for the shuffles of a square."""
    name = "@KERNEL_turn"
    if name not in e.text.functions:
        inside = Emitter(e.vector, e.text.target)
        places = [[Value(f"%{side}", torch.int64)] for side in ("source", "target")]
        for side, found in zip(("source", "target"), places, strict=True):
            for _ in range(e.lanes - 1):
                found.append(advance(inside, found[-1], Value(f"%{side}_pitch", torch.int64)))
        columns = transposed(inside, [load_vector(inside, place) for place in places[0]])
        for value, place in zip(columns, places[1], strict=True):
            store_vector(inside, value, place)
        head = f"llvm.func internal {name}(%source: !llvm.ptr, %source_pitch: i64, %target: !llvm.ptr, %target_pitch: i64) {{"
        e.text.functions[name] = "\n".join([head, *inside.text.preamble, *inside.lines, "llvm.return", "}"])
    pitches = e.i64(source_pitch), e.i64(target_pitch)
    e.lines.append(
        f"llvm.call {name}({source}, {pitches[0]}, {target}, {pitches[1]}) : (!llvm.ptr, i64, !llvm.ptr, i64) -> ()"
    )


def turn_all(e: Emitter, source: Value, source_pitch: int, rows: int, columns: int, target: Value, pitch: int) -> None:
    """target[k, i] = source[i, k], in whole squares."""
    b = e.index

    def line(i: Value, state: list[Value]) -> list[Value]:
        def square(k: Value, state: list[Value]) -> list[Value]:
            here = advance(e, source, b.add(b.mul(i, e.i64(source_pitch)), k))
            turn(e, here, source_pitch, advance(e, target, b.add(b.mul(k, e.i64(pitch)), i)), pitch)
            return state

        e.loop(e.i64(0), e.i64(columns), e.i64(e.lanes), [], [], square)
        return state

    e.loop(e.i64(0), e.i64(rows), e.i64(e.lanes), [], [], line)


def along_row(
    e: Emitter, size: int, carried: list[Value], body: Callable[[Value, Value | None, list[Value]], list[Value]]
) -> list[Value]:
    """`body(d, mask, carried)` for each vector of a row of `size` elements; without a mask where all lanes are inside."""
    types, whole = [e.builder(x.dtype, True).type_text(x.dtype) for x in carried], size // e.lanes * e.lanes
    if whole:
        carried = e.loop(e.i64(0), e.i64(whole), e.i64(e.lanes), carried, types, lambda d, state: body(d, None, state))
    return body(e.i64(whole), lanes_below(e, e.i64(size - whole)), carried) if size > whole else carried


def load_part(e: Emitter, address: Value, dtype: torch.dtype, mask: Value | None) -> Value:
    """Neighbouring elements as float32, at any address."""
    if mask is not None:
        return load_masked(e, address, dtype, mask)
    stored = stored_dtype(dtype)
    return widened(e, load_vector(e, address, stored, stored.itemsize), dtype, True)


def store_part(e: Emitter, value: Value, address: Value, dtype: torch.dtype, mask: Value | None) -> None:
    if mask is not None:
        store_masked(e, value, address, dtype, mask)
        return
    stored = stored_dtype(dtype)
    b = e.builder(stored, True)
    value = b.bitcast(e.builder(torch.float32, True).cast(value, dtype), stored)
    e.lines.append(
        f"llvm.store {value}, {address} {{alignment = {stored.itemsize} : i64}} : {b.type_text(stored)}, !llvm.ptr"
    )


def stage_rows(
    e: Emitter, base: Value, rows: TensorInfo, count: Value, copy: Value, pitch: int, scale: float = 1.0
) -> None:
    """copy[i, d] = rows[i, d] * scale as float32, in rows of `pitch` elements."""
    head, b = rows.shape[3], e.index
    assert isinstance(head, int)
    along, within = e.integer(rows.stride[2]), e.integer(rows.stride[3])

    def scaled(value: Value, wide: bool) -> Value:
        f = e.builder(torch.float32, wide)
        return value if scale == 1.0 else f.mul(value, f.constant(scale))

    def row(i: Value, state: list[Value]) -> list[Value]:
        source = advance(e, base, b.mul(i, along), rows.dtype)
        target = advance(e, copy, b.mul(i, e.i64(pitch)))

        def part(d: Value, mask: Value | None, state: list[Value]) -> list[Value]:
            value = load_part(e, advance(e, source, d, rows.dtype), rows.dtype, mask)
            store_vector(e, scaled(value, True), advance(e, target, d))
            return state

        def one(d: Value, state: list[Value]) -> list[Value]:
            value = load_scalar(e, advance(e, source, b.mul(d, within), rows.dtype), rows.dtype)
            store_scalar(e, scaled(value, False), advance(e, target, d))
            return state

        if rows.stride[3] == 1:
            along_row(e, head, [], part)
        else:
            e.loop(e.i64(0), e.i64(head), e.i64(1), [], [], one)
        return state

    e.loop(e.i64(0), count, e.i64(1), [], [], row)


def store_rows(e: Emitter, base: Value, rows: TensorInfo, count: Value, source: Value, pitch: int) -> None:
    """rows[i, d] = source[i, d] for the first `count` rows, whose elements lie side by side."""
    head, b = rows.shape[3], e.index
    assert isinstance(head, int)
    along = e.integer(rows.stride[2])

    def row(i: Value, state: list[Value]) -> list[Value]:
        target = advance(e, base, b.mul(i, along), rows.dtype)
        start = advance(e, source, b.mul(i, e.i64(pitch)))

        def part(d: Value, mask: Value | None, state: list[Value]) -> list[Value]:
            store_part(e, load_vector(e, advance(e, start, d)), advance(e, target, d, rows.dtype), rows.dtype, mask)
            return state

        along_row(e, head, [], part)
        return state

    e.loop(e.i64(0), count, e.i64(1), [], [], row)

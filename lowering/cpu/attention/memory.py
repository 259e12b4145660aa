"""Moves rows of queries, keys and results between memory and scratch."""

import math
from collections.abc import Callable

import torch

from mlirc.dialects.core.tensor_types import TensorInfo
from mlirc.lowering.cpu.emitter.addresses import (
    PTR,
    advance,
    call,
    lanes_below,
    load_floats,
    load_scalar,
    load_scratch,
    store_floats,
    store_scalar,
    store_scratch,
)
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.math.builder import Value, element_text

UNROLLED = 8  # vectors of a row


def place_of(e: VectorEmitter, base: Value, info: TensorInfo, *index: Value) -> Value:
    """The address of the element at `index`; dimensions after those given count as 0."""
    offset = e.i64(0)
    for at, stride in zip(index, info.stride, strict=False):
        offset = e.index.add(offset, e.index.mul(at, e.integer(stride)))
    return advance(e, base, offset, info.dtype)


def row_offsets(e: VectorEmitter, first: Value, end: Value, stride: Value) -> Value:
    """Where the row of each lane starts, from row `first` on; those from `end` on are the last row again."""
    b = e.builder(torch.int64, True)
    row = b.add(e.lane_numbers(), e.splat(first))
    return b.mul(b.minimum(row, e.splat(e.index.sub(end, e.i64(1)))), e.splat(stride))


def along_row(
    e: VectorEmitter, size: int, carried: list[Value], body: Callable[[Value, Value | None, list[Value]], list[Value]]
) -> list[Value]:
    """`body(d, mask, carried)` for each vector of a row of `size` elements; without a mask where all lanes are inside."""
    types, whole = [e.builder(x.dtype, True).type_text(x.dtype) for x in carried], size // e.lanes * e.lanes
    step = e.lanes * math.gcd(size // e.lanes, UNROLLED)

    def parts(d: Value, state: list[Value]) -> list[Value]:
        for k in range(0, step, e.lanes):
            state = body(e.index.add(d, e.i64(k)), None, state)
        return state

    if whole:
        carried = e.loop(e.i64(0), e.i64(whole), e.i64(step), carried, types, parts)
    return body(e.i64(whole), lanes_below(e, e.i64(size - whole)), carried) if size > whole else carried


def stage_rows(
    e: VectorEmitter, base: Value, rows: TensorInfo, count: Value, copy: Value, pitch: int, scale: float = 1.0
) -> None:
    """copy[i, d] = rows[i, d] * scale as float32, in rows of `pitch` elements."""
    head, dtype, side_by_side = rows.shape[3], rows.dtype, rows.stride[3] == 1
    assert isinstance(head, int)

    def write(e: VectorEmitter, p: list[Value]) -> None:
        base, along, within, count, copy, pitch, scale = p
        b = e.index

        with e.each(0, count) as i:
            source, target = advance(e, base, b.mul(i, along), dtype), advance(e, copy, b.mul(i, pitch))

            def part(d: Value, mask: Value | None, state: list[Value]) -> list[Value]:
                value = load_floats(e, advance(e, source, d, dtype), dtype, mask)
                store_scratch(e, e.builder(torch.float32, True).mul(value, e.splat(scale)), advance(e, target, d))
                return state

            def one(d: Value, state: list[Value]) -> list[Value]:
                value = load_scalar(e, advance(e, source, b.mul(d, within), dtype), dtype)
                store_scalar(e, e.builder(torch.float32).mul(value, scale), advance(e, target, d))
                return state

            if side_by_side:
                along_row(e, head, [], part)
            else:
                e.loop(e.i64(0), e.i64(head), e.i64(1), [], [], one)

    name = f"stage_{element_text(dtype)}_{head}{'' if side_by_side else '_scattered'}"
    strides = [(e.integer(rows.stride[k]), "i64") for k in (2, 3)]
    factor = e.builder(torch.float32).constant(scale)
    ends = [(count, "i64"), (copy, PTR), (e.i64(pitch), "i64"), (factor, "f32")]
    call(e, name, [(base, PTR), *strides, *ends], write)


def store_rows(e: VectorEmitter, base: Value, rows: TensorInfo, count: Value, source: Value, pitch: int) -> None:
    """rows[i, d] = source[i, d] for the first `count` rows, whose elements lie side by side."""
    head, dtype = rows.shape[3], rows.dtype
    assert isinstance(head, int)

    def write(e: VectorEmitter, p: list[Value]) -> None:
        base, along, count, source, pitch = p
        b = e.index

        with e.each(0, count) as i:
            target, start = advance(e, base, b.mul(i, along), dtype), advance(e, source, b.mul(i, pitch))

            def part(d: Value, mask: Value | None, state: list[Value]) -> list[Value]:
                store_floats(e, load_scratch(e, advance(e, start, d)), advance(e, target, d, dtype), dtype, mask)
                return state

            along_row(e, head, [], part)

    sizes = [(e.integer(rows.stride[2]), "i64"), (count, "i64")]
    call(e, f"store_{element_text(dtype)}_{head}", [(base, PTR), *sizes, (source, PTR), (e.i64(pitch), "i64")], write)

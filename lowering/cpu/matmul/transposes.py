"""Transposes matrices for matmul, attention and convolution, in square tiles that are transposed in registers.

transpose_tile, transpose_panel            an operand in memory, so that columns along k become panels; strides in bytes
transpose_in_scratch, transpose_all        in scratch; pitches in elements

These are functions of their own, called by the kernel: LLVM needs long for their shuffles, so they are compiled once.
"""

import torch

from mlirc.dialects.core.symbols import Int
from mlirc.lowering.cpu.emitter.addresses import (
    BF16,
    BYTE,
    CACHE_LINE,
    PTR,
    SECOND_LEVEL,
    advance,
    call,
    lanes_below,
    load_floats,
    load_scratch,
    prefetch,
    store_floats,
    store_scratch,
)
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.emitter.register_transpose import transposed
from mlirc.lowering.cpu.math.builder import Value

PACKED_AHEAD = 256  # prefetch distance along a column while it is packed, in bytes


def transpose_tile(
    e: VectorEmitter,
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

    fetch: prefetches, into the L2 cache, the same elements of the rows after those of the tile.
    """

    def write(e: VectorEmitter, p: list[Value]) -> None:
        source, apart, last, count, to, step = p
        b, inside, rows = e.index, lanes_below(e, count), []
        beyond = b.mul(apart, e.i64(e.lanes))
        for i in range(e.lanes):
            place = advance(e, source, b.mul(b.minimum(e.i64(i), last), apart), BYTE)
            rows.append(load_floats(e, place, dtype, inside))
            if fetch:
                prefetch(e, advance(e, place, beyond, BYTE), SECOND_LEVEL)
        for j, values in enumerate(transposed(e, rows)):
            store_floats(e, values, advance(e, to, b.mul(e.i64(j), step), BYTE))

    numbers = [(x, "i64") for x in (apart, last, count)]
    name = f"transpose_{'bf16' if dtype == BF16 else 'f32'}{'_fetching' * fetch}"
    call(e, name, [(source, PTR), *numbers, (to, PTR), (e.i64(step), "i64")], write)


def transpose_panel(
    e: VectorEmitter, source: Value, apart: Value, steps: Value, to: Value, width: int, then: Value
) -> None:
    """to[k, i] = source[i, k], of float32, for i below `width` and k below `steps`, an even number of vectors.

    A cache line of each column is read at once, and the panel is written from its beginning to its end. Meanwhile the
    columns at `then`, which are packed next, are prefetched in the order of memory.
    """

    def write(e: VectorEmitter, p: list[Value]) -> None:
        source, apart, steps, to, then = p
        b, lanes = e.index, e.lanes
        length = b.mul(steps, e.i64(4))

        def transpose_lines(here: Value, there: Value) -> None:
            rows = [here]
            for _ in range(lanes - 1):
                rows.append(advance(e, rows[-1], apart, BYTE))
            for row in rows:
                prefetch(e, advance(e, row, PACKED_AHEAD, BYTE))
            for first in (0, lanes):
                found = [load_floats(e, advance(e, row, 4 * first, BYTE)) for row in rows]
                for j, values in enumerate(transposed(e, found)):
                    store_floats(e, values, advance(e, there, 4 * (first + j) * width, BYTE))

        def fetch_next(column: Value, offset: Value) -> list[Value]:
            """As many lines as a transpose reads."""
            place = advance(e, advance(e, then, column, BYTE), offset, BYTE)
            for line in range(0, 8 * lanes * lanes, CACHE_LINE):
                prefetch(e, advance(e, place, line, BYTE), SECOND_LEVEL)
            offset = b.add(offset, e.i64(8 * lanes * lanes))
            inside = b.gt(length, offset)
            return [b.select(inside, column, b.add(column, apart)), b.select(inside, offset, e.i64(0))]

        def some_steps(k: Value, state: list[Value]) -> list[Value]:
            here = advance(e, source, b.mul(k, e.i64(4)), BYTE)
            there = advance(e, to, b.mul(k, e.i64(4 * width)), BYTE)

            def columns(i: Value, state: list[Value]) -> list[Value]:
                transpose_lines(advance(e, here, b.mul(i, apart), BYTE), advance(e, there, b.mul(i, e.i64(4)), BYTE))
                return fetch_next(*state)

            return e.loop(e.i64(0), e.i64(width), e.i64(lanes), state, ["i64", "i64"], columns)

        e.loop(e.i64(0), steps, e.i64(2 * lanes), [e.i64(0), e.i64(0)], ["i64", "i64"], some_steps)

    arguments = [(source, PTR), (apart, "i64"), (steps, "i64"), (to, PTR), (then, PTR)]
    call(e, f"transpose_panel{width}", arguments, write)


# ---- scratch


def transpose_in_scratch(
    e: VectorEmitter, source: Value, source_pitch: Value, target: Value, target_pitch: Value
) -> None:
    """target[k, i] = source[i, k], of float32 in scratch, for as many rows and columns as a vector has lanes. Pitches are in elements."""

    def write(e: VectorEmitter, p: list[Value]) -> None:
        places = [[p[0]], [p[2]]]
        for found, pitch in zip(places, (p[1], p[3]), strict=True):
            for _ in range(e.lanes - 1):
                found.append(advance(e, found[-1], pitch))
        columns = transposed(e, [load_scratch(e, place) for place in places[0]])
        for value, place in zip(columns, places[1], strict=True):
            store_scratch(e, value, place)

    call(e, "transpose_in_scratch", [(source, PTR), (source_pitch, "i64"), (target, PTR), (target_pitch, "i64")], write)


def transpose_all(
    e: VectorEmitter, source: Value, source_pitch: Int, rows: Int, columns: Int, target: Value, pitch: Int
) -> None:
    """target[k, i] = source[i, k], of float32 in scratch, in whole square tiles."""

    def write(e: VectorEmitter, p: list[Value]) -> None:
        source, source_pitch, rows, columns, target, pitch = p
        b = e.index

        with e.each(0, rows, e.lanes) as i, e.each(0, columns, e.lanes) as k:
            here, there = (b.add(b.mul(x, y), z) for x, y, z in ((i, source_pitch, k), (k, pitch, i)))
            transpose_in_scratch(e, advance(e, source, here), source_pitch, advance(e, target, there), pitch)

    sizes = [(e.integer(n), "i64") for n in (source_pitch, rows, columns)]
    call(e, "transpose_all", [(source, PTR), *sizes, (target, PTR), (e.integer(pitch), "i64")], write)

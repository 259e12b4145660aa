"""Describes the weight gradient of a depthwise convolution: the operands of the call, constants of its code, and fields passed in each
call.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import TensorInfo, info_of
from mlirc.lowering.cpu.convolution.call import SpatialAxis, numbers
from mlirc.lowering.cpu.convolution.choice import has_depthwise_room
from mlirc.lowering.cpu.convolution.plan import Slots, WindowPlan
from mlirc.lowering.layout.channels_last import channels_last
from mlirc.lowering.module.rules import expect
from mlirc.lowering.target import CpuTarget

MOST_TAPS = 4  # of a tile
TILE_WINDOWS = 64  # what a tile reads stays in the first-level cache; and a sum of so many is as exact as eager's
PACKED_BYTES = 256 << 10  # of a block's images
CHUNK_BYTES = 256  # of a pixel, that are read at a time
SUM_BYTES = 96 << 10
AGAIN = 3  # times the height of a window: less high blocks pack many rows again


@dataclass(frozen=True)
class Depthwise:
    """sums[part, tap, c] of x[n, c, element of the window] * dy[n, c, window]; x [N, C, H, W] and dy [N, C, P, Q] channels last,
    sums [parts, KH, KW, C] contiguous: added up over the parts, the gradient."""

    x: TensorInfo
    dy: TensorInfo
    sums: TensorInfo
    rows: SpatialAxis
    columns: SpatialAxis

    @property
    def channels(self) -> int:
        return self.x.shape[1]  # type: ignore[return-value]  # refusal() sees to it


@dataclass(frozen=True)
class DepthwisePlan:
    """All that the code depends on. What may differ from call to call is a symbol, the name of one of the `slots` of a call.

    vectors         of channels that are worked on at a time, which is a block of channels
    chunk           blocks of channels whose sums a thread has at a time; `chunks`: of all channels
    block_rows      of windows of an image, that are packed at a time; `row_blocks`: of an image
    image_rows      of an image that they reach, at most
    tile_rows       of windows that a tile goes over
    groups          of taps of a column, some of `group_taps` + 1, `wide_groups`, and then of `group_taps`
    work            scalar operations, in vectors of eight
    """

    slots: tuple[str, ...]
    vectors: int
    lanes: int
    rows: WindowPlan
    columns: WindowPlan
    images: Int
    channels: Int
    parts: Int
    chunk: Int
    chunks: Int
    block_rows: Int
    row_blocks: Int
    image_rows: Int
    tile_rows: Int
    groups: Int
    wide_groups: Int
    group_taps: Int
    work: Int

    @property
    def taps(self) -> Int:
        return self.rows.taps * self.columns.taps

    @property
    def width(self) -> int:
        """Channels of a block."""
        return self.vectors * self.lanes


def read_depthwise(op: Any) -> Depthwise:
    """Of a `depthwise_weight_gradient`, or of a call of one. Images of one row are read as if of one column: then the taps
    are those of a column."""
    x, dy, sums = (info_of(v) for v in (*op.operands, *op.results))
    settings = (numbers(op, name) for name in ("stride", "padding", "dilation"))
    sizes = zip(x.shape[2:], dy.shape[2:], numbers(op, "window"), *settings, strict=True)
    rows, columns = (SpatialAxis(*given) for given in sizes)  # type: ignore[arg-type]  # refusal() sees to it
    if rows.size == rows.count == rows.taps == 1:
        rows, columns = columns, rows
    return Depthwise(x, dy, sums, rows, columns)


def depthwise_refusal(c: Depthwise) -> str:
    """Why our kernel does not cover it, or ""."""
    values = c.x, c.dy, c.sums
    if {x.dtype for x in values} != {torch.float32}:
        return "FLOAT32"
    if {x.device for x in values} != {"cpu"}:
        return "CPU"
    if not all(isinstance(n, int) and n > 0 for n in (*c.x.shape[1:], *c.dy.shape[1:], *c.sums.shape)):
        return "STATIC IMAGES"
    if any(image.stride != channels_last(image).stride for image in (c.x, c.dy)):
        return "CHANNELS LAST"
    sizes = (c.x.shape[2:], c.dy.shape[2:], c.sums.shape[1:3], (c.rows.dilation, c.columns.dilation))
    if not has_depthwise_room(*sizes):  # type: ignore[arg-type]
        return "ROOM"
    return "" if c.sums.is_contiguous else "CONTIGUOUS SUMS"


def depthwise_plan(c: Depthwise, target: CpuTarget) -> tuple[DepthwisePlan, Sequence[str]]:
    """The plan, and the values of the slots of its call: numbers, or expressions in the graph's symbols."""
    slots, lanes, rows, columns = Slots(), target.vector_bytes // 4, c.rows, c.columns
    vectors = 4 if target.arch == "aarch64" else 2
    width, taps = vectors * lanes, rows.taps * columns.taps
    blocks = -(-c.channels // width)
    reach = min(rows.size, (rows.taps - 1) * rows.dilation + 1)
    pixels = PACKED_BYTES // (
        width * 4
    )  # a block's rows of x and of dy; the first one needs the whole height of a window
    few = min(rows.size, AGAIN * reach) * columns.size + columns.count
    most = max(1, min(CHUNK_BYTES // (width * 4), SUM_BYTES // (taps * width * 4), pixels // few))
    chunks = -(-blocks // most)
    room = pixels // -(-blocks // chunks) - columns.count - reach * columns.size
    block_rows = max(1, min(rows.count, 1 + room // (columns.count + rows.stride * columns.size)))
    row_blocks = -(-rows.count // block_rows)
    block_rows = -(-rows.count // row_blocks)
    groups = -(-rows.taps // MOST_TAPS)
    products = symbols.product([c.x.shape[0], rows.count, columns.count, c.channels, taps])
    made = DepthwisePlan(
        vectors=vectors,
        lanes=lanes,
        rows=slots.windows("rows", rows, known=False),
        columns=slots.windows("columns", columns, known=False),
        images=slots("images", c.x.shape[0]),
        channels=slots("channels", c.channels),
        parts=slots("parts", c.sums.shape[0]),
        chunk=slots("chunk", -(-blocks // chunks)),
        chunks=slots("chunks", chunks),
        block_rows=slots("block_rows", block_rows),
        row_blocks=slots("row_blocks", row_blocks),
        image_rows=slots("image_rows", min(rows.size, (block_rows - 1) * rows.stride + reach)),
        tile_rows=slots("tile_rows", max(1, TILE_WINDOWS // columns.count)),
        groups=slots("groups", groups),
        wide_groups=slots("wide_groups", rows.taps % groups),
        group_taps=slots("group_taps", rows.taps // groups),
        work=slots("work", symbols.floordiv(products, 8)),
        slots=tuple(slots.values),  # all of them: arguments are evaluated in order
    )
    return made, list(map(str, slots.values.values()))


def verify_depthwise(op: Any) -> None:
    """Raises StageError where operands, results and attributes do not belong together."""
    c = read_depthwise(op)
    window = numbers(op, "window")
    expect(c.x.shape[:2] == c.dy.shape[:2], op, f"images and channels {c.dy.shape[:2]}", f"{c.x.shape[:2]}, as x has")
    expect(c.sums.shape[1:] == (*window, c.x.shape[1]), op, f"sums {c.sums.shape}", "[parts, KH, KW, C]")
    expect(attribute_value(op.attributes["window"]).count(",") == 1, op, f"a window {window}", "two numbers")
    for axis in (c.rows, c.columns):
        expect(min(axis.stride, axis.dilation) > 0, op, "a stride or dilation below 1", "1 or more")
        if isinstance(axis.size, int):
            wanted = (axis.size + 2 * axis.padding - axis.dilation * (axis.taps - 1) - 1) // axis.stride + 1
            expect(axis.count == wanted, op, f"{axis.count} windows", f"there are {wanted}")

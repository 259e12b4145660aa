"""Plans the weight gradient of a depthwise convolution: reads and checks the call, and chooses its blocks.

What a plan has as a number is a constant of the code. What it has as a symbol is passed in a slot of each call, so that
layers of a net share code. depthwise_weight_gradient.py writes the loops.
"""

from collections.abc import Sequence
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import TensorInfo, info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.cpu.convolution.call import SpatialAxis, numbers
from mlirc.lowering.cpu.convolution.choice import has_depthwise_room
from mlirc.lowering.cpu.convolution.plan import Slots, WindowPlan
from mlirc.lowering.layout.channels_last import channels_last
from mlirc.lowering.module.rules import expect
from mlirc.lowering.target import CpuTarget

MOST_TAPS = 4  # taps of a tile: their sums are in registers
TILE_WINDOWS = 64  # windows of a tile: its operands stay in the L1 cache, and a sum of 64 is as accurate as eager's
PACKED_BYTES = 256 << 10  # of the rows of x and dy that are packed for a block
CHUNK_BYTES = 256  # of a pixel's channels that are packed together
SUM_BYTES = 96 << 10  # of a chunk's sums
AGAIN = 3  # a block's least height, in heights of a window: neighbouring blocks both pack the rows where they overlap


@dataclass(frozen=True)
class Depthwise:
    """sums[part, i, j, c] = sum of x[n, c, p * stride + i * dilation - padding, ...] * dy[n, c, p, q] over the part's n, p and q.

    x       float32 [N, C, H, W], channels last
    dy      float32 [N, C, P, Q], channels last
    sums    float32 [parts, KH, KW, C], contiguous; their sum over the parts is the gradient
    """

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

    A window is an element of dy; a row of windows is a row of dy. A block of channels has `vectors` vectors of `lanes`.

    chunk           blocks of channels that a work item sums; `chunks` of them are all channels
    block_rows      rows of windows that are packed at a time; an image has `row_blocks` such blocks
    image_rows      the most rows of x that a block of windows reads
    tile_rows       rows of windows that a tile sums in registers
    groups          groups into which the taps of a column of the filter are split: first `wide_groups` groups of
                    `group_taps` + 1 taps, then groups of `group_taps`
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
        """Channels of a block: vectors * lanes."""
        return self.vectors * self.lanes


def read_depthwise(op: Any) -> Depthwise:
    """Reads a `depthwise_weight_gradient` op, or a call of one. Images of one row are taken as images of one column, because
    tiles go over the taps of a column."""
    x, dy, sums = (info_of(v) for v in (*op.operands, *op.results))
    settings = (numbers(op, name) for name in ("stride", "padding", "dilation"))
    sizes = zip(x.shape[2:], dy.shape[2:], numbers(op, "window"), *settings, strict=True)
    rows, columns = (SpatialAxis(*given) for given in sizes)  # type: ignore[arg-type]  # refusal() sees to it
    if rows.size == rows.count == rows.taps == 1:
        rows, columns = columns, rows
    return Depthwise(x, dy, sums, rows, columns)


def depthwise_refusal(c: Depthwise) -> str:
    """The rule by which no kernel is generated for it, or ""."""
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

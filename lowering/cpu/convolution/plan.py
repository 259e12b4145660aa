"""Splits a convolution into constants of its code and fields passed in each call, so that layers of a net share code.

A kernel for one shape takes LLVM 50 to 120 ms, and a net has some fifteen. Sizes given as slots cost index arithmetic outside
of the tiles alone.
"""

from collections.abc import Sequence

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.cpu.convolution.call import ConvolutionProblem, SpatialAxis, results_of_tile
from mlirc.lowering.cpu.matmul.tile import registers
from mlirc.lowering.target import CpuTarget

WINDOWS = 200  # windows of a block, about: what a tile of filters reads and writes of a block stays in the L1 cache
PANEL_BYTES = 480 << 10  # of the panels of weights that a thread packs at a time
STEPS = 192  # products of a sum that a tile adds at a time: that part of a panel stays in the L1 cache
SMALL_WEIGHTS = 600 << 10  # bytes of weights up to which each thread packs all of them, and threads split the windows
TILES_AT_ONCE = 4  # tiles of filters that are computed from a block of x while it is in the cache (weight gradient)
# Winograd: bytes of a block's transformed tiles, of transformed weights kept from block to block, and of open sums; and the
# channels that are transformed at a time, the first that fits
INPUT_BYTES, KEPT_BYTES, OPEN_BYTES = 352 << 10, 448 << 10, 640 << 10
CHANNELS = 64, 32, 16
SUM_BYTES = 160 << 10  # of the sums of TILES_AT_ONCE tiles of filters and a group of channels (weight gradient)


@dataclass(frozen=True)
class WindowPlan:
    """One spatial axis, as SpatialAxis of convolution/call.py. Taps and stride are symbols where the code loops over them."""

    size: Int
    count: Int
    taps: Int
    stride: Int
    padding: Int
    dilation: int
    spread: int


@dataclass(frozen=True)
class ConvolutionPlan:
    """All that the code of a convolution depends on (Convolution has kind, after, adds, rows and columns). What may differ from
    call to call is a symbol, the name of one of the `slots` of a call.

    A tile computes some filters (along the lanes) for some windows. A window is an element of the convolution's result.

    tile_rows         windows of a tile (weight gradient: channels)
    widths            filters are cut into runs of equal tiles; the width of a run's tiles, in vectors
    tiles             the number of tiles in each run
    ragged            whether the last vector of filters is not full
    block_images      a block of windows has `block_rows` rows of each of `block_images` images
    image_blocks      number of blocks along the images; `row_blocks`: along the rows of an image
    tiles_at_once     tiles of filters that a thread has packed panels of at a time
    chunk             channels of one pass over a panel (forward)
    shares_windows    1 where threads split the blocks of windows before the tiles of filters, 0 the other way round
    items             the most pairs of a tile and a block: of so many threads each has one
    groups            groups of tiles of filters (weight gradient); a work item is one of them and one group of channels
    group             tiles of channels in a group, whose sums take `sum_rows` rows
    work              scalar operations, in vectors of eight

    Winograd's algorithm (convolution/winograd.py), where `results` is given:
    results           rows and columns of results of a tile, which are also `tile_down` and `tile_along`
    block_tiles       the most tiles of a block; a row of an image has `tile_columns`
    kept_panels       panels whose transformed weights are kept from block to block (keeps: 1), or 1 (keeps: 0)
    open_panels       panels that are summed at a time, over parts of the channels (parts: 1), or 1 (parts: 0)
    ragged_channels   whether the channels are no multiple of a vector
    """

    kind: str
    after: tuple[str, ...]
    adds: bool
    slots: tuple[str, ...]
    rows: WindowPlan
    columns: WindowPlan
    images: Int
    channels: Int
    filters: Int
    tile_rows: int
    lanes: int
    widths: tuple[int, ...]
    tiles: tuple[Int, ...]
    ragged: bool
    block_images: Int
    block_rows: Int
    image_blocks: Int
    row_blocks: Int
    tiles_at_once: Int
    work: Int
    chunk: Int = 0
    shares_windows: Int = 0
    items: Int = 0
    groups: Int = 0
    group: Int = 0
    sum_rows: Int = 0
    full_channel_tiles: Int = 0
    last_channel_tile: int = 0
    results: tuple[int, int] | None = None
    tile_down: Int = 0
    tile_along: Int = 0
    block_tiles: Int = 0
    tile_columns: Int = 0
    kept_panels: Int = 0
    keeps: Int = 0
    open_panels: Int = 0
    parts: Int = 0
    ragged_channels: bool = False

    @property
    def taps(self) -> Int:
        return self.rows.taps * self.columns.taps

    @property
    def column_tiles(self) -> Int:
        return sum(self.tiles[1:], self.tiles[0])

    @property
    def widest(self) -> int:
        """Filters of the widest tile."""
        return max(self.widths) * self.lanes

    @property
    def block_windows(self) -> Int:
        return self.block_images * self.block_rows * self.columns.count


class Slots:
    """The slots of a call: a symbol for each, and its value."""

    def __init__(self) -> None:
        self.values: dict[str, Int] = {}

    def __call__(self, name: str, value: Int) -> Int:
        self.values[name] = value
        return symbols.symbol(name)

    def windows(self, name: str, axis: SpatialAxis, known: bool) -> WindowPlan:
        """An axis of windows as slots. Taps and stride are constants of the code if `known`, else slots, too."""
        size, count, padding = (self(f"{name}_{what}", getattr(axis, what)) for what in ("size", "count", "padding"))
        if known:
            return WindowPlan(size, count, axis.taps, axis.stride, padding, axis.dilation, axis.spread)
        taps, stride = (self(f"{name}_{what}", getattr(axis, what)) for what in ("taps", "stride"))
        return WindowPlan(size, count, taps, stride, padding, axis.dilation, axis.spread)


def plan(c: ConvolutionProblem, target: CpuTarget) -> tuple[ConvolutionPlan, list[str]]:
    """The plan for a convolution that `refusal` of convolution/call.py has nothing against, and the values of the slots of its
    call: numbers, or expressions in the graph's symbols."""
    slots, lanes = Slots(), target.vector_bytes // 4
    tile_rows, most = tile_shape(target)
    runs = column_tiles(c.filters, lanes, most)
    rows, results = c.rows.count, results_of_tile(c, target)
    if results is not None:
        block_images, block_rows, chosen = winograd(c, results, slots, runs, lanes)
    else:
        block_images, block_rows = blocks(rows, c.columns.count, WINDOWS)
        choose = weight_gradient if c.kind == "weight" else forward
        chosen = choose(c, slots, runs, (block_images, block_rows), tile_rows, lanes)
    known = c.kind == "input" or results is not None
    made = ConvolutionPlan(
        kind=c.kind,
        after=c.after,
        adds=c.adds,
        rows=slots.windows("rows", c.rows, known),
        columns=slots.windows("columns", c.columns, known),
        images=slots("images", c.x.shape[0]),
        channels=slots("channels", c.channels),
        filters=slots("filters", c.filters),
        tile_rows=tile_rows,
        lanes=lanes,
        widths=tuple(vectors for _, _, vectors in runs),
        tiles=tuple(slots(f"tiles_{k}", count) for k, (_, count, _) in enumerate(runs)),
        ragged=c.filters % lanes != 0,
        block_images=slots("block_images", block_images),
        block_rows=slots("block_rows", block_rows),
        image_blocks=slots("image_blocks", symbols.floordiv(c.x.shape[0] + (block_images - 1), block_images)),
        row_blocks=slots("row_blocks", -(-rows // block_rows)),
        work=slots("work", c.work),
        slots=tuple(slots.values),  # all of them: arguments are evaluated in order
        **chosen,
    )
    return made, list(map(str, slots.values.values()))


Runs = Sequence[tuple[int, int, int]]


def tile_shape(target: CpuTarget) -> tuple[int, int]:
    """Rows and vectors of a tile: its sums, a row of the panel and a broadcast element fit into the registers."""
    return (6, 4) if registers(target) == 32 else (4, 3)


def column_tiles(columns: int, lanes: int, most: int) -> list[tuple[int, int, int]]:
    """Cuts columns into tiles of at most `most` vectors, as equal as can be: runs of (first column, number of tiles, vectors)."""
    vectors = -(-columns // lanes)
    tiles = -(-vectors // most)
    narrow = -(-vectors // tiles) * tiles - vectors
    wide = -(-vectors // tiles)
    runs = [(0, tiles - narrow, wide), ((tiles - narrow) * wide * lanes, narrow, wide - 1)]
    return [run for run in runs if run[1] and run[2]]


def blocks(rows: int, columns: int, most: int) -> tuple[int, int]:
    """Images, and rows of each, of a block: about `most` elements of images [rows, columns], in about equal blocks."""
    block_rows = max(1, min(rows, most // columns))
    block_images = max(1, most // (rows * columns)) if block_rows == rows else 1
    return block_images, -(-rows // -(-rows // block_rows))


def forward(c: ConvolutionProblem, slots: Slots, runs: Runs, rows: tuple[int, int], tile_rows: int, lanes: int) -> dict:
    widest = max(vectors for _, _, vectors in runs) * lanes
    tiles_at_once = max(1, min(sum(count for _, count, _ in runs), PANEL_BYTES // (c.channels * c.taps * widest * 4)))
    return {
        "tiles_at_once": slots("tiles_at_once", tiles_at_once),
        "chunk": slots("chunk", max(lanes, min(c.channels, STEPS // -(-c.rows.taps // c.rows.spread)))),
        **shared(c, slots, runs),
    }


def shared(c: ConvolutionProblem, slots: Slots, runs: Runs, down: int = 1) -> dict:
    """How threads split tiles of filters and blocks of windows, which have at least `down` rows."""
    by_blocks = c.channels * c.filters * c.taps * 4 <= SMALL_WEIGHTS
    items = c.x.shape[0] * (-(-c.rows.count // down) * sum(count for _, count, _ in runs))
    return {"shares_windows": slots("shares_windows", int(by_blocks)), "items": slots("items", items)}


def winograd(
    c: ConvolutionProblem, results: tuple[int, int], slots: Slots, runs: Runs, lanes: int
) -> tuple[int, int, dict]:
    """For Winograd's algorithm: images of a block, rows of windows of each, and the plan's other fields."""
    down, along = results
    points = (down + 2) * (along + 2)
    widest, panels = max(vectors for _, _, vectors in runs) * lanes, sum(count for _, count, _ in runs)
    lines, columns = -(-c.rows.count // down), -(-c.columns.count // along)
    chunk = min(
        next(n for n in CHANNELS if columns * points * n * 4 <= INPUT_BYTES or n == CHANNELS[-1]),
        -(-c.channels // lanes) * lanes,
    )
    block_images, block_lines = blocks(lines, columns, INPUT_BYTES // (points * chunk * 4))
    block_tiles = block_images * block_lines * columns
    parts = c.channels > chunk
    tiles_at_once = (
        OPEN_BYTES // (points * block_tiles * widest * 4) if parts else KEPT_BYTES // (points * chunk * widest * 4)
    )
    tiles_at_once = max(1, min(tiles_at_once, panels))
    tiles_at_once = -(-panels // -(-panels // tiles_at_once))
    return (
        block_images,
        block_lines * down,
        {
            "results": results,
            "tiles_at_once": slots("tiles_at_once", tiles_at_once),
            "chunk": slots("chunk", chunk),
            **shared(c, slots, runs, down),
            "tile_down": slots("tile_down", down),
            "tile_along": slots("tile_along", along),
            "block_tiles": slots("block_tiles", block_tiles),
            "tile_columns": slots("tile_columns", columns),
            "kept_panels": slots("kept_panels", 1 if parts else tiles_at_once),
            "keeps": slots("keeps", int(not parts)),
            "open_panels": slots("open_panels", tiles_at_once if parts else 1),
            "parts": slots("parts", int(parts)),
            "ragged_channels": c.channels % lanes != 0,
        },
    )


def weight_gradient(
    c: ConvolutionProblem, slots: Slots, runs: Runs, _: tuple[int, int], tile_rows: int, lanes: int
) -> dict:
    widest = max(vectors for _, _, vectors in runs) * lanes
    column_tiles, channel_tiles = sum(count for _, count, _ in runs), -(-c.channels // tile_rows)
    groups = -(-column_tiles // TILES_AT_ONCE)
    tiles_at_once = -(-column_tiles // groups)
    group = max(1, min(channel_tiles, SUM_BYTES // (tiles_at_once * tile_rows * c.taps * widest * 4)))
    full, last = divmod(c.channels, tile_rows)
    return {
        "tiles_at_once": slots("tiles_at_once", tiles_at_once),
        "groups": slots("groups", groups),
        "group": slots("group", group),
        "sum_rows": slots("sum_rows", -(-group * tile_rows * c.taps // lanes) * lanes),
        "full_channel_tiles": slots("full_channel_tiles", full),
        "last_channel_tile": last,
    }

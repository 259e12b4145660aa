"""im2col and col2im: the windows of images as rows of a matrix, and such rows added up to images."""

from collections.abc import Sequence

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.dialects.core.symbols import Int, floordiv, mod, product
from mlirc.dialects.core.tensor_info import TensorInfo
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.dialects.ops.movement.concat_pad import constant_pad
from mlirc.dialects.ops.movement.reindex import places, reindex


@dataclass(frozen=True)
class WindowGrid:
    """Along each spatial axis, tap k of window i is at i * stride + k * dilation - padding.

    image, count, taps   elements of the image, windows, elements of a window
    """

    image: Sequence[int]
    count: Sequence[int]
    taps: Sequence[int]
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]

    @property
    def axes(self) -> list[tuple[int, ...]]:
        settings = (self.image, self.count, self.taps, self.stride, self.padding, self.dilation)
        return list(zip(*settings, strict=True))


def im2col(x: ir.Value, windows: WindowGrid) -> ir.Value:
    """[N * windows, C * taps] of images [N, C, ...]; zeros where a window lies outside."""
    info = info_of(x)
    ends = [
        (before, max(0, (count - 1) * step + (taps - 1) * gap + 1 - before - size))
        for size, count, taps, step, before, gap in windows.axes
    ]
    if any(map(any, ends)):
        x = constant_pad(GraphBuilder(info), x, [n for pair in reversed(ends) for n in pair])
    shape = (info.shape[0], *windows.count, info.shape[1], *windows.taps)
    rank = len(windows.count)
    image, *index, channel = places(2 + rank)
    taps = places(len(shape))[2 + rank :]
    at = [i * a[3] + k * a[5] for i, k, a in zip(index, taps, windows.axes, strict=True)]
    made = reindex(x, shape, (image, channel, *at))
    return merged(made, 1 + rank)


def col2im(rows: ir.Value, windows: WindowGrid, channels: int) -> ir.Value:
    """Images [N, C, ...] of rows [N * windows, C * taps]: each pixel is the sum of what its windows have for it."""
    info, rank = info_of(rows), len(windows.count)
    batch = floordiv(info.shape[0], product(windows.count))
    # pixel p lies at (p + padding - k * dilation) / stride of the windows, where that is whole: between two windows lie stride - 1 zeros
    pairs = [n for count in windows.count for n in (count, 1)]
    x = split(rows, (batch, *pairs), (channels, *windows.taps))
    ends: list[int] = []
    firsts: list[int] = []
    for size, count, taps, step, before, gap in windows.axes:
        first = max(0, -(-((taps - 1) * gap - before) // step))
        last = max(0, (size - 1 + before) // step + 1 - count)
        firsts.append(first)
        ends += [0, step - 1, first, last]
    # constant_pad begins with the last dimension
    by_dimension = [pair for k in range(rank) for pair in ((ends[4 * k + 2 :][:2]), (ends[4 * k :][:2]))]
    around = [(0, 0)] * (1 + rank)
    if any(map(any, by_dimension)):
        x = constant_pad(GraphBuilder(info), x, [n for pair in (*around, *reversed(by_dimension)) for n in pair])
    image, channel, *index = places(2 + 2 * rank)
    pixels, taps_ = index[:rank], index[rank:]
    at: list[Int] = []
    for pixel, tap, first, (_, _, _, step, before, gap) in zip(pixels, taps_, firsts, windows.axes, strict=True):
        place = pixel + before + first * step - tap * gap
        at += [floordiv(place, step), mod(place, step)] if step > 1 else [place, 0]
    shape = (batch, channels, *windows.image, *windows.taps)
    made = reindex(x, shape, (image, *at, channel, *taps_))
    return GraphBuilder(TensorInfo(info.dtype, shape[: 2 + rank])).reduce("sum", made, range(2 + rank, 2 + 2 * rank))


def merged(x: ir.Value, rows: int) -> ir.Value:
    """A row-major tensor as a matrix: the first `rows` of its dimensions are one, and the others one."""
    shape = info_of(x).shape
    row, column = places(2)
    at = [*indices(row, shape[:rows]), *indices(column, shape[rows:])]
    width = product(shape[rows:])
    return GraphBuilder(info_of(x)).view(x, (product(shape[:rows]), width), (width, 1), at)


def indices(place: Int, sizes: Sequence[Int]) -> list[Int]:
    """The index of an element of a row-major tensor by its place."""
    at = [floordiv(place, product(sizes[k + 1 :])) for k in range(len(sizes))]
    return [at[0], *(mod(index, size) for index, size in zip(at[1:], sizes[1:], strict=True))]


def split(x: ir.Value, rows: Sequence[Int], columns: Sequence[Int]) -> ir.Value:
    """A row-major matrix as a tensor: its rows have the sizes `rows`, its columns `columns`."""
    index = places(len(rows) + len(columns))
    at = place_of(index[: len(rows)], rows), place_of(index[len(rows) :], columns)
    info = TensorInfo(info_of(x).dtype, (*rows, *columns))
    return GraphBuilder(info_of(x)).view(x, info.shape, info.stride, at)


def place_of(index: Sequence[Int], sizes: Sequence[Int]) -> Int:
    """The place of an element of a row-major tensor."""
    return sum((i * product(sizes[k + 1 :]) for k, i in enumerate(index)), start=0)

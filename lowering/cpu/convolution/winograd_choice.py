"""Chooses which convolutions use Winograd's transform (convolution/winograd.py), and the number of results in a tile."""

from mlirc.dialects.core.symbols import Int
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.target import CpuTarget

TAPS = 3
# Errors over those of eager (3x3, normal weights, inputs behind a relu), by results of a tile:
#
#   channels           32     64     128    256    512
#   2x2 forward        0.82   0.59   0.44   0.34   0.26
#   2x4 forward        1.38   1.00   0.74   0.57   0.44
#   4x4 forward        2.36   1.71   1.28   0.96   0.73
#   2x2 gradient       1.5    1.5    1.1    0.9    1.0      eager's own is smaller here; as sums of products, ours has 1.6 to 0.9
#
# With AVX-512 eager's own error is 0.4 to 0.55 of that: 1.9 at 2x4 and 64 channels, 3.2 and 3.05 at 4x4 and 128 and 512.
CHANNELS_OF_RESULTS = {(4, 4): 128, (2, 4): 48, (4, 2): 48, (2, 2): 32}
GAIN = 0.9  # of the time of a sum of products, at most


@dataclass(frozen=True)
class WinogradSizes:
    """The sizes of a convolution with stride and dilation 1 ("forward"), or of its image's gradient ("input"). `rows` and `columns`
    are those of the results."""

    kind: str
    images: Int
    channels: int
    filters: int
    taps: tuple[int, ...]
    image: tuple[int, ...]
    rows: int
    columns: int


def results_of_tile(s: WinogradSizes, target: CpuTarget) -> tuple[int, int] | None:
    """Down and along; None for sums of products."""
    if s.taps != (TAPS, TAPS):
        return None
    accurate = [(2, 2)] if s.kind == "input" or target.has_avx512 else list(CHANNELS_OF_RESULTS)
    fit = [r for r in accurate if s.channels >= CHANNELS_OF_RESULTS[r] and tiles(s.columns, r[1]) <= MOST_TILES[r]]
    best = min(fit, key=lambda r: cost(s, r), default=None)
    return best if best is not None and cost(s, best) <= GAIN * cost_of_sums(s) else None


# of a row of an image, so that a block of them has room for 16 channels
MOST_TILES = {r: (704 << 10) // ((r[0] + 2) * (r[1] + 2) * 16 * 4) for r in CHANNELS_OF_RESULTS}


def cost(s: WinogradSizes, results: tuple[int, int]) -> float:
    """Multiplications for a channel and a filter, with what else is done in the same time: maps of inputs, which all
    filters share, of results, which all channels do, and of weights. Factors as measured with two cores of Zen 4."""
    down, along = results
    points = (down + 2) * (along + 2)
    shared = 1.05 + 8 / s.filters + 8 / s.channels
    return shared * points * few(s.images) * tiles(s.rows, down) * tiles(s.columns, along) + 100 + 3 * points


def cost_of_sums(s: WinogradSizes) -> float:
    """The cost, in the unit of `cost`, of plain sums of products: taps outside of the image are skipped, weights are packed."""
    inside = 1
    for size, count in zip(s.image, (s.rows, s.columns), strict=True):
        before = (count - size + TAPS - 1) // 2
        inside *= sum(max(0, min(count, size + before - tap) - max(0, before - tap)) for tap in range(TAPS))
    return few(s.images) * inside + 150


def few(images: Int) -> int:
    """One, where nobody knows how many."""
    return images if isinstance(images, int) else 1


def tiles(count: int, results: int) -> int:
    return -(-count // results)

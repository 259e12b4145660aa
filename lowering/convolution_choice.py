"""Which convolutions on a CPU lie channels last, and which of them and of their gradients are kernels of our own."""

import math
from dataclasses import dataclass

from mlirc.dialects.symbols import Int
from mlirc.lowering.winograd_choice import Sizes, results_of_tile

FEW_CHANNELS = 16
FEW_WINDOWS = 4  # of a row
LARGE_WEIGHTS = 1 << 20  # bytes
# what a thread's stack has room for: elements of a filter, of them in one channel, windows of a row
MOST_STEPS, MOST_TAPS, MOST_WINDOWS = 8192, 128, 2048


@dataclass(frozen=True)
class Choice:
    """A convolution of float32 images [N, C, H, W] by weights [O, C, KH, KW], with results [N, O, P, Q].

    With two cores of a Zen 4 without AVX-512, 1e9 operations a second, 4 images, 3x3: oneDNN contiguous | channels last with
    contiguous weights | ours channels last, where large products reached 115:

                          forward           by the image      by the weight
        64 ch.,  56x56    126 | 138 | 123   122 | 134 | 126    75 |  67 | 125
        128 ch., 28x28    126 | 127 | 124   128 | 128 | 123    99 |  85 | 126
        256 ch., 14x14    122 | 118 | 138   121 | 126 | 122    97 |  85 | 134
        512 ch., 7x7       83 |  63 | 130    99 |  95 | 132    45 |  30 | 120
    """

    x: tuple[Int, ...]
    w: tuple[Int, ...]
    out: tuple[Int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    groups: int

    @property
    def plain(self) -> bool:
        """Whether it may lie channels last: nothing is known of others."""
        sizes = (*self.x[1:], *self.w, *self.out[1:])
        static = all(isinstance(n, int) and n > 0 for n in sizes)
        return len(self.x) == 4 and static and not self.transposed and self.groups == 1

    @property
    def is_large(self) -> bool:
        """Whether there is enough of everything for a kernel of ours."""
        if not self.plain:
            return False
        (filters, channels, height, width), windows = numbers(self.w), numbers(self.out[1:])[2]
        fits = has_room(max(filters, channels), height * width, max(numbers(self.x[1:])[2], windows))
        return fits and min(filters, channels) >= FEW_CHANNELS and windows >= FEW_WINDOWS

    @property
    def generates_forward(self) -> bool:
        """By fewer multiplications; and with large weights, which oneDNN would lay out anew in each call."""
        return self.is_large and (self.has_large_weights or self.has_short_products("forward"))

    @property
    def generates_input_gradient(self) -> bool:
        if not self.is_large or set(self.stride) != {1}:
            return False
        return self.has_large_weights or self.has_short_products("input")

    @property
    def generates_weight_gradient(self) -> bool:
        return self.is_large

    @property
    def has_large_weights(self) -> bool:
        return math.prod(numbers(self.w)) * 4 > LARGE_WEIGHTS

    def has_short_products(self, kind: str) -> bool:
        """Whether the convolution, or the gradient of its images ("input"), takes fewer multiplications (winograd_choice.py)."""
        if set(self.stride) | set(self.dilation) != {1}:
            return False
        (filters, channels, *taps), image, results = numbers(self.w), numbers(self.x[1:])[1:], numbers(self.out[1:])[1:]
        if kind == "input":
            filters, channels, image, results = channels, filters, results, image
        return results_of_tile(Sizes(kind, self.x[0], channels, filters, tuple(taps), image, *results)) is not None


def numbers(sizes: tuple[Int, ...]) -> tuple[int, ...]:
    """Those of a plain convolution."""
    return tuple(n for n in sizes if isinstance(n, int))


def has_room(channels: int, taps: int, windows: int) -> bool:
    """Whether the scratch of our kernels fits on a thread's stack."""
    return channels * taps <= MOST_STEPS and taps <= MOST_TAPS and windows <= MOST_WINDOWS


def lie_channels_last(choices: list[Choice]) -> bool:
    """Whether the images of a graph with these convolutions of float32 do: all of them, or none."""
    return all(c.plain for c in choices) and any(c.is_large for c in choices)

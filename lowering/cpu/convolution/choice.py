"""Chooses layouts and kernels of convolutions on a CPU: which convolutions and gradients are generated, and what channels last saves."""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from mlirc.dialects.core.symbols import Int
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.cpu.convolution.winograd_choice import WinogradSizes, results_of_tile
from mlirc.lowering.target import CpuTarget

FEW_CHANNELS = 16
FEW_WINDOWS = 4  # rows of fewer windows do not fill a tile
LARGE_WEIGHTS = 1 << 20  # bytes of weights from which on oneDNN's packing of them, in each call, costs more
# of rows of few windows, it costs more from so many bytes on, if the windows of all images are so many
LARGE_OF_FEW, WINDOWS_OF_FEW = 1 << 18, 16
# from so many channels on, oneDNN's sums of channels-last images have more than twice the error of its sums of contiguous ones (512
# channels, 4 taps, against float64: 8.1e-7, 1.8e-7, and 2.5e-7 in generated code, which takes 0.9 to 1.07 of its time with AVX-512)
MANY_CHANNELS = 96
FEW_STRIDED = 16  # rows of fewer windows, where a stride divides the taps, are slower than oneDNN's
WEIGHT_COPY = 0.75  # ns for an element of large weights, which channels last lays out again for oneDNN
# at most this many multiplications are a small convolution, which takes about as long as the overhead of a call of oneDNN;
# the second number is for rows of few windows
SMALL, SMALL_ROWS = 60_000_000, 8_000_000
IMAGES = 8  # the batch that a symbolic one is taken to be
BEGIN = 100_000  # overhead of a call of oneDNN, in ns
# ns that channels last saves for each multiplication: in generated code; in oneDNN for results and gradients of images, and for
# gradients of weights
OURS, LIBRARY, LIBRARY_WEIGHT = 0.005, 0.002, -0.003
FEW_OF_GROUP, IMAGE_OF_GROUPS, WEIGHT_OF_GROUPS, MANY_OF_GROUP = 8, 0.05, 0.3, -0.003
MANY_IN_GROUP = 64  # channels of a group from which on oneDNN's packed weights are faster for pixels, and with AVX2
# most elements of a filter, taps, and windows of a row, for which a kernel's scratch is small
MOST_STEPS, MOST_TAPS, MOST_WINDOWS = 8192, 128, 2048
MOST_PIXELS = 8192  # pixels that a depthwise weight gradient packs for a vector of channels, at most
# the sums of a depthwise convolution's weight gradient, in parts: how many, multiplications and windows of one
MOST_PARTS, LEAST_OF_PART, WINDOWS_OF_PART = 16, 1_000_000, 128


@dataclass(frozen=True)
class Choice:
    """A convolution of float32 images [N, C, H, W] by weights [O, C / groups, KH, KW], with results [N, O, P, Q]; or a transposed
    one of images x [N, O, P, Q], with results `out` [N, C, H, W].

    With two cores of a Zen 4 without AVX-512, 1e9 operations a second, 4 images, 3x3: oneDNN contiguous | channels last with
    contiguous weights | ours channels last, where large matmuls reached 115:

                          forward           by the image      by the weight
        64 ch.,  56x56    126 | 138 | 123   122 | 134 | 126    75 |  67 | 125
        128 ch., 28x28    126 | 127 | 124   128 | 128 | 123    99 |  85 | 126
        256 ch., 14x14    122 | 118 | 138   121 | 126 | 122    97 |  85 | 134
        512 ch., 7x7       83 |  63 | 130    99 |  95 | 132    45 |  30 | 120

    Small ones (us, 2 images, oneDNN channels last | ours; the last three transposed): a call of oneDNN's takes some 100 first.

        240 -> 40, 1x1, 12x12        244 |  67     238 | 117    315 |  58
        3 -> 32, 3x3, 96x96 by 2     156 |  88     359 | 263    163 | 139
        24 -> 24, 3x3, 64x64         612 | 498     569 | 513    734 | 537
        96 -> 48, 2x2, 16x16 by 2    243 | 132     212 | 120    284 | 125
        64 -> 32, 4x4, 16x16 by 2    571 | 436     543 | 394    665 | 444
        256 -> 128, 4x4, 4x4 by 2   1580 | 550    1562 | 480   2312 | 669

    Rows of few windows, with a batch norm and a relu, forward and gradients (one core with AVX-512, eager's time 1, oneDNN channels
    last with contiguous weights | ours):

        512 -> 512, 3x3, 4 of 3x3     1.49 | 0.39      1024 -> 2048, 1x1 by 2, 8 of 4x4    1.25 | 0.63
        512 -> 512, 3x3, 16 of 1x1    1.23 | 0.65      512 -> 256, 7x7, 4 of 7x7           0.84 | 1.30
        128 -> 128, 3x3, 32 of 2x2    1.18 | 0.70      16 -> 16, 5x2, 8 of 200x4           1.09 | 1.38

    Large weights with a stride of 2, a step of training (ms, the same core, eager | oneDNN channels last | ours):

        128 -> 256, 4x4, 8 of 16x16     5.5 |  5.3 |  6.4      256 -> 512, 3x3, 8 of 8x8      5.1 |  4.7 |  4.5
        256 -> 512, 4x4, 8 of 8x8      12.9 | 10.6 | 13.2      512 -> 512, 3x3, 4 of 14x14   17.0 | 14.9 | 11.3
        512 -> 512, 2x2, 8 of 8x8       4.1 |  3.7 |  6.6      512 -> 256, 4x4 transposed     8.9 |  7.9 | 13.9

    In inference, where oneDNN's weights are packed once (ms, eager | packed | ours):

        256 -> 512, 4x4 by 2, 8 of 8x8  5.1 |  3.6 | 10.1      256 -> 256, 3x3 by 2, 28x28    1.3 |  1.1 |  1.4
        512 -> 512, 2x2 by 2, 8 of 8x8  1.9 |  2.2 |  4.9      512 -> 512, 5x5, 2 of 7x7      9.8 |  8.2 |  8.0

    Groups of few channels, oneDNN contiguous | channels last:

        96 of 1, 3x3, 48x48         2100 | 593    2198 | 568   1022 | 640
        64 of 1, 7x7, 24x24          384 | 373     354 | 301   4627 | 863
        16 of 4, 3x3, 24x24         1027 | 573    1198 | 520   2555 | 443
        4 of 32, 3x3, 24x24          941 | 1093    925 | 1149  1105 | 1358
    """

    x: tuple[Int, ...]
    w: tuple[Int, ...]
    out: tuple[Int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    groups: int
    target: CpuTarget
    depth: int = 1  # of filters of volumes, of which this is about one slice: x [N * D, C, H, W]

    @cached_property
    def may_lie_last(self) -> bool:
        """Whether channels last is considered: images are 4-d, and all sizes but the batch are known."""
        sizes = (*self.x[1:], *self.w, *self.out[1:])
        return len(self.x) == 4 and all(isinstance(n, int) and n > 0 for n in sizes)

    @cached_property
    def image(self) -> tuple[int, ...]:
        """[C, H, W] of the larger side: what a convolution reads and a transposed one gives."""
        return numbers(self.out[1:] if self.transposed else self.x[1:])

    @cached_property
    def result(self) -> tuple[int, ...]:
        """[O, P, Q] of the other side: what a convolution gives and a transposed one reads."""
        return numbers(self.x[1:] if self.transposed else self.out[1:])

    @cached_property
    def may_be_ours(self) -> bool:
        if not self.may_lie_last or self.groups != 1:
            return False
        filters, channels, height, width = numbers(self.w)
        return has_room(max(filters, channels), height * width, max(self.image[2], self.result[2]))

    @cached_property
    def is_large(self) -> bool:
        """Whether channels and windows fill tiles, or weights weigh more than tiles do: generated code is about as fast as oneDNN's."""
        fills = self.may_be_ours and min(numbers(self.w)[:2]) >= FEW_CHANNELS
        return fills and (not self.has_few_windows or self.has_large_weights)

    @cached_property
    def has_few_windows(self) -> bool:
        return self.result[2] < FEW_WINDOWS

    @cached_property
    def is_small(self) -> bool:
        """Whether the convolution takes about as long as the overhead of a call of oneDNN, so that generated code is faster."""
        if not self.may_be_ours:
            return False
        return self.multiplications <= (SMALL_ROWS if self.has_few_windows else SMALL)

    @cached_property
    def has_short_rows(self) -> bool:
        """Whether a stride divides the taps, and rows of windows are short, but not so few that weights decide."""
        strided = set(self.stride) != {1} and not any(
            k % s for k, s in zip(numbers(self.w)[2:], self.stride, strict=True)
        )
        return strided and FEW_WINDOWS <= self.result[2] < FEW_STRIDED

    @cached_property
    def images(self) -> int:
        return self.x[0] if isinstance(self.x[0], int) else IMAGES

    @cached_property
    def multiplications(self) -> int:
        return math.prod(numbers(self.w)) * self.depth * math.prod(self.result[1:]) * self.images

    @cached_property
    def generates_convolution(self) -> bool:
        """Whether a convolution (not a transposed one) is generated: where it is small, where Winograd's algorithm applies, and where
        weights are large, which oneDNN would pack in each call."""
        if self.is_small or not self.is_large or self.has_short_rows:
            return self.is_small
        return self.has_large_weights or self.has_fewer_multiplications("forward")

    @cached_property
    def generates_transposed(self) -> bool:
        """Whether the gradient of the images, or a transposed convolution, is generated."""
        if self.is_small or not self.is_large:
            return self.is_small
        if set(self.stride) != {1}:
            return self.has_few_windows or (self.transposed and not self.has_short_rows)
        return self.has_large_weights or self.has_fewer_multiplications("input")

    @cached_property
    def generates_forward(self) -> bool:
        return self.generates_transposed if self.transposed else self.generates_convolution

    @cached_property
    def generates_prepared_forward(self) -> bool:
        """Whether it is generated where its weights are a parameter's, which oneDNN would pack once."""
        if self.is_small or self.transposed:
            return self.generates_forward
        loses_bits = numbers(self.w)[1] >= MANY_CHANNELS and not self.has_short_rows
        return self.is_large and (loses_bits or self.has_fewer_multiplications("forward"))

    @cached_property
    def generates_input_gradient(self) -> bool:
        return self.generates_convolution if self.transposed else self.generates_transposed

    @cached_property
    def generates_weight_gradient(self) -> bool:
        return self.is_small or self.is_large or self.is_depthwise

    @cached_property
    def is_depthwise(self) -> bool:
        """Whether each filter has one channel, and the scratch of the generated weight gradient is small."""
        if not self.may_lie_last or self.groups == 1 or self.groups != (self.w[0] if self.transposed else self.x[1]):
            return False
        (_, *image), (_, *result) = self.image, self.result
        return has_depthwise_room(image, result, numbers(self.w)[2:], self.dilation)

    @cached_property
    def parts(self) -> int:
        """The number of parts that images are cut into for a depthwise weight gradient: threads sum each, then the sums are added."""
        windows = math.prod(self.result[1:]) * self.images
        return max(1, min(MOST_PARTS, self.multiplications // LEAST_OF_PART, windows // WINDOWS_OF_PART))

    def gain(self, forward: bool, mask: Sequence[bool]) -> float:
        """ns that channels last saves: of the result if `forward`, else of the gradients (image, weight) that `mask` wants."""
        own = [self.generates_forward] if forward else [self.generates_input_gradient, self.generates_weight_gradient]
        gains = 0.0
        for k, (wanted, ours) in enumerate(zip(mask, own, strict=False)):
            if self.groups > 1 and self.w[1] <= FEW_OF_GROUP:  # type: ignore[operator]
                rate = WEIGHT_OF_GROUPS if k else IMAGE_OF_GROUPS
            elif self.groups > 1:
                rate = MANY_OF_GROUP
            else:
                rate = OURS if ours else LIBRARY_WEIGHT if k else LIBRARY
            laid_out = WEIGHT_COPY * math.prod(numbers(self.w)) * (self.has_large_weights and not ours)
            gains += (rate * self.multiplications + BEGIN * ours - laid_out) * wanted
        return gains

    @cached_property
    def has_large_weights(self) -> bool:
        size = 4 * math.prod(numbers(self.w))
        if self.has_few_windows:
            return size > LARGE_OF_FEW and math.prod(self.result[1:]) * self.images >= WINDOWS_OF_FEW
        return size > LARGE_WEIGHTS

    def has_fewer_multiplications(self, kind: str) -> bool:
        """Whether Winograd's algorithm is faster for the convolution ("forward") or the transposed one ("input"); winograd_choice.py."""
        if set(self.stride) | set(self.dilation) != {1}:
            return False
        (filters, channels, *taps), image, results = numbers(self.w), self.image[1:], self.result[1:]
        if kind == "input":
            filters, channels, image, results = channels, filters, results, image
        sizes = WinogradSizes(kind, self.x[0], channels, filters, tuple(taps), image, *results)
        return results_of_tile(sizes, self.target) is not None


def generates_groups(channels: int, taps: Sequence[int], target: CpuTarget) -> bool:
    """Whether a convolution in groups of `channels`, by filters of `taps`, is generated, where its weights are a parameter's, and the
    width of images is known.

    One thread, processor time of oneDNN's call with packed weights over ours, 3x3 unless said otherwise, images alone | eight:

                                   AVX-512        AVX2                                  AVX-512        AVX2
        128 in 32 groups, 56x56    2.16 | 2.10    2.29     192 in 4, 28x28              1.15 | 1.09    1.05
        256 in 32, 28x28           1.58 | 1.81    1.52     256 in 4, 28x28              1.06 | 0.99    1.02
        256 in 32, 56x56 by 2      1.23 | 1.46    1.23     512 in 8, 14x14              1.20 | 1.21    0.89
        96 in 8, 28x28             2.44 | 2.11    1.70     512 in 2, 14x14              1.00 | 1.03    0.84
        512 in 32, 14x14           1.35 | 1.21    1.16     60 -> 240 in 3, 1x1, 28x28   1.39 | 1.13    1.23
        1512 in 63, 7x7            1.26 | 1.68    1.15     256 in 4, 1x1, 28x28         1.11 | 0.91    1.03

    Where the width is not known, and windows at both ends of a row are taken one by one, it is 0.18 to 1.94.
    """
    if channels < 2 or not target.has_avx2:
        return False
    few = channels < MANY_IN_GROUP
    return few or (target.has_avx512 and math.prod(taps) > 1)


def compared(choice: Choice) -> dict[str, int]:
    """The numbers that decide between generated code and oneDNN, by name, for the ledger."""
    filters, channels, *_ = numbers(choice.w)
    most = SMALL_ROWS if choice.has_few_windows else SMALL
    weights = {"bytes_of_weights": 4 * math.prod(numbers(choice.w)), "large_weights": LARGE_WEIGHTS}
    large = {"channels": min(filters, channels), "least_channels": FEW_CHANNELS, **weights}
    return {"multiplications": choice.multiplications, "small": most, **large}


def choice_of_slices(
    x: Sequence[Int],
    w: Sequence[Int],
    out: Sequence[Int],
    stride: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    groups: int,
    target: CpuTarget,
) -> Choice | None:
    """The choice for volumes [N, C, D, H, W] by weights [O, C, KD, KH, KW], convolved as slices of them; None for large ones, which
    oneDNN convolves as they are."""
    if transposed or groups > 1 or not all(isinstance(n, int) and n > 0 for n in (*x[1:], *w, *out[1:])):
        return None
    (n, channels, _, *image), (_, filters, count, *result) = x, out
    shapes = (n * count, channels, *image), (*w[:2], *w[3:]), (n * count, filters, *result)
    choice = Choice(*shapes, tuple(stride[1:]), tuple(dilation[1:]), False, 1, target, w[2])  # type: ignore[arg-type]
    return choice if choice.is_small else None


def wide(shape: tuple[Int, ...]) -> tuple[Int, ...]:
    """The shape [N, C, W] as [N, C, 1, W]; a 4-d shape as it is."""
    return shape if len(shape) == 4 else (*shape[:2], 1, *shape[2:])


def along(numbers: Any, height: int) -> tuple[int, ...]:
    """A setting (stride, padding, dilation) for height and width; `height` is the height's where it is given for the width alone."""
    return tuple(numbers) if len(numbers) == 2 else (height, *numbers)


def numbers(sizes: tuple[Int, ...]) -> tuple[int, ...]:
    """The sizes that are known: all of them where `may_lie_last` holds."""
    return tuple(n for n in sizes if isinstance(n, int))


def has_depthwise_room(
    image: Sequence[int], result: Sequence[int], taps: Sequence[int], dilation: Sequence[int]
) -> bool:
    """Whether the scratch of a depthwise weight gradient is small: it packs the pixels of a row of windows (depthwise_call.py)."""
    (height, width), (rows, columns), gaps = image, result, dilation
    if height == rows == taps[0] == 1:
        height, width, columns, taps, gaps = width, 1, 1, taps[::-1], gaps[::-1]
    pixels = min(height, (taps[0] - 1) * gaps[0] + 1) * width + columns
    return max(pixels, math.prod(taps)) <= MOST_PIXELS


def has_room(channels: int, taps: int, windows: int) -> bool:
    """Whether the scratch of the other generated convolutions is small."""
    return channels * taps <= MOST_STEPS and taps <= MOST_TAPS and windows <= MOST_WINDOWS

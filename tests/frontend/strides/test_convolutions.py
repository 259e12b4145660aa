"""Convolutions have eager's strides: of oneDNN, which on one thread leaves 1x1 filters and few images to ATen, of ATen's own kernels, which
compute groups one by one, and of no elements."""

import itertools
from collections.abc import Iterator

import pytest
import torch

from tests.frontend.strides.layouts import LAYOUTS, every, wrong

CHANNELS = (
    (1, 1, 1),
    (1, 1, 4),
    (4, 1, 2),
    (4, 2, 1),
    (4, 2, 2),
    (4, 4, 1),
    (4, 4, 2),
    (32, 32, 1),
)  # in, groups, out of a group
SETTINGS = ((1, 1, 0), (1, 1, 1), (2, 1, 1), (1, 2, 1))  # stride, dilation, padding
PAIRS = ("row-major", "row-major"), ("channels-last", "row-major"), ("row-major", "channels-last")
PAIRS += ("channels-last", "channels-last"), ("transposed", "row-major"), ("row-major", "transposed")


def convolutions() -> Iterator[tuple]:
    for rank, dtype, batch, (inputs, groups, outputs), size, taps, transposed in itertools.product(
        (1, 2, 3), (torch.float32, torch.float64), (0, 1, 2, 17), CHANNELS, (1, 5), (1, 3), (False, True)
    ):
        x = torch.rand(batch, inputs, *[size] * rank, dtype=dtype)
        filters = (inputs, outputs) if transposed else (outputs * groups, inputs // groups)
        weight = torch.rand(*filters, *[taps] * rank, dtype=dtype)
        for (stride, dilation, padding), (of_x, of_weight) in itertools.product(SETTINGS, PAIRS):
            settings = [stride] * rank, [padding] * rank, [dilation] * rank, transposed, [0] * rank, groups
            yield LAYOUTS[of_x](x), LAYOUTS[of_weight](weight), None, *settings


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("dynamic", "of"), [(False, 61), (True, 347), pytest.param(True, 5, marks=pytest.mark.full)])
@pytest.mark.parametrize("threads", [1, 2])
def test_convolutions(threads, dynamic, of):
    before, found, compared = torch.get_num_threads(), [], 0
    torch.set_num_threads(threads)
    try:
        for args in itertools.islice(convolutions(), 3, None, of):
            wrongs = wrong(torch.ops.aten.convolution.default, args, {}, dynamic, every)
            compared += wrongs is not None
            found += wrongs or ()
    finally:
        torch.set_num_threads(before)
    assert not found, "\n".join(found[:40])
    assert compared > 30000 // of

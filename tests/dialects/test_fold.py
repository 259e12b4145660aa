"""im2col and col2im, at every level of the dialect, against eager."""

import random

import pytest
import torch
import torch.nn.functional as F

from mlirc.frontend import statistics
from tests.compare_stages import check

aten = torch.ops.aten


def settings(draw: random.Random) -> tuple:
    """Window, dilation, padding and stride: windows overlap, touch or leave gaps, and reach outside."""
    window = [draw.randint(1, 3) for _ in range(2)]
    dilation = draw.choice([[1, 1], [1, 1], [draw.randint(1, 3) for _ in range(2)]])
    stride = draw.choice([window, [draw.randint(1, 4) for _ in range(2)]])
    return window, dilation, [draw.randint(0, 2) for _ in range(2)], stride


@pytest.mark.thinned(8)
@pytest.mark.parametrize("seed", range(24))
def test_windows_as_columns_and_back(seed):
    draw = random.Random(seed)
    arguments = settings(draw)
    dtype = draw.choice([torch.float32, torch.float64, torch.bfloat16, torch.float16])
    size = [draw.randint(7, 9) for _ in range(2)]
    shape = draw.choice([(2, 3), (2, 3), (3,), (0, 2), (1, 1)])
    x = torch.randn(*shape, *size).to(dtype)
    if draw.random() < 0.3 and len(shape) == 2:
        x = x.to(memory_format=torch.channels_last)
    check(lambda x: aten.im2col.default(x, *arguments), x)
    columns = torch.randint(-8, 9, aten.im2col.default(x, *arguments).shape).to(dtype)
    if columns.numel():
        columns.view(-1)[draw.randrange(columns.numel())] = draw.choice([float("nan"), float("inf"), -0.0])
    if draw.random() < 0.5:
        columns = columns.transpose(-1, -2).contiguous().transpose(-1, -2)
    back = lambda y: aten.col2im.default(y, size, *arguments)
    check(back, columns)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", range(6))
def test_sizes_that_are_symbols(seed):
    """PyTorch traces im2col of symbolic sizes under AOTAutograd alone."""
    draw = random.Random(seed)
    window, dilation, padding, stride = settings(draw)
    torch.compiler.reset()
    statistics.reset()

    def function(x):
        return F.fold(
            F.unfold(x, window, dilation, padding, stride) * 2, x.shape[2:], window, dilation, padding, stride
        )

    run = torch.compile(function, backend="mlirc", dynamic=True, options={"cache": False, "fallback": "error"})
    for _ in range(2):
        x = torch.randn(draw.randint(2, 4), 3, draw.randint(7, 12), draw.randint(7, 12), requires_grad=True)
        y, expected = run(x), function(x)
        weight = torch.randn_like(y)
        torch.testing.assert_close(y, expected)
        pair = (torch.autograd.grad(out, x, weight)[0] for out in (y, expected))
        torch.testing.assert_close(*pair)
    assert not any(graph.aten for graph in statistics.graphs), statistics.graphs


def test_what_eager_refuses_or_sums_exactly_goes_to_aten():
    """Integers, which eager refuses, and windows that overlap much."""
    x = torch.randn(1, 2, 12, 12)
    columns = aten.im2col.default(x, [5, 5], [1, 1], [0, 0], [1, 1])
    check(lambda y: aten.col2im.default(y, [12, 12], [5, 5], [1, 1], [0, 0], [1, 1]), columns, aten=True)


def test_zeros_have_eagers_signs():
    columns = torch.full((1, 4, 9), -0.0)
    check(lambda y: aten.col2im.default(y, [4, 4], [2, 2], [1, 1], [0, 0], [1, 1]).copysign(y[0, 0, 0]), columns)
    made = torch.compile(lambda y: F.fold(y, 4, 2), backend="mlirc")(columns)
    assert not made.signbit().any() and not F.fold(columns, 4, 2).signbit().any()

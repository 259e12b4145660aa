"""Pooling and running folds, at every level of the dialect, against eager."""

import math
import random

import pytest
import torch

from mlirc.dialects.ops.nn import pooling
from tests.compare_stages import check

pytestmark = pytest.mark.thinned

aten = torch.ops.aten
DYNAMIC = pytest.mark.parametrize("dynamic", [False, True])


@DYNAMIC
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
@pytest.mark.parametrize(
    "arguments",
    [([2, 2],), ([3, 3], [2, 2], [1, 1]), ([3, 2], [2, 1], [1, 0], [2, 1]), ([2, 2], [2, 2], [0, 0], [1, 1], True)],
)
def test_max_pool(arguments, dtype, dynamic):
    x = (torch.randn(2, 3, 7, 9) * 9).to(dtype)
    check(lambda x: aten.max_pool2d_with_indices.default(x, *arguments), x, dynamic=dynamic)


@DYNAMIC
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "arguments",
    [([2, 2],), ([3, 3], [2, 2], [1, 1]), ([3, 2], [2, 1], [1, 0], [2, 1]), ([2, 2], [3, 3], [0, 0], [1, 1], True)],
)
def test_max_pool_backward(arguments, dtype, dynamic):
    """Windows overlap, leave gaps, reach outside; the gradient has a NaN, and the first element is nobody's largest."""
    x = torch.randn(2, 3, 7, 9).to(dtype)
    x[:, :, 0, 0] = -9
    y, index = aten.max_pool2d_with_indices.default(x, *arguments)
    grad = torch.randint(-8, 9, y.shape).to(dtype)
    grad[1, 2, 1, 1] = float("nan")
    window, stride, padding, dilation, ceil_mode = [*arguments, *([], [0, 0], [1, 1], False)[len(arguments) - 1 :]]

    def function(grad, x, index):
        return aten.max_pool2d_with_indices_backward.default(
            grad, x, window, stride, padding, dilation, ceil_mode, index
        )

    check(function, grad, x, index, dynamic=dynamic)


@DYNAMIC
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("divisor", [None, 5])
@pytest.mark.parametrize(
    ("window", "padding"), [([2, 2], [0, 0]), ([3, 3], [1, 1]), ([1, 5], [0, 2]), ([3, 2], [0, 1])]
)
def test_avg_pool_backward(window, padding, divisor, dtype, dynamic):
    """Windows one element apart; the gradient has a NaN, and elements whose sum is infinite where that of their parts is not."""
    x = torch.randn(2, 3, 7, 9).to(dtype)
    grad = torch.randint(-8, 9, aten.avg_pool2d.default(x, window, [1, 1], padding).shape).to(dtype)
    grad[1, 2, 1, 1] = float("nan")
    grad[0, 0, 2:4, 2:4] = torch.finfo(dtype).max / 2

    def function(grad, x):
        return aten.avg_pool2d_backward.default(grad, x, window, [1, 1], padding, False, True, divisor)

    rtol, atol = (2e-2, 1e-1) if dtype == torch.bfloat16 else (2e-6, 1e-5)  # eager rounds each sum
    check(function, grad, x, dynamic=dynamic, rtol=rtol, atol=atol)


@DYNAMIC
@pytest.mark.parametrize("seed", range(24))
def test_gradients_of_avg_pool_with_strides(seed, dynamic):
    """Windows that overlap, touch and leave gaps, that reach outside at both ends, and what their means may divide by."""
    draw = random.Random(seed)
    rank, dtype = draw.choice([(2, torch.float32), (2, torch.bfloat16), (2, torch.float64), (3, torch.float32)])
    window = [draw.randint(1, 4) for _ in range(rank)]
    stride = draw.choice([[], [2] * rank, [draw.randint(1, 4) for _ in range(rank)]])
    padding = [draw.randint(0, n // 2) for n in window]
    x = torch.randn(2, 3, *(draw.randint(5, 8) for _ in range(rank))).to(dtype)
    settings = window, stride, padding, draw.random() < 0.5, draw.random() < 0.5, draw.choice([None, None, 5])
    forward, backward = {
        2: (aten.avg_pool2d.default, aten.avg_pool2d_backward.default),
        3: (aten.avg_pool3d.default, aten.avg_pool3d_backward.default),
    }[rank]
    grad = torch.randint(-8, 9, forward(x, *settings).shape).to(dtype)
    grad.view(-1)[draw.randrange(grad.numel())] = draw.choice([float("nan"), float("inf"), 0.0])
    rtol, atol = (2e-2, 1e-1) if dtype == torch.bfloat16 else (2e-6, 1e-5)  # eager rounds each sum
    few = math.prod((n - 1) // m + 1 for n, m in zip(window, stride or window, strict=True)) <= pooling.MOST_WINDOWS
    check(lambda y, x: backward(y, x, *settings), grad, x, dynamic=dynamic, rtol=rtol, atol=atol, aten=not few)


def test_gradients_of_avg_pool_with_many_windows():
    x = torch.randn(1, 2, 5, 4, 6)
    settings = [3, 2, 2], [1, 1, 1], [1, 0, 0], False, True, None
    y = aten.avg_pool3d.default(x, *settings)
    check(lambda y, x: aten.avg_pool3d_backward.default(y, x, *settings), y, x)
    settings = [3, 3, 2], [1, 1, 1], [1, 0, 0], False, False, None
    y = aten.avg_pool3d.default(x, *settings)
    check(lambda y, x: aten.avg_pool3d_backward.default(y, x, *settings), y, x, aten=True)


def test_max_pool_of_infinities_and_nan():
    x = torch.full((1, 1, 5, 5), -float("inf"))
    x[0, 0, 4, 4] = float("nan")
    check(lambda x: aten.max_pool2d_with_indices.default(x, [3, 3], [2, 2], [1, 1]), x)


def test_pools_of_other_ranks():
    check(lambda x: aten.max_pool2d_with_indices.default(x, [2, 2]), torch.randn(3, 4, 6))
    check(lambda x: aten.max_pool3d_with_indices.default(x, [2, 2, 2]), torch.randn(1, 2, 4, 4, 6))
    check(lambda x: aten.avg_pool3d.default(x, [2, 2, 3]), torch.randn(1, 2, 4, 4, 6))
    check(
        lambda x: aten.max_pool2d_with_indices.default(x, [2, 2]),
        torch.randn(2, 3, 4, 6).to(memory_format=torch.channels_last),
    )


@DYNAMIC
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(
    "arguments", [([2, 2],), ([3, 3], [2, 2], [1, 1]), ([3, 2], [2, 1], [1, 0], True), ([2, 2], [3, 3], [1, 1], True)]
)
def test_avg_pool(arguments, inside, dtype, dynamic):
    x = torch.randn(2, 3, 7, 8, dtype=dtype)
    check(lambda x: aten.avg_pool2d.default(x, *arguments, count_include_pad=not inside), x, dynamic=dynamic)


def test_other_avg_pools():
    x = torch.randn(2, 3, 8, 6)
    check(lambda x: aten.avg_pool2d.default(x, [2, 2], divisor_override=3), x)
    check(lambda x: aten._adaptive_avg_pool2d.default(x, [2, 3]), x)
    check(lambda x: aten._adaptive_avg_pool2d.default(x, [3, 3]), x, aten=True)
    check(lambda x: aten.avg_pool2d.default(x, [9, 9]), torch.randn(1, 1, 9, 9), aten=True)


@DYNAMIC
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.bool])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_running_folds(dim, dtype, dynamic):
    x = (torch.randn(3, 4, 5) * 2).to(dtype)
    check(lambda x: (aten.cumsum.default(x, dim), aten.cumprod.default(x, dim)), x, dynamic=dynamic)
    check(lambda x: (*aten.cummax.default(x, dim), *aten.cummin.default(x, dim)), x, dynamic=dynamic)


def test_running_folds_of_nan_and_of_little():
    x = torch.tensor([3.0, float("nan"), 1.0, float("nan"), 5.0, -float("inf")])
    check(lambda x: (*aten.cummax.default(x, 0), *aten.cummin.default(x, 0), aten.cumsum.default(x, 0)), x)
    for x in (torch.tensor(3.0), torch.empty(0), torch.empty(2, 0)):
        check(lambda x: (aten.cumsum.default(x, 0, dtype=torch.float64), *aten.cummax.default(x, 0)), x)

"""Pools whose windows are read along their rows, and gradients of windows that lie apart, as machine code."""

import pytest
import torch
import torch.nn.functional as F

OPTIONS = {"cache": False, "fallback": "error"}


def error_of(function, x, dynamic):
    """Ours and eager's results and gradients, and those of float64."""
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="mlirc", options=OPTIONS, dynamic=dynamic)
    found = []
    for call, dtype in ((compiled, x.dtype), (function, x.dtype), (function, torch.float64)):
        leaf = x.detach().to(dtype).requires_grad_()
        y = call(leaf)
        weight = torch.linspace(-1, 2, y.numel(), dtype=torch.float64).view(y.shape).to(y)
        (y * weight).sum().backward()
        found.append((y.detach(), leaf.grad))
    for ours, eager, exact in zip(*found, strict=True):
        assert ours.dtype == eager.dtype and ours.shape == eager.shape
        assert ours.stride() == eager.stride()
        if exact.isfinite().all() and exact.numel():
            allowed = (
                2 * (eager.double() - exact).abs().max()
                + torch.finfo(x.dtype).eps * x.nan_to_num(0, 0, 0).abs().max() / 8
            )
            assert (ours.double() - exact).abs().max() <= allowed
        else:
            torch.testing.assert_close(ours, eager, equal_nan=True)


@pytest.mark.thinned
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("shape", "settings"),
    [
        ((2, 3, 56, 56), (7,)),
        ((2, 3, 21, 35), (7,)),
        ((1, 2, 17, 23), ((2, 5), (3, 6))),
        ((2, 1, 12, 13), ((3, 6), (2, 6), (1, 3), True, False)),
        ((2, 1, 12, 13), (5, 5, 2, True, True)),
        ((1, 1, 5, 6), ((5, 6),)),
        ((1, 1, 7, 64), ((1, 8), (7, 8))),
    ],
)
def test_avg_pools_by_rows_of_windows(shape, settings, dtype, dynamic):
    error_of(lambda x: F.avg_pool2d(x, *settings), torch.randn(shape).to(dtype), dynamic)


@pytest.mark.parametrize("dynamic", [False, True])
def test_strided_and_empty_images(dynamic):
    function = lambda x: F.avg_pool2d(x, 7)
    images = torch.randn(2, 3, 28, 29)
    for x in (images[:, :, ::2], images[..., 1:], images[0], images[:0], images.to(memory_format=torch.channels_last)):
        error_of(function, x, dynamic)
    error_of(function, images.transpose(2, 3), dynamic)


def test_special_values():
    x = torch.randn(1, 2, 14, 14)
    x[0, 0, 3, 3], x[0, 0, 9, 9], x[0, 1, 0, 0] = torch.nan, torch.inf, -torch.inf
    error_of(lambda x: F.avg_pool2d(x, 7), x, False)
    zeros = torch.full((1, 1, 7, 7), -0.0)
    compiled = torch.compile(lambda x: F.avg_pool2d(x, 7), backend="mlirc", options=OPTIONS)
    assert torch.signbit(compiled(zeros)).equal(torch.signbit(F.avg_pool2d(zeros, 7)))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("function", "sizes"), [(F.adaptive_avg_pool2d, (7, 8, 1)), (F.adaptive_max_pool2d, (7, 8))])
def test_adaptive_pools(function, sizes, dynamic):
    for size in sizes:
        error_of(lambda x, size=size: function(x, size), torch.randn(2, 3, 56, 56), dynamic)


@pytest.mark.parametrize("size", [5, 6, 7, 9])
def test_repeated_elements(size):
    """An axis is split at parts of so few elements, whatever a vector's lanes are."""
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int8):
        x = torch.randint(-9, 9, (3, 4 * size)).to(dtype)
        for function in (
            lambda x: x.repeat_interleave(size, -1) + 1,
            lambda x: x.view(3, size, 4).transpose(1, 2).reshape(3, -1) + 1,
        ):
            torch._dynamo.reset()
            assert torch.compile(function, backend="mlirc", options=OPTIONS)(x).equal(function(x))

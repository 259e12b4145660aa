"""Running sums and products, compiled: along any dimension, in blocks of rows, after casts, beside a sum that has two levels."""

import pytest
import torch

from tests.kernel_runner import NativeKernel, info

pytestmark = pytest.mark.thinned


@pytest.mark.thinned(3)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_a_scan_along_any_dimension(dim, dtype, dynamic):
    torch._dynamo.reset()
    compiled = torch.compile(folds, backend="mlirc", dynamic=dynamic, options={"fallback": "error"})
    for shape in ((4, 2, 16), (5, 17, 7), (2, 3, 900)):
        x = torch.randn(shape)
        for found, expected in zip(compiled(x, dim, dtype), folds(x, dim, dtype), strict=True):
            torch.testing.assert_close(found, expected)


def folds(x, dim, dtype):
    y = x.to(dtype)
    return x.cumsum(dim, dtype=dtype), y.sigmoid().cumprod(dim), y.cumsum(dim), y.sum(dim)


SCANS = {
    "cummin": lambda x: torch.cummin(x, -1),
    "cummax": lambda x: torch.cummax(x, -1),
    "cumsum": lambda x: (torch.cumsum(x, -1, dtype=x.dtype), x),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", [torch.int8, torch.float32])
@pytest.mark.parametrize("second", SCANS)
@pytest.mark.parametrize("first", SCANS)
def test_a_scan_of_a_scan_beside_folds_of_both(first, second, dtype):
    """A later pass reads a scan back: it is not done again, from what that pass does not have."""

    def program(x):
        a = SCANS[first](x)
        total = torch.logsumexp(a[0], -1)
        b = SCANS[second](a[0])
        return total, b[0], b[1], torch.logsumexp(b[1], -1, keepdim=True), torch.softmax(b[0].float(), -1)

    torch._dynamo.reset()
    compiled = torch.compile(program, backend="mlirc", dynamic=False, options={"fallback": "error"})
    for shape in ((17,), (3, 40)):
        x = torch.randint(-5, 5, shape, generator=torch.Generator().manual_seed(0)).to(dtype)
        for found, expected in zip(compiled(x), program(x), strict=True):
            torch.testing.assert_close(found, expected)


ALONG = {
    "cumsum": lambda x: x.cumsum(-1) - x.sum(-1, keepdim=True),
    "cumsum as int32": lambda x: x.cumsum(-1, dtype=torch.int32),
    "cumprod": lambda x: x.cumprod(-1),
    "cummax": lambda x: x.cummax(-1),
    "cummin": lambda x: x.cummin(-1),
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool, torch.float32, torch.float64])
@pytest.mark.parametrize("fold", ALONG)
def test_lanes_along_a_scan(fold, dtype, dynamic):
    """Wrapped integers, the first NaN, and of equal zeros the sign of the last."""
    if dtype.is_floating_point and "cumm" not in fold:
        pytest.skip("sums of floating-point numbers are in order")
    function = ALONG[fold]
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="mlirc", dynamic=dynamic, options={"fallback": "error"})
    for shape in ((5, 7), (2, 40), (1, 3000)):
        x = torch.randint(-100, 100, shape).to(dtype)
        if dtype.is_floating_point:
            x = torch.where(
                torch.rand(shape) < 0.02, torch.nan, torch.randint(-2, 3, shape) * torch.randn(shape).sign()
            )
        x = x.to(dtype)
        found, expected = compiled(x), function(x)
        for a, b in zip(*(r if isinstance(r, tuple) else [r] for r in (found, expected)), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
            assert torch.equal(a.signbit() | a.isnan(), b.signbit() | b.isnan())


@pytest.mark.parametrize("dtype, transposes", [(torch.int64, False), (torch.int32, False), (torch.float32, True)])
def test_a_scan_of_integers_transposes_nothing(dtype, transposes):
    def build(k, x):
        return [(k.scan("sum", k.read(x, k.dims)), k.dims, info(dtype, "64, 1024"))]

    kernel = NativeKernel([info(dtype, "64, 1024")], "64", "1024", build)
    assert ("load_transposed" in kernel.mlir) == transposes
    kernel.check(torch.randint(99, (64, 1024)).to(dtype))

"""Running sums and products, compiled: along any dimension, in blocks of rows, after casts, beside a sum that has two levels."""

import pytest
import torch

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

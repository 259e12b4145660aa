"""Running sums and products, compiled: along any dimension, in blocks of rows, after casts, beside a sum that has two levels."""

import pytest
import torch


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

"""Variances of hard rows of float32 and half types: at most twice eager's error, and a rounding."""

import math

import pytest
import torch

import mlirc

pytestmark = pytest.mark.thinned

LENGTHS = (1, 2, 3, 64, 3072, 70001)


def hard_rows(n: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(n)
    x = torch.randn(n, generator=generator, dtype=torch.float64)
    first = torch.arange(n) == 0
    rows = [
        x,
        x + 1e4,
        x * 1e-3 + 1e4,
        x + 1e6,
        x.masked_fill(first, 1e6),  # the first element is far from all others
        x.masked_fill(first, 1e15),
        x * 1e-3 + first * 1e7 + 100,
        (torch.arange(n) == n - 1) * 1e8 + x,
        torch.full((n,), 0.1, dtype=torch.float64),
        torch.full((n,), 3e38, dtype=torch.float64),
        x * 1e18,
        x.clamp(-3, 3) * 1e37,
        x * 1e-6,
        torch.arange(n).double() % 2 * 2 - 1,
        x.exp() ** 3,
        x.masked_fill(first, math.inf),
        x.masked_fill(torch.arange(n) == n - 1, -math.inf),
        x.masked_fill(first, math.nan),
    ]
    return torch.stack(rows)


def program(x):
    return [
        x.var(1),
        x.std(1),
        x.var(1, correction=0),
        x.std(1, keepdim=True),
        *torch.var_mean(x, 1),
        *torch.std_mean(x, 1, correction=2),
        x.var(0),
        x.t().contiguous().std(0),
        x.var(),
        x[:, None].var((1, 2)),
        (x * 0.5).var(1),
    ]


def near(got: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    eps = torch.finfo(got.dtype).eps
    off = (eager.double() - exact).abs()
    close = (got.double() - exact).abs() <= 2 * off + eps * exact.abs() + 1e-15
    return close | (got == eager) | (got.isnan() & eager.isnan())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("n", LENGTHS)
def test_hard_rows(n, dtype):
    x = hard_rows(n).to(dtype)
    torch.compiler.reset()
    compiled = torch.compile(program, backend="mlirc", fullgraph=True, options={"fallback": "error"})
    exact = program(x.double())
    for k, (got, eager, right) in enumerate(zip(compiled(x), program(x), exact, strict=True)):
        assert got.dtype == eager.dtype and got.shape == eager.shape
        fine = near(got, eager, right)
        if not fine.all():
            bad = ~fine
            shown = [v[bad][:4].tolist() for v in (got, eager, right)]
            raise AssertionError(f"{k}: {int(bad.sum())} at {bad.nonzero()[:4].tolist()}: {shown}")


def test_rows_of_a_size_that_is_not_known():
    torch.compiler.reset()
    compiled = torch.compile(lambda x: x.var(1), backend="mlirc", dynamic=True)
    for n in (4, 9, 1, 0):
        x = torch.randn(3, n)
        torch.testing.assert_close(compiled(x), x.var(1), equal_nan=True)
    torch.testing.assert_close(compiled(torch.randn(0, 5)), torch.zeros(0))


def test_one_kernel():
    """What stands in front of a variance is computed in its loop."""
    x, y = torch.randn(64, 768), torch.randn(64, 768)
    with torch.no_grad():
        data = mlirc.explain(lambda x, y: (x * y).var(1))(x, y).data
    assert len(data["graphs"][0]["kernels"]) == 1

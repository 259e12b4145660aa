"""Scans and sums on a GPU: rows that are the same for all, rows of few elements, and the signs of zeros."""

import itertools

import pytest
import torch
import torch.nn.functional as F

OPTIONS = {"fallback": "error"}
SIZES = (1, 2, 8, 9, 16, 17, 100, 1000, 5000)


@pytest.mark.parametrize("columns", [1, 2, 3, 17])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"])
def test_scans(name, columns):
    torch._dynamo.config.recompile_limit = 100
    scan = getattr(torch, name)
    compiled = torch.compile(lambda x, dim: scan(x, dim), backend="mlirc", dynamic=False, options=OPTIONS)
    for n, expanded in itertools.product(SIZES, (False, True)):
        x = torch.rand(n, 1 if expanded else columns, device="cuda") + 0.5
        x = x.expand(n, columns)
        for given, dim in ((x, 0), (x.t(), 1)):
            found, eager, exact = compiled(given, dim), scan(given, dim), scan(given.double(), dim)
            if isinstance(eager, tuple):
                assert torch.equal(found[0], eager[0]) and torch.equal(found[1], eager[1])
            else:
                limit = 2 * (eager.double() - exact).abs().max() + 1e-6 * exact.abs().max()
                assert (found.double() - exact).abs().max() <= limit, (n, expanded, dim)


def test_two_scans_of_one_row():
    def fn(x):
        return x.cumprod(0), F.batch_norm(x.floor().cumsum(0), None, None, training=True)

    for n in SIZES[2:]:
        x = (torch.rand(n, 2, device="cuda") * 0.2 + 0.9)[:, :1].expand(n, 3)
        for found, eager in zip(
            torch.compile(fn, backend="mlirc", dynamic=False, options=OPTIONS)(x), fn(x), strict=True
        ):
            torch.testing.assert_close(found, eager, rtol=1e-4, atol=1e-4)


SUMS = {
    "rows": lambda x: x.sum(-1),
    "columns": lambda x: x.sum(0),
    "all": lambda x: x.sum(),
    "two": lambda x: x[:, :2].sum(-1),
    "nansum": lambda x: x.nansum(0),
    "mean": lambda x: x.mean(-1),
    "nanmean": lambda x: x.nanmean(-1),
    "cumsum": lambda x: x.cumsum(-1),
    "cumsum of columns": lambda x: x.cumsum(0),
    "pool": lambda x: F.adaptive_avg_pool2d(x[None], 1),
    "squares": lambda x: (x * x.flip(0)).sum(0),
    "group norm": lambda x: F.group_norm(x[None], 2),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("shape", [(4, 8), (2, 64), (6, 5)])
def test_sums_of_zeros_begin_at_zero(name, shape, dtype):
    """Eager's sum of -0.0 alone is 0.0 on a GPU. (Its layer norm of 8 elements gives -0.0, and of 5 gives 0.0.)"""
    fn = SUMS[name]
    x = torch.full(shape, -0.0, dtype=dtype, device="cuda")
    for given in (x, torch.cat([x, x.abs()])):
        found, eager = torch.compile(fn, backend="mlirc", dynamic=False, options=OPTIONS)(given), fn(given)
        assert torch.equal(found.signbit(), eager.signbit()) and torch.equal(found, eager)


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_a_slice_is_overwritten_from_another_device(place):
    x, there = torch.randn(8, 3, device=place), torch.randn(3, 3, device="cuda" if place == "cpu" else "cpu")

    def fn(x, there):
        return torch.slice_scatter(x, there, 0, -3), x.diagonal().clone().copy_(there[0])

    found = torch.compile(fn, backend="mlirc", options=OPTIONS)(x, there)
    for have, want in zip(found, fn(x, there), strict=True):
        assert have.device == want.device and torch.equal(have, want)

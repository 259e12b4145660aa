"""The error of long sums of float64 is within twice eager's and a rounding of the result; eager's sums are a cascade, on one thread and on two."""

import math

import numpy as np
import pytest
import torch

pytestmark = pytest.mark.thinned

KINDS = {
    "random": lambda x: x,
    "sorted in rows": lambda x: x.view(-1, 50).sort(-1)[0].flatten(),
    "positive": torch.abs,
}


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("length", [1000, 166400, 1000000])
@pytest.mark.parametrize("kind", KINDS)
def test_error(kind, length, threads):
    torch.compiler.reset()
    compiled = torch.compile(lambda x: x.sum(), backend="mlirc")
    errors, rounding = [], 0.0
    for seed in range(12):
        x = KINDS[kind](torch.randn(length, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)))
        exact = math.fsum(x.tolist())
        rounding = max(rounding, abs(exact) * 2**-53)
        errors.append([x.sum().item() - exact, compiled(x).item() - exact])
    eager, ours = torch.tensor(errors, dtype=torch.float64).square().mean(0).sqrt().tolist()
    assert ours <= 2 * eager + rounding, (ours, eager)


ORDERS = {
    "random": lambda x: x,
    "sorted": lambda x: x.sort(-1)[0],
    "alternating": lambda x: x.abs() * torch.tensor([1.0, -1.0], dtype=x.dtype).repeat(x.shape[-1] // 2),
    "geometric": lambda x: torch.logspace(0, -16, x.shape[-1], dtype=x.dtype) * (1 + x / 10),
}
OF_ROWS = {  # in PyTorch, and in numbers of 64 bits of precision
    "sum": (lambda x: x.sum(-1), lambda x: x.sum(-1)),
    "mean": (lambda x: x.mean(-1), lambda x: x.mean(-1)),
    "var": (lambda x: x.var(-1), lambda x: ((x - x.mean(-1, keepdims=True)) ** 2).sum(-1) / (x.shape[-1] - 1)),
    "norm": (lambda x: x.norm(dim=-1), lambda x: np.sqrt((x * x).sum(-1))),
    "logsumexp": (lambda x: x.logsumexp(-1), lambda x: np.log(np.exp(x).sum(-1))),
    "cumsum": (lambda x: x.cumsum(-1), lambda x: x.cumsum(-1)),
}


@pytest.mark.thinned(2)
@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="no wider numbers than float64")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", OF_ROWS)
def test_error_of_rows(name, order):
    """In the mean over rows: of a single row eager's error may be 0 by chance."""
    torch.compiler.reset()
    eager, in_wide = OF_ROWS[name]
    x = ORDERS[order](torch.randn(24, 100_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    exact = in_wide(x.numpy().astype(np.longdouble))
    rounding = np.sqrt(np.square(exact * 2**-53).mean())
    errors = [y(x).numpy() - exact for y in (torch.compile(eager, backend="mlirc"), eager)]
    ours, eagers = (np.sqrt(np.square(error).mean()) for error in errors)
    assert ours <= 2 * eagers + rounding, (ours, eagers)


COLUMNS = [((1000, 64), 0), ((20000, 20), 0), ((16, 5000, 3), 1), ((9, 700, 5, 8), (0, 1))]


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("sizes", "dims"), COLUMNS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_error_of_columns(sizes, dims, dynamic, threads):
    torch.compiler.reset()
    compiled = torch.compile(lambda x: x.sum(dims), backend="mlirc", dynamic=dynamic)
    errors, rounding = [], 0.0
    for seed in range(4):
        x = torch.randn(sizes, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        x = x.sort(0 if dims == 0 else 1)[0] if seed % 2 else x
        high = (x * 2**20).round() * 2**-20  # its sums are exact in float64, and so are nearly those of the rest
        low = x - high
        exact, rest = high.sum(dims), low.sum(dims)
        rounding = max(rounding, exact.abs().max().item() * 2**-53)
        errors.append([((y - exact) - rest).square().mean() for y in (x.sum(dims), compiled(x))])
    eager, ours = torch.tensor(errors, dtype=torch.float64).mean(0).sqrt().tolist()
    assert ours <= 2 * eager + rounding, (ours, eager)


@pytest.mark.parametrize("dynamic", [False, True])
def test_special_values_of_columns(dynamic, threads):
    torch.compiler.reset()
    compiled = torch.compile(lambda x: (x.sum(0), x.mean(0), x.exp().sum(0)), backend="mlirc", dynamic=dynamic)
    x = torch.zeros(5000, 21, dtype=torch.float64)
    for column, value in enumerate((math.inf, -math.inf, math.nan, 1e308, -0.0)):
        x[7:9, column] = value
        x[:, 20 - column] = value
    x[70, 0] = -math.inf
    for found, expected in zip(compiled(x), (x.sum(0), x.mean(0), x.exp().sum(0)), strict=True):
        torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.parametrize("dynamic", [False, True])
def test_special_values(dynamic, threads):
    """What a sum loses is no number once it is infinite."""
    torch.compiler.reset()
    compiled = torch.compile(lambda x: (x.sum(), x.mean(-1), x.exp().sum((0, 1))), backend="mlirc", dynamic=dynamic)
    for value in (math.inf, -math.inf, math.nan, 1e308, -0.0):
        x = torch.zeros(3, 70001, dtype=torch.float64)
        x[1, 5:9] = value
        for found, expected in zip(compiled(x), (x.sum(), x.mean(-1), x.exp().sum()), strict=True):
            torch.testing.assert_close(found, expected, equal_nan=True)
        x[1, 6] = -value
        assert torch.equal(compiled(x)[0].isnan(), x.sum().isnan())


def test_several_sums_in_one_pass(threads):
    torch.compiler.reset()
    x = torch.randn(3, 70001, dtype=torch.float64)

    def program(x):
        return x.sum(-1), x.abs().sum(-1), x.amax(-1), (x * 3).sum(-1), x.argmax(-1), x.std(-1)

    for found, expected in zip(torch.compile(program, backend="mlirc")(x), program(x), strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("queries", [1, 40])
@pytest.mark.parametrize("keys", [225, 1025, 4096])
def test_error_of_attention(queries, keys):
    """Of values that are alike, which are weighted alike: their sums grow from key to key."""
    torch.compiler.reset()
    compiled = torch.compile(torch.nn.functional.scaled_dot_product_attention, backend="mlirc")
    q, k, v = torch.zeros(1, 2, queries, 64), torch.randn(1, 2, keys, 64), 1 + torch.rand(1, 2, keys, 64)
    exact = v.double().mean(-2, keepdim=True)
    call = torch.nn.functional.scaled_dot_product_attention
    ours, eagers = ((f(q, k, v) - exact).square().mean().sqrt() for f in (compiled, call))
    assert ours <= 2 * eagers, (ours, eagers)

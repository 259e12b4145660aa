"""The elementary functions of VectorBuilder against torch in float64: dense grids, special values, several widths."""

import math

import pytest
import torch

from mlirc.lowering.cpu.math.functions import MATH
from tests.vector_kernel import elementwise

INF, NAN = math.inf, math.nan
TINY, HUGE = 2.0**-149, 3.4e38
SPECIAL = [0.0, -0.0, INF, -INF, NAN, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, TINY, -TINY, 1e-38, HUGE, -HUGE]

# where each function's interesting numbers lie; the grid has all magnitudes too
RANGES = {
    "exp": (-90.0, 90.0),
    "exp2": (-130.0, 130.0),
    "expm1": (-3.0, 3.0),
    "log": (0.4, 2.5),
    "log2": (0.4, 2.5),
    "log10": (0.4, 2.5),
    "log1p": (-1.0, 2.0),
    "sin": (-100.0, 100.0),
    "cos": (-100.0, 100.0),
    "tan": (-100.0, 100.0),
    "asin": (-1.0, 1.0),
    "acos": (-1.0, 1.0),
    "atan": (-3.0, 3.0),
    "sinh": (-3.0, 3.0),
    "cosh": (-3.0, 3.0),
    "tanh": (-2.0, 2.0),
    "asinh": (-3.0, 3.0),
    "acosh": (1.0, 3.0),
    "atanh": (-1.0, 1.0),
    "erf": (-4.0, 4.0),
    "erfc": (-4.0, 10.0),
}
UNARY = sorted(RANGES)
LANES = (16, 8, 1)
BY_WIDTH = ("erf",)  # 16 and 8 lanes have forms of their own; a loop's tail is as wide as its vectors, with a mask


@pytest.fixture(autouse=True)
def one_thread():
    """The grids are small: waking a second thread for them takes longer than the work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def call(name, lanes, *inputs):
    dtype = inputs[0].dtype
    return elementwise(lambda b, *x: MATH[name](b, *x), [dtype] * len(inputs), dtype, lanes)(*inputs)


def grid(name: str) -> torch.Tensor:
    """One of each 2^16 float32 numbers, and a fine grid of the interesting range."""
    bits = torch.arange(-(1 << 31), 1 << 31, 1 << 16) + torch.randint(0, 1 << 16, (1 << 16,))
    everywhere = bits.to(torch.int32).view(torch.float32)
    low, high = RANGES[name]
    fine = torch.linspace(low, high, 1 << 16, dtype=torch.float64).float()
    x = torch.cat([everywhere[everywhere.isfinite()], fine])
    return x[: x.numel() // 16 * 16]


def ulps(got: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """The distance of float32 from float64 results in units of the last place; 0 where both overflow or are NaN."""
    rounded = exact.float()
    exponent = torch.frexp(exact).exponent
    unit = torch.ldexp(torch.ones_like(exact), (exponent - 24).clamp(min=-149))
    error = (got.double() - exact).abs() / unit
    equal = (got == rounded) | (got.isnan() & rounded.isnan())
    # just below the overflow either side of it is near
    edge = (rounded.isinf() | got.isinf()) & (exact.abs() > 3.402823e38) & (exact.abs() < 3.402824e38)
    return torch.where(equal | edge, 0.0, error.nan_to_num(nan=INF))


def assert_close(got, exact, eager):
    """At most 1.5 units in the last place, or twice what eager's own result is away."""
    eager_error = ulps(eager, exact)
    limit = max(1.5, 2 * eager_error[eager_error.isfinite()].max().item())
    error = ulps(got, exact)
    worst = error.argmax()
    assert error[worst] <= limit, f"{got[worst]} should be {exact[worst]}: {error[worst]:.2f} ulp, allowed {limit:.2f}"


def test_erf_between_intervals():
    """Every number near the ends of the intervals of its tables, where rounding decides which one it is in."""
    middles = torch.cat([torch.arange(1, 33) * (width / 2) for width in (33 / 128, 67 / 128)])
    near = middles.view(torch.int32)[:, None] + torch.arange(-64, 65, dtype=torch.int32)
    x = near.flatten().view(torch.float32)
    for lanes in LANES:
        assert_close(call("erf", lanes, x), torch.erf(x.double()), torch.erf(x))


@pytest.mark.thinned(12)
@pytest.mark.parametrize("name", UNARY)
def test_error(name):
    x = grid(name)
    exact, eager = getattr(torch, name)(x.double()), getattr(torch, name)(x)
    results = [call(name, lanes, x) for lanes in LANES]
    for got in results:
        assert_close(got, exact, eager)
    numbers = ~exact.isnan()
    assert name in BY_WIDTH or all(torch.equal(got[numbers], results[-1][numbers]) for got in results)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("name", UNARY)
@pytest.mark.thinned
def test_special_values(name, lanes):
    x = torch.tensor(SPECIAL)
    got, expected = call(name, lanes, x), getattr(torch, name)(x.double()).float()
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=2 * TINY, equal_nan=True)
    numbers = ~expected.isnan()
    assert torch.equal(got.signbit()[numbers], expected.signbit()[numbers])


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("name", ["pow", "atan2"])
def test_special_pairs(name, lanes):
    numbers = torch.tensor([*SPECIAL[:12], 3.0, -3.0, 1.5, -1e30])
    x, y = numbers.repeat_interleave(16), numbers.repeat(16)
    got, expected = call(name, lanes, x, y), getattr(torch, name)(x.double(), y.double()).float()
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=2 * TINY, equal_nan=True)
    defined = ~expected.isnan()
    assert torch.equal(got.signbit()[defined], expected.signbit()[defined])


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("name", ["pow", "atan2"])
def test_error_of_pairs(name, lanes):
    n = 1 << 16
    anything = torch.randint(-(1 << 31), 1 << 31, (2 * n,)).to(torch.int32).view(torch.float32).nan_to_num(1.0)
    x = torch.cat([anything[:n], torch.rand(n) * 4, torch.randn(n) * 3, torch.rand(n) * 0.2 + 0.9])
    y = torch.cat([anything[n:], torch.randn(n) * 10, torch.randint(-9, 9, (n,)).float(), torch.randn(n) * 300])
    function = getattr(torch, name)
    assert_close(call(name, lanes, x, y), function(x.double(), y.double()), function(x, y))


@pytest.mark.parametrize("exponent", [2.0, 3.0, 0.5, -0.5, -1.0, -2.0, 1.7])
def test_pow_of_a_constant(exponent):
    x = torch.cat([torch.tensor(SPECIAL), torch.rand(1024) * 10])
    got = elementwise(lambda b, x: b.pow(x, b.constant(exponent)), [torch.float32], torch.float32, 16)(x)
    powers = torch.pow(x, torch.full_like(x, exponent))  # C's pow: of a number, eager's 0.5 is a root
    torch.testing.assert_close(got, powers, rtol=2e-7, atol=0, equal_nan=True)


@pytest.mark.parametrize("lanes", (16, 4, 1))
@pytest.mark.parametrize("name", [*UNARY, "pow", "atan2"])
@pytest.mark.thinned
def test_float64(name, lanes):
    low, high = RANGES.get(name, (0.1, 5.0))
    x = torch.linspace(max(low, -20.0), min(high, 20.0), 1024, dtype=torch.float64)
    inputs = (x,) if name in RANGES else (x, x.flip(0))
    torch.testing.assert_close(call(name, lanes, *inputs), getattr(torch, name)(*inputs), rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("name", UNARY)
def test_float64_of_any_magnitude(name):
    x = torch.ldexp(torch.rand(2096, dtype=torch.float64) + 1, torch.arange(-1072, 1024).double())
    x = torch.cat([-x, x, torch.tensor(SPECIAL, dtype=torch.float64)])
    torch.testing.assert_close(call(name, 8, x), getattr(torch, name)(x), rtol=2e-14, atol=1e-323, equal_nan=True)


def test_sine_of_large_numbers_in_some_lanes():
    """Lanes beyond the inline reduction take another path; their neighbours must not change."""
    x = torch.linspace(-30.0, 30.0, 1024)
    alone = call("sin", 16, x)
    x[5::16] = torch.logspace(5, 38, 64)
    got = call("sin", 16, x)
    exact = torch.sin(x.double())
    assert ulps(got, exact).max() < 1.5
    others = torch.arange(1024) % 16 != 5
    assert torch.equal(got[others], alone[others])

"""Special functions where their formula changes, and next to their singularities: compiled, against float64."""

import mpmath
import pytest
import torch

from tests.dialects.numbers.test_special_values import compiled


def test_erfinv_next_to_one():
    rest = 2.0 ** -torch.arange(1, 53, dtype=torch.float64)
    found = compiled(torch.erfinv)(torch.cat([1 - rest, rest - 1]))
    torch.testing.assert_close(found, torch.erfinv(torch.cat([1 - rest, rest - 1])), rtol=4e-16, atol=0)


def around(points: list[float], dtype: torch.dtype) -> torch.Tensor:
    """Each point, its neighbours and numbers near it."""
    x = torch.tensor(points, dtype=dtype)
    up, down = (torch.nextafter(x, torch.full_like(x, end)) for end in (torch.inf, -torch.inf))
    apart = [x + d for d in (-0.01, -1e-4, 1e-4, 0.01)]
    return torch.cat([x, up, down, *apart])


GAMMA = {"lgamma": lambda x: mpmath.log(abs(mpmath.gamma(x))), "digamma": mpmath.digamma}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", GAMMA)
def test_gamma(name, dtype):
    """The relative error of lgamma is small at its zeros 1 and 2, too. Elsewhere zeros are differences of numbers of about 10."""
    positive = around([0.5, 1.0, 2.0, 3.0, 4.0, 7.0, 8.0, 9.0, 1e4], dtype)
    positive = torch.cat([positive, torch.logspace(-30, 30, 200, dtype=dtype)])
    negative = -around([0.25, 0.5, 1.5, 2.25, 7.0, 8.75, 20.5], dtype)
    exact = {}
    for x in (positive, negative):
        with mpmath.workdps(40):
            inside = x[(x > 0) | (x != x.round())]
            values = [float(GAMMA[name](mpmath.mpf(n))) for n in inside.tolist()]
        exact[inside] = torch.tensor(values, dtype=torch.float64)
    found = compiled(lambda xs: [getattr(torch, name)(x) for x in xs])(list(exact))
    eps = torch.finfo(dtype).eps
    for (x, right), got, relative in zip(exact.items(), found, (name == "lgamma", False), strict=True):
        size = right.abs() if relative else right.abs().clamp(min=4.0)
        assert got.dtype == dtype
        wrong = (got.double() - right).abs() > 4 * eps * size
        assert not wrong.any(), [*zip(x[wrong].tolist(), got[wrong].tolist(), right[wrong].tolist(), strict=True)]


def test_digamma_of_halves():
    """Below zero the term pi / tan(pi * x) is 0 here: what is left of it is seen where digamma itself is small, as at -0.5."""
    x = -(torch.arange(12, dtype=torch.float32) + 0.5)
    with mpmath.workdps(40):
        right = torch.tensor([float(mpmath.digamma(mpmath.mpf(n))) for n in x.tolist()], dtype=torch.float64)
    error = (compiled(torch.digamma)(x).double() - right).abs()
    allowed = 4 * torch.finfo(torch.float32).eps * right.abs()
    assert (error <= allowed).all(), [*zip(x.tolist(), error.tolist(), right.tolist(), strict=True)]


def test_gradient_of_lgamma():
    x = torch.rand(40, dtype=torch.float64) * 20
    grad = lambda f: torch.autograd.grad(f(y := x.clone().requires_grad_()).sum(), y)[0]
    torch.testing.assert_close(grad(compiled(torch.lgamma)), grad(torch.lgamma), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_erfcx(dtype):
    """Below zero its square is large, and eager's exponential of a rounded square is off by more; it overflows near -9 and -26."""
    x = around([-26.6, -26.0, -9.38, -9.0, -6.1, -1.0, -0.0625, 0.0, 1.0, 3.0, 50.0], dtype)
    x = torch.cat([x, torch.logspace(-30, 30, 200, dtype=dtype), -torch.logspace(-30, 1.4, 200, dtype=dtype)])
    with mpmath.workdps(40):
        exact = [float(mpmath.exp(n * n) * mpmath.erfc(n)) for n in map(mpmath.mpf, x.tolist())]
    right = torch.tensor(exact, dtype=torch.float64)
    found = compiled(torch.special.erfcx)(x)
    infinite = right.to(dtype).isinf()
    assert found.dtype == dtype and torch.equal(found.isinf(), infinite)
    wrong = ~infinite & ((found.double() - right).abs() > 6 * torch.finfo(dtype).eps * right.abs())
    assert not wrong.any(), [*zip(x[wrong].tolist(), found[wrong].tolist(), right[wrong].tolist(), strict=True)]
    edges = compiled(torch.special.erfcx)(torch.tensor([torch.inf, -torch.inf, torch.nan], dtype=dtype))
    torch.testing.assert_close(edges, torch.tensor([0.0, torch.inf, torch.nan], dtype=dtype), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_log_ndtr(dtype):
    """On both sides of -1, where the formula changes, and far out in both tails. In the upper one erfc(x / sqrt(2)) loses x * x units."""
    x = around([-1e4, -30.0, -6.0, -1.0, 0.0, 1.0, 5.0, 9.0], dtype)
    with mpmath.workdps(60):
        right = torch.tensor(
            [float(mpmath.log(mpmath.ncdf(n))) for n in map(mpmath.mpf, x.tolist())], dtype=torch.float64
        )
    found = compiled(torch.special.log_ndtr)(x)
    units = 8 + x.double().clamp(min=0.0) ** 2
    wrong = (found.double() - right).abs() > units * torch.finfo(dtype).eps * right.abs() + torch.finfo(dtype).tiny
    assert found.dtype == dtype
    assert not wrong.any(), [*zip(x[wrong].tolist(), found[wrong].tolist(), right[wrong].tolist(), strict=True)]


@pytest.mark.parametrize("name", ["erfcx", "log_ndtr"])
def test_gradient_of_scaled_errors(name):
    x = torch.linspace(-5, 12, 40, dtype=torch.float64)
    f = getattr(torch.special, name)
    grad = lambda f: torch.autograd.grad(f(y := x.clone().requires_grad_()).sum(), y)[0]
    torch.testing.assert_close(grad(compiled(f)), grad(f), rtol=1e-13, atol=1e-14)


BESSEL = {"i0": (0, False), "i0e": (0, True), "i1": (1, False), "i1e": (1, True)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_bessel(dtype):
    """From the series to the tail at 8, up to where exp overflows, and next to 0."""
    x = torch.cat([around([0.0, 1.0, 7.5, 8.0, 20.0, 88.0], dtype), torch.logspace(-30, 1.9, 100, dtype=dtype)])
    x = torch.cat([x, -x])
    found = compiled(lambda x: [getattr(torch.special, name)(x) for name in BESSEL])(x)
    for got, (name, (order, scaled)) in zip(found, BESSEL.items(), strict=True):
        with mpmath.workdps(40):
            exact = [
                mpmath.besseli(order, n) * (mpmath.exp(-abs(n)) if scaled else 1) for n in map(mpmath.mpf, x.tolist())
            ]
            right = torch.tensor([float(n) for n in exact], dtype=torch.float64)
        wrong = (got.double() - right).abs() > 4 * torch.finfo(dtype).eps * right.abs() + torch.finfo(dtype).tiny
        assert got.dtype == dtype and not wrong.any(), (name, x[wrong], got[wrong], right[wrong])


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", BESSEL)
def test_gradient_of_bessel(name):
    x = torch.cat([torch.linspace(-12, 12, 40, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)])
    f = getattr(torch.special, name)
    grad = lambda f: torch.autograd.grad(f(y := x.clone().requires_grad_()).sum(), y)[0]
    torch.testing.assert_close(grad(compiled(f)), grad(f), rtol=1e-14, atol=1e-14)


def test_neighbours():
    """Compared by their bits: any tolerance takes a number for its neighbour."""
    bits = {torch.float32: torch.int32, torch.float64: torch.int64, torch.float16: torch.int16}
    pairs = []
    for dtype in (*bits, torch.bfloat16):
        limits = torch.finfo(dtype)
        least = limits.tiny * limits.eps
        positive = [0.0, least, 3 * least, limits.tiny, 1.0, 1.5, 1e4, limits.max, torch.inf]
        x = torch.tensor([*positive, *(-n for n in positive), torch.nan], dtype=torch.float64).to(dtype)
        pairs.append([y.contiguous() for y in torch.broadcast_tensors(x[:, None], x)])
    found = compiled(lambda pairs: [torch.nextafter(x, y) for x, y in pairs])(pairs)
    for (x, y), got in zip(pairs, found, strict=True):
        right, integer = torch.nextafter(x, y), bits.get(x.dtype, torch.int16)
        assert got.dtype == right.dtype and torch.equal(got.isnan(), right.isnan())
        wrong = (got.view(integer) != right.view(integer)) & ~right.isnan()
        assert not wrong.any(), [*zip(x[wrong].tolist(), y[wrong].tolist(), got[wrong].tolist(), strict=True)]

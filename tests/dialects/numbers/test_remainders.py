"""Remainders of floating-point numbers are exact, whatever the quotient: one that overflows, and divisors that are subnormal."""

import math

import pytest
import torch

from tests.dialects.numbers.test_special_values import FLOATS, compiled, same


def wide_range(dtype: torch.dtype) -> torch.Tensor:
    """Powers of two and numbers beside them, from the smallest subnormal to the largest number."""
    limits = torch.finfo(dtype)
    least, most = math.frexp(limits.tiny * limits.eps)[1] - 1, math.frexp(limits.max)[1] - 1
    exponents = {least, least + 3, (least + most) // 2, *range(least, most, (most - least) // 9), -2, -1, 0, 1, most}
    numbers = [math.ldexp(m, e) for e in sorted(exponents) for m in (1.0, 1.3, 1.9)] + [limits.max, math.inf]
    return torch.tensor(numbers, dtype=torch.float64).to(dtype)


REMAINDERS = {
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "floor_divide": torch.floor_divide,
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_remainders_by_what_is_next_to_nothing_are_exact(dtype):
    """Eager's vectors give NaN where the quotient overflows, its scalar code the remainder."""
    values = wide_range(dtype)
    x, y = (v.flatten() for v in torch.meshgrid(torch.cat([values, -values]), values[:-1], indexing="ij"))
    x, y = torch.cat([x, x]), torch.cat([y, -y])
    got = compiled(lambda x, y: [f(x, y) for f in REMAINDERS.values()])(x, y)
    lone = compiled(lambda x, y: [f(x, y) for f in REMAINDERS.values()])(x[777], y[777])
    exact = torch.tensor(
        [math.fmod(a, b) if math.isfinite(a) else math.nan for a, b in zip(x.tolist(), y.tolist(), strict=True)],
        dtype=torch.float64,
    ).to(dtype)
    assert same(exact, got[0], 0.0, 0.0).all()
    single = [f(*(torch.stack([v, v], 1)[:, 0] for v in (x, y))) for f in REMAINDERS.values()]
    for name, mine, eager, one in zip(REMAINDERS, got, single, lone, strict=True):
        vectors = REMAINDERS[name](x, y)
        digits = 0.0 if name in ("fmod", "remainder") else 4 * torch.finfo(dtype).eps
        right = same(eager, mine, digits, 0.0)
        if name not in ("fmod", "remainder"):
            right |= same(vectors, mine, digits, 0.0)
        assert right.all(), (name, x[~right][:4], y[~right][:4], mine[~right][:4], eager[~right][:4])
        assert same(one, mine[777], 0.0, 0.0), name


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_constants_divide_as_tensors_do(dtype):
    x = wide_range(dtype)
    for number in (torch.finfo(dtype).tiny / 4, 0.3, -0.3, 1.0, -7.0):
        exact = [
            math.fmod(a, torch.tensor(number, dtype=dtype).item()) if math.isfinite(a) else math.nan for a in x.tolist()
        ]
        got = compiled(lambda x, y=number: torch.fmod(x, y))(x)
        assert same(torch.tensor(exact, dtype=torch.float64).to(dtype), got, 0.0, 0.0).all(), number


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_quotients_beside_whole_numbers(dtype):
    """The quotient is rounded up to a whole number that the dividend does not reach, or is just below what is divided at once."""
    y = torch.rand(3000).add(0.5).to(dtype)
    whole = torch.cat([torch.randint(1, 2**k, (1000,)) for k in (4, 11, 24)])
    whole[:3] = torch.tensor([2**22, 2**23, 2**24])
    near = (whole * y.double()).clamp(max=torch.finfo(dtype).max).to(dtype)
    x = torch.cat([torch.nextafter(near, torch.zeros_like(near)), near, -near])
    y = torch.cat([y, -y, y])
    exact = torch.tensor([math.fmod(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)], dtype=torch.float64)
    assert same(exact.to(dtype), compiled(torch.fmod)(x, y), 0.0, 0.0).all()

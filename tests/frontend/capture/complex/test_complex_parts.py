"""Chains of complex operators on real and imaginary parts: eager's values, C's special ones, strides and conjugates."""

import math
import random

import pytest
import torch

import mlirc

SPECIAL = (0.0, -0.0, 1.0, -2.5, 80.5, 89.5, -104.0, 720.0, math.inf, -math.inf, math.nan)


def compiled(fn, **options):
    torch._dynamo.reset()
    return torch.compile(fn, backend="mlirc", fullgraph=True, options={"fallback": "error"}, **options)


def calls(fn, *inputs):
    torch._dynamo.reset()
    (graph, *_) = mlirc.explain(fn)(*inputs).data["graphs"]
    return set(graph["aten"])


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_exponentials_of_special_values(dtype):
    z = torch.tensor([complex(x, y) for x in SPECIAL for y in SPECIAL], dtype=dtype)
    assert calls(torch.exp, z) == {"aten.view_as_real.default", "aten.view_as_complex.default"}
    made, wanted = (torch.view_as_real(x) for x in (compiled(torch.exp)(z), torch.exp(z)))
    known = ~z.imag.isinf() | z.real.isfinite()  # C leaves the sign of inf and 0 open for others
    torch.testing.assert_close(made[known], wanted[known], equal_nan=True)
    torch.testing.assert_close(made.abs(), wanted.abs(), equal_nan=True)
    assert torch.equal(made[known].signbit() & (made[known] == 0), wanted[known].signbit() & (wanted[known] == 0))


def chain(seed):
    """A random function of a complex and a real tensor."""
    rng = random.Random(seed)
    shape = rng.choice([(5, 7), (1, 33), (0, 3), (16, 16)])
    steps = [rng.choice(STEPS) for _ in range(rng.randint(3, 8))]

    def fn(z, x):
        first = z
        for step in steps:
            z = step(z, first, x)
        return z, torch.view_as_real(z.exp()), z.abs()

    torch.manual_seed(seed)
    return fn, (torch.randn(shape, dtype=torch.complex64) * 0.5, torch.randn(rng.choice([shape, shape[1:]])))


STEPS = [
    lambda z, y, x: z * y,
    lambda z, y, x: x * z - 1,
    lambda z, y, x: (z + 0.5j) - x,
    lambda z, y, x: 2 - z * (x.abs() * 0.25j),
    lambda z, y, x: -z.conj() + y,
    lambda z, y, x: (z * 0.1).exp(),
    lambda z, y, x: z.t().contiguous().t() * 0.5,
    lambda z, y, x: torch.complex(z.real, x + z.imag) * 0.5,
    lambda z, y, x: z[..., :1] * 0.5 + z.reshape(-1).unflatten(0, z.shape),
    lambda z, y, x: torch.view_as_complex(torch.view_as_real(z) * 0.5),
]


@pytest.mark.parametrize("seed", range(12))
def test_chains_and_their_gradients(seed):
    fn, inputs = chain(seed)
    ours, theirs = ([x.clone().requires_grad_() for x in inputs] for _ in range(2))
    made, wanted = compiled(fn, dynamic=seed % 3 == 0)(*ours), fn(*theirs)
    for results in (made, wanted):
        sum((torch.view_as_real(x) if x.is_complex() else x).square().sum() for x in results).backward()
    for one, other in zip(made, wanted, strict=True):
        assert (one.dtype, one.stride()) == (other.dtype, other.stride())
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-4, rtol=1e-4)


def test_a_product_alone_is_a_call():
    """Reading and writing parts costs more than it."""
    z = torch.randn(8, dtype=torch.complex64)
    assert "aten.mul.Tensor" in calls(lambda z: z * z, z)
    assert "aten.mul.Tensor" not in calls(lambda z: (z * z + z) * z - z * z * z, z)


def test_a_square_of_the_absolute_value_is_real():
    z = torch.randn(1000, dtype=torch.complex64)
    fn = lambda z: (z * z.conj()).imag + z.exp().real * 0
    assert calls(fn, z) == {"aten.view_as_real.default"}
    assert compiled(fn)(z).eq(0).all()

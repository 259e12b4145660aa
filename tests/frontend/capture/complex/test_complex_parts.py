"""Chains of complex operators on real and imaginary parts: eager's values, C's special ones, strides and conjugates."""

import math
import random

import pytest
import torch
from torch.utils._pytree import tree_leaves

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
    known = ~z.imag.isinf() | (z.real < math.inf)  # C leaves the sign of an infinity open for others
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
    lambda z, y, x: z / (y + 3) + x / (2 + z.exp()),
    lambda z, y, x: (1.5 - z).mul(0.5).reciprocal() / 4,
    lambda z, y, x: z * 0.5 + torch.nn.functional.pad(z[:, 1:], (1, 0)) - z.sum(-1, keepdim=True) * 0.125,
]


@pytest.mark.thinned(2)
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


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_quotients_and_directions_of_special_values(dtype):
    parts = (0.0, -0.0, 1.0, -2.5, 3e30, 1e-30, math.inf, -math.inf, math.nan)
    z = torch.tensor([complex(x, y) for x in parts for y in parts], dtype=dtype)
    quotients = lambda z: tuple(map(torch.view_as_real, (z[:, None] / z, 1 / z, z / 4, (1 - z) / z)))
    assert calls(quotients, z) == {"aten.view_as_real.default", "aten.view_as_complex.default"}
    torch.testing.assert_close(compiled(quotients)(z), quotients(z), equal_nan=True)
    directions = lambda z: (z.sgn() / (3 + z.sgn())).abs()
    assert "aten.sgn.default" not in calls(directions, z)
    torch.testing.assert_close(compiled(directions)(z), directions(z), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_sums_of_special_values(dtype):
    """Eager multiplies what it adds or subtracts by 1 + 0i or -1 + 0i: NaN is left of 0 * inf."""
    parts = (0.0, -0.0, 1.0, -2.5, math.inf, -math.inf, math.nan)
    z = torch.tensor([complex(x, y) for x in parts for y in parts], dtype=dtype)
    x, y = z.real.clone(), z.imag.clone()

    def sums(x, y):
        z = torch.complex(x, y)
        w = z[:, None]
        one = w + z, w - z, w + x, x + w, w - x, z + 1, z - 1j, 2 - z, 0.0 - z, z + complex(-0.0, -0.0), z - 0
        return [torch.view_as_real(s) * 1 for s in one]

    assert not calls(sums, x, y)
    for made, wanted in zip(compiled(sums)(x, y), sums(x, y), strict=True):
        torch.testing.assert_close(made, wanted, equal_nan=True)
        assert torch.equal(made.signbit() & (made == 0), wanted.signbit() & (wanted == 0))


def test_conjugates_are_neither_saved_nor_made_from_python():
    """Of a product's gradient and a matrix product's, whose operand lies transposed; a conjugate that is returned stays a flag. A Fourier
    transform's gradient has a factor of 2, an integer that the C shim takes as a double."""
    z, w = (torch.randn(3, 4, 4, dtype=torch.complex64, requires_grad=True) for _ in range(2))
    fn = lambda z, w: (torch.bmm(z, w.mT) @ w.mT).abs().sum() + (z / (w + 2)).sum().abs() + torch.fft.irfft(z).sum()
    ours = compiled(fn)(z, w)
    ours.backward()
    made = z.grad, w.grad
    z.grad = w.grad = None
    fn(z, w).backward()
    torch.testing.assert_close(made, (z.grad, w.grad))
    torch._dynamo.reset()
    for graph in mlirc.explain(fn)(z, w).data["graphs"]:
        assert not graph["through_python"], graph["kind"]
    assert compiled(lambda z: (z * 2).conj())(z.detach()).is_conj()


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


@pytest.mark.parametrize(
    "part", [lambda x: x.split(6)[6], lambda x: x.unbind(0)[1], lambda x: x[3], lambda x: x.chunk(3)[1:]]
)
def test_a_part_of_a_conjugate_that_is_returned_is_a_view_of_the_input(part):
    x = torch.randn(40, 2, dtype=torch.complex64).mT
    with torch.no_grad():
        eager, made = (tree_leaves(run(x)) for run in (lambda x: part(x.mH), compiled(lambda x: part(x.mH))))
    for right, got in zip(eager, made, strict=True):
        assert torch.equal(got, right) and got.is_conj() and got.data_ptr() == right.data_ptr()


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.fft.hfft(x[:, :1], dim=0),
        lambda x: torch.fft.ihfft(x).imag.exp(),
        lambda x: torch.fft.fft(x).conj().imag * 2,
        lambda x: torch.view_as_real(torch.fft.fft(x).mH[1:].mH) + 1,
        lambda x: torch.fft.ifft(torch.fft.fft(x).conj()[1:].conj()).real * 2,
    ],
)
def test_conjugates_of_conjugates_under_batched_gradients(fn):
    """The backward graph runs in eager, where a conjugate of a conjugate is what is in memory, as `view_as_real` takes it."""

    def run(function, n):
        torch.manual_seed(n)
        x = torch.randn(n, 4, requires_grad=True)
        y = function(x)
        sum_ = (y.abs() * torch.arange(y.size(-1)) + y.real).sum()
        (one,) = torch.autograd.grad(sum_, x, retain_graph=True)
        return one, *torch.autograd.grad(sum_, x, torch.tensor([1.0, -2.0, 0.5]), is_grads_batched=True)

    torch._dynamo.reset()
    made = torch.compile(fn, backend="mlirc")
    for n in (6, 4):
        torch.testing.assert_close(run(made, n), run(fn, n))


@pytest.mark.thinned
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_norms_variances_and_fused_termss_are_those_of_parts(dtype, dynamic):
    """Their operators take Scalars, and were called from Python."""

    def fn(z, y, x):
        norms = [torch.linalg.vector_norm(z, p, 1) for p in (2, 1, 0.5, math.inf)]
        spread = z.var(0), z.std(), z.var(1, correction=0, keepdim=True)
        sums = torch.addcmul(z, z, y), torch.addcdiv(z, y, 3 + y, value=-0.5), torch.addcmul(z, x, y[0], value=2)
        return (
            *sums,
            *norms,
            *spread,
            torch.dist(z, y, 3),
            torch.dist(x, y[0]),
            torch.nn.functional.pairwise_distance(z, y),
        )

    z, y = (torch.randn(4, 6, dtype=dtype) for _ in range(2))
    x = torch.randn(4, 6, dtype=z.real.dtype)
    for got, wanted in zip(compiled(fn, dynamic=dynamic)(z, y, x), fn(z, y, x), strict=True):
        assert (got.dtype, got.stride()) == (wanted.dtype, wanted.stride())
        torch.testing.assert_close(got, wanted)
    torch._dynamo.reset()
    assert not any(graph["through_python"] for graph in mlirc.explain(fn)(z, y, x).data["graphs"])


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("real", [torch.float32, torch.float16, torch.int32], ids=str)
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_complex_numbers_are_written_to_a_real_tensor(dtype, real, dynamic):
    """Of each the real part is kept."""

    def function(x, y):
        z = (y * (2 + 1j)).neg()
        return torch.slice_scatter(x, z, 0, 1, 4), torch.slice_scatter(z.real, y * z, 1), z

    run = torch.compile(function, backend="mlirc", dynamic=dynamic, options={"fallback": "error"})
    x, y = torch.arange(18).reshape(6, 3).to(real), torch.randn(3, 3, dtype=dtype)
    for got, eager in zip(run(x, y), function(x, y), strict=True):
        assert got.stride() == eager.stride()
        torch.testing.assert_close(got, eager)

"""Moves of complex tensors as pairs of real ones: eager's values to the bit, strides, gradients, signs of zeros, symbolic sizes."""

import random

import pytest
import torch

from mlirc.frontend.capture.complex.pairs import moves
from tests.frontend.capture.complex.test_complex_parts import calls, compiled

aten = torch.ops.aten


def written(z, y):
    z = z.clone()
    z[..., 1:] = y[..., :-1]
    return z


def rows(z, y):
    made = torch.zeros(z.shape[0] + 2, *z.shape[1:], dtype=z.dtype)
    made[1:-1] = z
    made[0] = y[-1]
    return made[: z.shape[0]] + 0


MOVES = [
    written,
    rows,
    lambda z, y: torch.cat([z[:1], -y, z[1:]], 0)[: z.shape[0]],
    lambda z, y: torch.roll(z, (1, -2), (0, -1)),
    lambda z, y: torch.nn.functional.pad(z, (2, 0, 1, 1))[1:-1, 2:],
    lambda z, y: z.t().contiguous().t() - y,
    lambda z, y: z.unsqueeze(1).expand(-1, 3, -1).select(1, 2),
    lambda z, y: z.reshape(-1).unflatten(0, z.shape).clone(),
    lambda z, y: torch.zeros_like(z).index_put((torch.tensor([0]),), y[-1]) + z,
    lambda z, y: torch.fft.fft(z),
    lambda z, y: torch.stack([z, y], -1).flatten(1)[:, : z.shape[1]],
]


def program(seed):
    rng = random.Random(seed)
    steps = [rng.choice(MOVES) for _ in range(rng.randint(3, 8))]

    def fn(z, y):
        for step in steps:
            z = step(z, y)
        return z, z[1:], torch.view_as_real(z)[..., 1]

    dtype = rng.choice([torch.complex64, torch.complex128])
    shape = rng.choice([(5, 7), (2, 33), (16, 16), (1, 6), (5, 1), (1, 1)])
    torch.manual_seed(seed)
    z, y = (torch.randn(shape, dtype=dtype) for _ in range(2))
    z[-1:, 1:], y[:, :1] = complex(-0.0, 0.0), complex(0.0, -0.0)
    if seed % 4 == 1:
        z = z.t().contiguous().t()
    return fn, (z, y)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", [*range(10), *(pytest.param(n, marks=pytest.mark.full) for n in range(10, 100))])
def test_moves_and_their_gradients(seed):
    fn, inputs = program(seed)
    ours, theirs = ([x.clone().requires_grad_() for x in inputs] for _ in range(2))
    made, wanted = compiled(fn, dynamic=seed % 3 == 0)(*ours), fn(*theirs)
    for results in (made, wanted):
        sum((torch.view_as_real(x) if x.is_complex() else x).square().sum() for x in results).backward()
    for one, other in zip(made, wanted, strict=True):
        assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
        if one.is_complex():
            one, other = torch.view_as_real(one), torch.view_as_real(other)
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
        assert torch.equal(one.signbit() & (one == 0), other.signbit() & (other == 0))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-5)


def spectral(x, w):
    """A layer of a Fourier neural operator, https://arxiv.org/abs/2010.08895."""
    given = torch.fft.rfft(x)
    kept = torch.zeros(x.shape[0], w.shape[1], x.shape[-1] // 2 + 1, dtype=torch.complex64)
    kept[:, :, : w.shape[-1]] = torch.einsum("bix,iox->box", given[:, :, : w.shape[-1]], w)
    return torch.fft.irfft(kept, n=x.shape[-1])


def test_a_slice_is_written_where_its_tensor_lies():
    x, w = torch.randn(4, 8, 64), torch.randn(8, 8, 6, dtype=torch.complex64)
    found = calls(spectral, x, w)
    assert not found & {"aten.slice_scatter.default", "aten.copy.default", "aten.zeros.default"}
    torch.testing.assert_close(compiled(spectral)(x, w), spectral(x, w))


def test_arguments_by_name_are_left():
    """Rules take arguments by position."""
    graph, z = torch.fx.Graph(), torch.zeros(3, 3, dtype=torch.complex64)
    x = graph.placeholder("x")
    calls = [
        graph.call_function(aten.slice_scatter.default, (x, x, *dim), named)
        for dim, named in (((1,), {}), ((), {"dim": 1}))
    ]
    for node in (x, *calls):
        node.meta["val"] = z
    assert list(map(moves, calls)) == [True, False]


def test_one_move_alone_is_a_call():
    z = torch.randn(8, 3, dtype=torch.complex64)
    assert calls(lambda z: torch.roll(z, (1,), (0,)), z) == {"aten.roll.default"}


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, a: torch.fft.fft2(x, s=(5, 2), norm="ortho"),
        lambda x, a: torch.fft.irfft2(x, s=(x.size(1) + 1, 2)),
        lambda x, a: torch.fft.fftn(torch.fft.ifft(x, a.size(0) + 2).conj()),
        lambda x, a: torch.nn.functional.pad(x * 1j, (a.size(0), -1)) + torch.cat([x, x.conj()], 1)[:, :1],
    ],
)
def test_numbers_padded_by_sizes(fn):
    """As the gradient of a transform of more or fewer numbers than there are."""

    def run(function, n):
        torch.manual_seed(n)
        x, a = torch.randn(n, n, requires_grad=True), torch.randn(n - 1)
        y = function(x, a)
        return y, *torch.autograd.grad((y.abs() * torch.arange(y.size(-1))).sum(), x)

    made = compiled(fn, dynamic=True)
    for n in (4, 7):
        torch.testing.assert_close(run(made, n), run(fn, n))


@pytest.mark.parametrize("value", [-1.5, 2, 1.5 - 2j])
def test_a_number_is_copied_into_what_is_moved(value):
    """It is no pair of equal parts."""

    def f(z):
        z[:-1] *= z[:-1].clone()
        z.copy_(value)
        return torch.addcmul(z, z, z, value=-1.5)

    z = torch.randn(3, 2, dtype=torch.complex64)
    torch.testing.assert_close(compiled(f)(z.clone()), f(z.clone()))

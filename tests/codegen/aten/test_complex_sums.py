"""Sums of complex numbers with infinities and NaN: eager multiplies what it adds by a factor of 1 + 0i in some, and in others not."""

import itertools
import math

import pytest
import torch
from torch.utils._pytree import tree_leaves

SHAPE = (6, 6, 6, 6)
PARTS = (0.0, -0.0, 1.0, -2.5, 3e9, math.inf, -math.inf, math.nan)
FACTORS = (1, -1, 0, 2 - 1j)
ROWS = torch.tensor([0, 2, 2, 4])


def special(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Complex numbers whose parts are special ones."""
    generator = torch.Generator().manual_seed(seed)
    parts = torch.tensor(PARTS, dtype=torch.float64)[torch.randint(0, len(PARTS), (*shape, 2), generator=generator)]
    return torch.view_as_complex(parts).to(dtype)


PLACES = torch.tensor([[(5 * i + j * j) % 6 for j in range(6)] for i in range(6)])  # some twice in a row


def rows_added(x, y):
    """index_add along each dimension of tensors of one to three, by factors, and into a view."""
    for rank in (1, 2, 3):
        a, b = (t.reshape(-1)[: 6**rank].reshape((6,) * rank) for t in (x, y))
        for dim in range(rank):
            rows = b.narrow(dim, 0, 4)
            yield a.index_add(dim, ROWS, rows)
            yield a.index_add(dim - rank, ROWS.int(), rows)
            yield from (a.index_add(dim, ROWS, rows, alpha=factor) for factor in FACTORS[1:])
            yield a.clone().index_add_(dim, ROWS, rows)
            yield a.transpose(0, -1).index_add(dim, ROWS, a.transpose(0, -1).narrow(dim, 0, 4))


def elements_added(x, y):
    a, b = x[0, 0], y[0, 0]
    for dim in (0, 1):
        yield a.scatter_add(dim, PLACES, b)
        yield a.scatter_reduce(dim, PLACES, b, "sum")
        yield a.scatter_reduce(dim, PLACES, b, "prod", include_self=False)
        yield a.scatter(dim, PLACES, b, reduce="add")
        yield a.scatter(dim, PLACES, b, reduce="multiply")
        yield a.scatter(dim, PLACES, 2 - 1j, reduce="add")
    yield x.index_put((ROWS,), y[:4], accumulate=True)
    yield a.index_put((ROWS, ROWS.flip(0)), b[0, :4], accumulate=True)
    yield a.put(PLACES[1], b[0], accumulate=True)
    yield a[0].index_put((ROWS,), b[0, :4], accumulate=True)


def factors(x, y):
    """Sums and differences with a factor, alone and in chains."""
    for factor in FACTORS:
        yield from (op(x, y, alpha=factor) for op in (torch.add, torch.sub, torch.rsub))
        yield torch.add(x, 2.5, alpha=factor), torch.add(x, y.real, alpha=factor)
        yield torch.sub(x[0], y, alpha=factor) * y + x
        yield x.clone().add_(y, alpha=factor), torch.addcmul(x, y, y, value=factor)
    yield -(x - y) + 1, x - 0, 0 - x, x * 1, torch.lerp(x, y, 0.25), x + y.conj(), x.diff()


def products(x, y):
    """Sums of products, with factors of both."""
    a, b = x[0, 0], y[0, 0]
    for alpha, beta in itertools.product(FACTORS, FACTORS):
        yield torch.addmm(a, b, b, alpha=alpha, beta=beta), torch.addr(a, b[0], b[1], alpha=alpha, beta=beta)
    for alpha, beta in zip(FACTORS, FACTORS[::-1], strict=True):
        yield torch.baddbmm(x[0], y[0], y[0], alpha=alpha, beta=beta)
        yield torch.addbmm(a, y[0], y[0], alpha=alpha, beta=beta)
        yield torch.addmv(a[0], b, b[0], alpha=alpha, beta=beta)


def reductions(x, y):
    for dim in (0, 2, -1):
        yield x.cumsum(dim), x.cumprod(dim), x.sum(dim), x.mean(dim), x.prod(dim)
    yield x.sum(), x.mean(), x[0, 0].trace(), torch.trapezoid(x, y), torch.cumulative_trapezoid(x)
    yield torch.dot(x[0, 0, 0], y[0, 0, 0]), torch.vdot(x[0, 0, 0], y[0, 0, 0]), torch.einsum("abij,abij->i", x, y)


def rows_read(x, y):
    """The gradients are sums: of rows that are read twice, and of what is expanded."""
    a, b = x, y[0, 0]
    return a.index_select(1, ROWS), a[ROWS], b[0].index_select(0, ROWS), b.expand(6, 6, 6), b.gather(1, PLACES)


def compiled(function):
    torch.compiler.reset()
    return torch.compile(function, backend="mlirc", fullgraph=True, options={"cache": False, "fallback": "error"})


def compare(made, expected):
    """Numbers but for rounding; infinities, NaN and signs of zeros as they are."""
    for k, (got, wanted) in enumerate(zip(made, expected, strict=True)):
        assert (got.dtype, got.stride()) == (wanted.dtype, wanted.stride()), k
        one, other = (torch.view_as_real(z.resolve_conj()) for z in (got, wanted))
        torch.testing.assert_close(one, other, equal_nan=True, msg=lambda text, k=k: f"{k}: {text}")
        zeros = (one == 0) & (other == 0)
        assert torch.equal(one.signbit() & zeros, other.signbit() & zeros), k


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("sums", [rows_added, elements_added, factors, products, reductions])
def test_of_special_numbers(sums, dtype):
    function = lambda x, y: tree_leaves(list(sums(x, y)))
    run = compiled(function)
    for seed in (0, 2):
        x, y = special(SHAPE, dtype, seed), special(SHAPE, dtype, seed + 1)
        compare(run(x, y), function(x, y))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_gradients_of_special_numbers(dtype):
    inputs = [special(SHAPE, dtype, seed).requires_grad_() for seed in (0, 1)]
    made, expected = compiled(rows_read)(*inputs), rows_read(*inputs)
    given = [special(tuple(x.shape), dtype, 2) for x in expected]
    compare(torch.autograd.grad(made, inputs, given), torch.autograd.grad(expected, inputs, given))

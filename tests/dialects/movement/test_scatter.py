"""Scatters of one element into each row, as kernels: eager's results, signs of zeros and errors."""

import itertools

import pytest
import torch

import mlirc

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool)


def scattered(x, source, index):
    """Writes into x [5, 8] and zeros what source and index [5, 1] say."""
    zeros = torch.zeros_like(x)
    results = [
        zeros.scatter(1, index, 1),
        (x | x).scatter(-1, index, True) if x.dtype == torch.bool else (x + x).scatter(-1, index, 2),
    ]
    results += [zeros.t().scatter(0, index.t(), source.t()), zeros.scatter_add(1, index, source)]
    return results


def compiled(function=scattered):
    torch.compiler.reset()
    return torch.compile(function, backend="mlirc", fullgraph=True, options={"cache": False, "fallback": "error"})


@pytest.mark.parametrize("dtype", DTYPES)
def test_results_are_eagers(dtype):
    x, source = ((torch.randn(*shape) * 9).to(dtype) for shape in ((5, 8), (5, 1)))
    if dtype.is_floating_point:
        source[0], source[1], x[2, 3] = -0.0, torch.nan, torch.inf
    index = torch.randint(0, 8, (5, 1)).to(torch.int32 if dtype == torch.uint8 else torch.int64)
    for got, expected in zip(compiled()(x, source, index), scattered(x, source, index), strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
        assert got.stride() == expected.stride()
        if dtype.is_floating_point:
            assert torch.equal(got.signbit()[~got.isnan()], expected.signbit()[~got.isnan()])


def test_a_bad_index_is_eagers_error():
    for bad, dim in itertools.product((8, -1), (0, 1)):
        function = lambda x, index, dim=dim: torch.zeros_like(x).scatter(dim, index, 1).sum()
        x, index = (torch.zeros(5, 8), torch.tensor([[1], [bad], [2], [3], [0]]))
        given = (x, index) if dim else (x.t(), index.t())
        with pytest.raises(RuntimeError) as expected:
            function(*given)
        with pytest.raises(RuntimeError) as got:
            compiled(function)(*given)
        assert str(got.value) == str(expected.value)


def test_of_an_empty_row_eager_checks_the_index():
    x, index = torch.zeros(2, 0), torch.tensor([[0], [1]])
    for run in (scattered, compiled()):
        with pytest.raises(RuntimeError, match="index 0 is out of bounds for dimension 1 with size 0"):
            run(x, torch.zeros(2, 1), index)


def test_what_is_a_kernel():
    index = torch.tensor([[1], [0]])
    text = str(mlirc.explain(lambda x, i: torch.zeros_like(x).scatter(1, i, 1) * x)(torch.ones(2, 3), index))
    assert "ATen call" not in text
    text = str(mlirc.explain(lambda x, i: x.scatter_(1, i, 1))(torch.ones(2, 3), index))  # eager writes to two elements
    assert "aten.scatter" in text

"""libgomp's team keeps its size: kernels of any size start no thread and end none."""

import os
from collections.abc import Iterator

import pytest
import torch

THREADS = 4


@pytest.fixture
def four_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    yield
    torch.set_num_threads(before)


def many(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


def normalised(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(1, keepdim=True)) * x.square().sum(1, keepdim=True).rsqrt()


def total(x: torch.Tensor) -> torch.Tensor:
    return x.square().sum()


@pytest.mark.parametrize("function", [many, normalised, total])
def test_threads_stay(function, four_threads):
    """The sizes are worth 1 to 4 threads, and `total` shares its inner axis."""
    inputs = [torch.randn(rows, 256) for rows in (2, *range(5, 60, 4), 4000, 3, 1000, 5)]
    call = torch.compile(function, backend="mlirc", dynamic=True)
    expected = [function(x) for x in inputs]
    for x in inputs:
        call(x)
    before = set(os.listdir("/proc/self/task"))
    for _ in range(5):
        for x, value in zip(inputs, expected, strict=True):
            torch.testing.assert_close(call(x), value)
    assert set(os.listdir("/proc/self/task")) <= before


@pytest.mark.thinned(2)
@pytest.mark.parametrize("rows, columns", [(1, 70000), (3, 100000), (1, 8 * 3 * 32768), (2, 4 * 65536 + 5)])
def test_few_rows(rows, columns, four_threads):
    """Reductions whose inner axis the threads share; some threads may have no part of it."""
    x = torch.randn(rows, columns, dtype=torch.float64)

    def reduce(x):
        return x.sum(1), x.amax(1), x.argmin(1), x.var(1), torch.logsumexp(x, 1)

    for threads in (1, 2, 3, 4):
        torch.set_num_threads(threads)
        for value, expected in zip(torch.compile(reduce, backend="mlirc")(x), reduce(x), strict=True):
            torch.testing.assert_close(value, expected)

"""Graphs of thousands of ops and of parameters: the first call compiles them, without deep recursion, in time that grows with them."""

import time

import pytest
import torch
from torch import nn

from mlirc.frontend import statistics

QUADRATIC = 3.2  # times as long for twice as much, where it would be 4; 2 is in proportion


class Scaled(nn.Module):
    def __init__(self, count: int):
        super().__init__()
        self.factors = nn.ParameterList(nn.Parameter(torch.rand(8)) for _ in range(count))

    def forward(self, x):
        for factor in self.factors:
            x = x * factor + 1
        return x


def chain(count: int):
    def fn(x):
        for k in range(count):
            x = torch.sin(x) if k % 2 else x + 1
        return x

    return fn


def joined(count: int):
    return lambda x: torch.cat([torch.sin(x + k) for k in range(count // 2)])


def compiled(fn) -> float:
    """Seconds of the processor that our stages take, the answer compared."""
    torch._dynamo.reset()
    statistics.reset()
    x = torch.randn(8)
    start = time.process_time()
    found = torch.compile(fn, backend="mlirc", options={"fallback": "error"})(x)
    torch.testing.assert_close(found, fn(x), rtol=1e-3, atol=1e-3)
    if found.requires_grad:
        found.sum().backward()
    return time.process_time() - start


@pytest.mark.full
@pytest.mark.parametrize("make", [Scaled, chain, joined])
def test_time_grows_with_the_graph(make):
    compiled(make(50))
    less, more = compiled(make(500)), compiled(make(1000))
    assert more < QUADRATIC * less


@pytest.mark.full
@pytest.mark.parametrize(("make", "count"), [(Scaled, 2000), (chain, 5000)])
def test_large_graphs_compile(make, count):
    compiled(make(count))

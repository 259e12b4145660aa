"""Attention whose numbers of heads are symbols: compiled where they are known to be equal or a multiple, else ATen's call, never an eager graph."""

import pytest
import torch
import torch.nn.functional as F

from mlirc.frontend import statistics


def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def projected(x, k, v):
    heads = [y.view(y.shape[0], y.shape[1], -1, 64).transpose(1, 2) for y in (x, k, v)]
    return attention(*heads).sin()


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("heads", "shared"), [(8, 2), (4, 4), (6, 2)])
def test_heads_that_are_quotients(heads, shared):
    torch._dynamo.reset()
    statistics.reset()
    x, k, v = (torch.randn(2, 5, n * 64) for n in (heads, shared, shared))
    compiled = torch.compile(projected, backend="mlirc", dynamic=True)
    torch.testing.assert_close(compiled(x, k, v), projected(x, k, v))
    assert not statistics.fallbacks and len(statistics.graphs) == 1


@pytest.mark.parametrize("trains", [False, True])
def test_heads_that_are_symbols(trains):
    torch._dynamo.reset()
    statistics.reset()
    compiled = torch.compile(attention, backend="mlirc")
    for heads in (8, 6):
        given = [torch.randn(2, n, 5, 64, requires_grad=trains) for n in (heads, 2, 2)]
        for x in given:
            torch._dynamo.mark_dynamic(x, 1)
        out, expected = compiled(*given), attention(*given)
        torch.testing.assert_close(out, expected)
        if trains:
            grads = [torch.autograd.grad(y.square().sum(), given) for y in (out, expected)]
            torch.testing.assert_close(*grads)
    assert not statistics.fallbacks and len(statistics.graphs) <= 1 + trains

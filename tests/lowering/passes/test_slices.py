"""Slices and selections of sizes that are symbols: right for every size, and fusion reads through them."""

import pytest
import torch

import mlirc

pytestmark = pytest.mark.thinned

SLICES = {
    "from-1": lambda x: x[1:] * 2 + x[:-1],
    "inner": lambda x: x[:, 1:].exp() - x[:, :-1],
    "step": lambda x: x[1::2] + 1,
    "from-the-end": lambda x: x[-2:].relu() + 1,
    "transposed": lambda x: x.t()[1:, 2:] * 3,
    "of-a-slice": lambda x: x[1:][:, 1:][1:] + 1,
    "expanded": lambda x: x[:, :1].expand(-1, 4)[:, 1:] + 1,
    "last": lambda x: x[-1] + x[0],
    "halves": lambda x: torch.cat([-x[:, x.shape[1] // 2 :], x[:, : x.shape[1] // 2]], 1) + x,
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", SLICES)
def test_every_size_is_right(name):
    torch._dynamo.reset()
    compiled = torch.compile(SLICES[name], backend="mlirc", dynamic=True, options={"fallback": "error"})
    for size in ((7, 6), (4, 9), (3, 5), (2, 3), (1, 2)):
        x = torch.randn(size)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), SLICES[name](x))


@pytest.mark.thinned(4)
@pytest.mark.parametrize("size", [(0, 4), (1, 4), (4, 1), (1, 1), (4, 0)])
@pytest.mark.parametrize("name", ["from-1", "inner", "step", "transposed", "of-a-slice"])
def test_empty_slices(name, size):
    torch._dynamo.reset()
    compiled = torch.compile(SLICES[name], backend="mlirc", dynamic=True, options={"fallback": "error"})
    x = torch.randn(size)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), SLICES[name](x))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", SLICES)
def test_fusion_reads_through(name):
    """What is before the slice and what is after become one kernel."""
    torch._dynamo.reset()
    x = torch.randn(7, 6)
    torch._dynamo.mark_dynamic(x, 0)
    torch._dynamo.mark_dynamic(x, 1)
    with torch.no_grad():
        data = mlirc.explain(lambda x: SLICES[name](x * 3 + 1))(x).data
    (graph,) = data["graphs"]
    assert len(graph["kernels"]) == 1 and not graph["aten"]

"""Operators that lay a part of a tensor out anew begin where the part does; those that copy have memory of their own."""

import itertools

import pytest
import torch

PARTS = {
    "the last row": lambda x: x[-1:],
    "a row": lambda x: x[None, 2],
    "a row of a batch": lambda x: x[None].select(1, -1),
    "a column": lambda x: x[:, 3:4].t(),
    "a row of a half": lambda x: x.chunk(2)[1][:1],
    "a piece": lambda x: x.unsafe_split(2)[1][:1],
}
LAYOUTS = {
    "kron": lambda p, y: torch.kron(p, y),
    "tensordot": lambda p, y: torch.tensordot(p, y.view(1, -1), 0),
    "einsum": lambda p, y: torch.einsum("ij,k->ijk", p, y),
    "matmul": lambda p, y: p.expand(3, 1, -1) @ y[:4].view(4, 1),
    "reshape": lambda p, y: p.reshape(1, 1, 4, 1) + y,
    "unsafe view": lambda p, y: torch.ops.aten._unsafe_view(p, [1, 1, 4, 1]) * y,
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_values(dtype, dynamic):
    def function(x, y):
        sources = x, x * 2, x @ x
        return [
            layout(part(source), y)
            for source, part, layout in itertools.product(sources, PARTS.values(), LAYOUTS.values())
        ]

    x, y = torch.arange(16).view(4, 4).to(dtype), torch.arange(5).to(dtype)
    run = torch.compile(function, backend="mlirc", options={"fallback": "error"}, dynamic=dynamic)
    torch.testing.assert_close(run(x, y), function(x, y))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_a_shuffle_copies(groups, dynamic):
    """PyTorch's meta function gives a view where one group, or one channel in each, stays as it is; eager's kernel copies."""
    torch._dynamo.reset()
    function = torch.nn.ChannelShuffle(groups)
    run = torch.compile(function, backend="mlirc", options={"fallback": "error"}, dynamic=dynamic)
    x, dy = torch.randn(2, 6, 3, 5, requires_grad=True), torch.randn(2, 6, 3, 5)
    results = [(y, *torch.autograd.grad(y, x, dy)) for y in (run(x), function(x))]
    torch.testing.assert_close(*results, rtol=0, atol=0)
    for ours, eager in zip(*results, strict=True):
        assert ours.stride() == eager.stride()
        assert ours.data_ptr() not in (x.data_ptr(), dy.data_ptr())


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("promised", ["as promised", "as PyTorch 2.11 promises"])
def test_scatters_into_repeated_elements(promised, dynamic, monkeypatch):
    """A copy of a tensor in which one element stands for several is dense: PyTorch 2.11's meta functions gave it strides of 0."""
    if promised != "as promised":
        given = torch._prims_common.clone_preserve_strides

        def repeated(x):
            return x.clone().as_strided(x.shape, x.stride()) if 0 in x.stride() else given(x)

        monkeypatch.setattr(torch._prims_common, "clone_preserve_strides", repeated)

    def function(x, y):
        rows, cube = x.expand(7), y[:, None].expand(3, 5, 4)
        return (
            torch.slice_scatter(rows, x.view(1) + 1, 0, 4, 5),
            torch.select_scatter(cube, y * 2, 1, 1),
            torch.diagonal_scatter(x.expand(7, 7), rows + 1),
            torch.as_strided_scatter(rows, rows[:3] - 1, (3,), (2,)),
        )

    torch._dynamo.reset()
    x, y = torch.tensor(2.0), torch.randn(3, 4)
    run = torch.compile(function, backend="mlirc", options={"fallback": "error", "cache": False}, dynamic=dynamic)
    for got, expected in zip(run(x, y), function(x, y), strict=True):
        torch.testing.assert_close(got, expected)
        assert got.stride() == expected.stride()

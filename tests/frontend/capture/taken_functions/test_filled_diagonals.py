"""`fill_diagonal_` writes relative to where a tensor begins in its storage, which no guard holds."""

import pytest
import torch

import mlirc
from mlirc.frontend import statistics

LAYOUTS = {
    "square": (False, lambda m: m[:16].view(4, 4)),
    "wide": (False, lambda m: m[:15].view(3, 5)),
    "tall": (False, lambda m: m[:14].view(7, 2)),
    "tall, wrapped": (True, lambda m: m[:21].view(7, 3)),
    "one row more, wrapped": (True, lambda m: m[:12].view(4, 3)),
    "wide, wrapped": (True, lambda m: m[:15].view(3, 5)),
    "transposed": (False, lambda m: m[:15].view(3, 5).t()),
    "a part": (False, lambda m: m[:24].view(4, 6)[1:, 2:5]),
    "a cube": (False, lambda m: m[:27].view(3, 3, 3)),
    "four dimensions": (True, lambda m: m[:16].view(2, 2, 2, 2).transpose(0, 2)),
    "empty": (False, lambda m: m[:0].view(0, 3)),
}


def compared(program, view, starts, dynamic=None):
    """The program on views of memory that begin at `starts` gives what eager gives, and leaves all memory as eager leaves it."""
    torch._dynamo.reset()
    statistics.reset()
    compiled = torch.compile(program, backend="mlirc", dynamic=dynamic, options={"cache": False})
    for start in starts:
        memory, expected = torch.arange(40.0), torch.arange(40.0)
        made, given = compiled(view(memory[start:])), program(view(expected[start:]))
        assert torch.equal(made, given) and made.stride() == given.stride(), start
        assert torch.equal(memory, expected), start


@pytest.mark.parametrize("name", LAYOUTS)
def test_inputs_that_begin_elsewhere(name):
    wrap, view = LAYOUTS[name]

    def program(x):
        x.fill_diagonal_(-1.0, wrap)
        return x + 1

    compared(program, view, (0, 7), dynamic=False)
    assert not statistics.fallbacks
    if name != "tall, wrapped":  # PyTorch does not trace it with symbols
        compared(program, view, (5, 0, 9), dynamic=True)
        assert not statistics.fallbacks


def test_operators_and_nested_functions():
    def program(x):
        def body(x):
            return (x * 2).fill_diagonal_(3)

        return torch.utils.checkpoint.checkpoint(body, x, use_reentrant=False) + torch.ops.aten.fill_diagonal_(x * 3, 5)

    compared(program, LAYOUTS["square"][1], (0, 3))
    assert not statistics.fallbacks and not any(graph.aten for graph in statistics.graphs)


def test_gaps_between_rows():
    """Eager writes into them."""

    def program(x):
        return x.fill_diagonal_(-1.0, True) + 1

    compared(program, lambda m: m[:28].view(7, 4)[:, :2], (0, 5))
    assert statistics.fallbacks


def test_gradients():
    def program(x):
        y = x * 2
        y.fill_diagonal_(3.0)
        return y.t().fill_diagonal_(1.0) * x.t()

    torch._dynamo.reset()
    compiled = torch.compile(program, backend="mlirc", options={"cache": False, "fallback": "error"})
    x = torch.randn(4, 6)
    found, expected = x.clone().requires_grad_(), x.clone().requires_grad_()
    compiled(found).square().sum().backward()
    program(expected).square().sum().backward()
    torch.testing.assert_close(found.grad, expected.grad)
    assert found.grad.stride() == expected.grad.stride()


@pytest.mark.parametrize("name", ["tall, wrapped", "a cube", "a part"])
def test_compiled_ahead_of_time(name):
    wrap, view = LAYOUTS[name]

    def program(x):
        x.fill_diagonal_(-1.0, wrap)
        return x + 1, (x * 2).fill_diagonal_(3.0)

    compiled = mlirc.compile(program, (view(torch.zeros(40)),))
    for start in (0, 7):
        memory, expected = torch.arange(40.0), torch.arange(40.0)
        found, wanted = compiled(view(memory[start:])), program(view(expected[start:]))
        assert all(map(torch.equal, found, wanted)), start
        assert [x.stride() for x in found] == [x.stride() for x in wanted]
        assert torch.equal(memory, expected), start

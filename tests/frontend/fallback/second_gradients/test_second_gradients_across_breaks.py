"""Gradients of gradients through several compiled graphs, one of which may give nothing but views of what it takes."""

import pytest
import torch

STAGES = {
    "product": lambda y, w: y @ w,
    "sine": lambda y, w: y.sin(),
    "view": lambda y, w: y.t(),
    "view of a view": lambda y, w: y.t()[:, :, None],
    "both": lambda y, w: (y.t(), y * w)[0],
    "in place": lambda y, w: y.mul_(2),
    "sum": lambda y, w: y + w,
}


def gradients(called, x, w):
    total = called(x, w).sum()
    first = torch.autograd.grad(total, (x, w), create_graph=True, allow_unused=True)
    found = [g for g in first if g is not None and g.requires_grad]
    second = torch.autograd.grad(sum(g.square().sum() for g in found), (x, w), allow_unused=True) if found else ()
    return first, second


@pytest.mark.parametrize("second", ["view", "view of a view", "both", "in place"])
@pytest.mark.parametrize("first", ["product", "sine", "sum"])
def test_a_graph_of_views_behind_another_graph(first, second):
    """The node behind its results is the earlier call's."""

    def program(x, w):
        y = STAGES[first](x, w)
        kept.append(y)
        torch._dynamo.graph_break()
        return STAGES[second](y, w)

    kept: list[torch.Tensor] = []
    torch._dynamo.reset()
    compiled = torch.compile(program, backend="mlirc")
    for _ in range(2):
        x, w = (torch.randn(4, 4, requires_grad=True) for _ in range(2))
        made, expected = gradients(compiled, x, w), gradients(program, x, w)
        assert [x is None for x in made[1]] == [x is None for x in expected[1]]
        torch.testing.assert_close(made, expected)


MIDDLE = {
    "times two": lambda y, w: y * 2,
    "product": lambda y, w: y @ w,
    "sine": lambda y, w: y.sin(),
    "relu": lambda y, w: y.relu() * w,
    "softmax": lambda y, w: y.softmax(-1),
    "dropout": lambda y, w: torch.nn.functional.dropout(y, 0.5) * y,
    "parts": lambda y, w: y.exp().chunk(2)[1].repeat(2, 1),
    "in place": lambda y, w: (y + w).sin_(),
    "detached": lambda y, w: y.detach() * w,
}


@pytest.mark.parametrize("second", MIDDLE)
@pytest.mark.parametrize("first", MIDDLE)
@pytest.mark.thinned(6)
def test_what_one_graph_gives_another_is_computed_again(first, second):
    """Nobody holds what is between the graphs; eager's second gradients are the right ones."""

    def program(x, w):
        y = MIDDLE[first](x, w)
        torch._dynamo.graph_break()
        z = MIDDLE[second](y.cos(), w)
        del y
        torch._dynamo.graph_break()
        return (z.sigmoid() * w).sum(0)

    torch._dynamo.reset()
    compiled = torch.compile(program, backend="mlirc")
    torch.manual_seed(0)
    x, w = (torch.randn(4, 4, requires_grad=True) for _ in range(2))
    found = []
    for f in (compiled, program):
        torch.manual_seed(1)
        found.append(gradients(f, x, w))
    assert [x is None for x in found[0][1]] == [x is None for x in found[1][1]]
    torch.testing.assert_close(*found)


def test_a_gradient_without_a_second_one_asks_for_none():
    """A graph that is linear, behind another one: its first gradient has no history in eager, and none here."""

    def program(x):
        y = x * 3
        torch._dynamo.graph_break()
        return y * 2

    torch._dynamo.reset()
    x = torch.randn(4, requires_grad=True)
    (first,) = torch.autograd.grad(torch.compile(program, backend="mlirc")(x).sum(), x, create_graph=True)
    assert not first.requires_grad and first.tolist() == [6.0] * 4


def test_an_input_of_the_first_graph_that_has_changed_is_an_error():
    def program(x, scale):
        y = (x * scale).sin()
        torch._dynamo.graph_break()
        return (y.exp() + y).sum()

    torch._dynamo.reset()
    x, scale = torch.randn(4, requires_grad=True), torch.ones(4)
    total = torch.compile(lambda x, s: program(x, s).tanh(), backend="mlirc")(x, scale)
    scale.mul_(2)
    with pytest.raises(RuntimeError):
        (first,) = torch.autograd.grad(total, x, create_graph=True)
        torch.autograd.grad(first.sum(), x)

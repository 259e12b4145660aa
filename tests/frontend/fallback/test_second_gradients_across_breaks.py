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

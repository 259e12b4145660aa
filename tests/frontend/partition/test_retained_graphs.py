"""A backward graph that runs again: retain_graph and create_graph, which AOTAutograd refuses where a graph may overwrite what was saved."""

import pytest
import torch

ROWS = torch.nn.functional.softmax


def reshaped(x, y):
    h = (x * y.exp()).sin()
    return (h * x.cos()).reshape(x.shape[1] * 2, -1).tanh()


def normalized(x, y):
    return ROWS(x * y, -1).sin() @ ROWS(x.exp(), -1).mT + y.sum()


@pytest.mark.parametrize("function", [reshaped, normalized])
@pytest.mark.parametrize("dynamic", [True, None])
@pytest.mark.parametrize("first", ["plain", "retained"])
@pytest.mark.thinned(2)
def test_gradients_again(function, dynamic, first):
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="mlirc", dynamic=dynamic, options={"fallback": "error"})
    for n in (4, 6, 4):
        x, y = (torch.randn(n, k, 2, requires_grad=True) for k in (3, 1))
        expected = torch.autograd.grad(function(x, y).sum(), (x, y))
        if first == "plain":
            torch.testing.assert_close(torch.autograd.grad(compiled(x, y).sum(), (x, y)), expected)
        total = compiled(x, y).sum()
        for retain, create in ((True, False), (None, True), (True, False), (None, False)):
            found = torch.autograd.grad(total, (x, y), retain_graph=retain, create_graph=create)
            torch.testing.assert_close(found, expected)

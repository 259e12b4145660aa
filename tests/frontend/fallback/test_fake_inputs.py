"""Compiled functions of fake tensors, as programs that size a model call them: results and gradients are fake, and real calls stay compiled."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import mlirc
from mlirc.frontend.torch_compat.fake_mode import fake_mode_question


def described(results):
    results = results if isinstance(results, tuple) else (results,)
    return [(type(x), x.dtype, x.shape, x.stride(), x.requires_grad) for x in results]


FUNCTIONS = {
    "elementwise": lambda x: x.sin() * x,
    "rows": lambda x: (x.softmax(-1), x.sum(0)),
    "matmul": lambda x: x @ x.mT,
    "a view": lambda x: (x * 2).mT,
    "a write": lambda x: x.clone().add_(1),
    "no input": lambda x: torch.ones(3) * 2,
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("fake_first", [False, True], ids=["real first", "fake first"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_within_the_mode(name, fake_first):
    f, real = FUNCTIONS[name], torch.randn(2, 3)
    compiled = torch.compile(f, backend="mlirc", dynamic=fake_first)
    for fake in (fake_first, not fake_first, fake_first, not fake_first):
        if fake:
            with FakeTensorMode():
                x = torch.randn(2, 3)
                results = described(compiled(x))
                assert results == described(f(x)) and results[0][0] is FakeTensor
        else:
            torch.testing.assert_close(compiled(real), f(real))


def test_outside_of_the_mode():
    with FakeTensorMode():
        x = torch.ones(3)
    compiled = torch.compile(lambda x: x * 2, backend="mlirc")
    assert described(compiled(x)) == described(x * 2)
    torch.testing.assert_close(compiled(torch.ones(3)), torch.ones(3) * 2)


def test_parameters():
    real = nn.Linear(3, 4)
    compiled = torch.compile(lambda: real.weight * 2, backend="mlirc")
    torch.testing.assert_close(compiled(), real.weight * 2)
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert type(compiled()) is FakeTensor
    torch.testing.assert_close(compiled(), real.weight * 2)


def test_gradients():
    with FakeTensorMode():
        model = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2))
        torch.compile(model, backend="mlirc")(torch.ones(5, 3)).sum().backward()
    for p in model.parameters():
        assert type(p.grad) is FakeTensor and p.grad.shape == p.shape


def test_a_fake_gradient_of_a_real_call_is_refused():
    x = torch.ones(3, requires_grad=True)
    y = torch.compile(lambda x: x.sin() * x, backend="mlirc")(x)
    with FakeTensorMode(), pytest.raises(AssertionError):
        y.backward(torch.ones(3))


def test_what_is_counted():
    f = FUNCTIONS["rows"]
    with FakeTensorMode():
        x = torch.randn(2, 3)
        found = mlirc.explain(f)(x)
    assert "fake tensor" in str(found)


def test_without_the_question(monkeypatch):
    monkeypatch.setattr(fake_mode_question, "_found", [None])
    test_within_the_mode("rows", False)

"""Gradients of gradients of a compiled call, as programs ask for them: eager's, or an error that says why there is none."""

from typing import Any

import pytest
import torch
from torch import autograd, nn
from torch.autograd import functional

from mlirc.frontend.errors import UnsupportedGraph

LIMIT = "does not currently support double backward"


def f(x):
    return (x.sin() * x).exp().sum()


def vector(x):
    return (x.sin() * x).exp()


def at():
    return torch.linspace(-1, 1, 4)


def net(*layers):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), *layers, nn.Tanh(), nn.Linear(6, 1))


def gradients(model):
    found: list[Any] = [p.grad for p in model.parameters()]
    return found


def twice(compiled):
    x = at().requires_grad_()
    (first,) = autograd.grad(compiled(f)(x), x, create_graph=True)
    return first, autograd.grad(first.sum(), x)


def four_times(compiled):
    x, found = at().requires_grad_(), []
    total = compiled(lambda x: (x**5).sum())(x)
    for _ in range(4):
        (g,) = autograd.grad(total, x, create_graph=True)
        found, total = [*found, g], g.sum()
    return found


def of_a_gradient(compiled):
    x, v = at().requires_grad_(), at().requires_grad_()
    (first,) = autograd.grad(compiled(lambda x: x * 3)(x), x, v * v, create_graph=True)
    return first, autograd.grad(first.sum(), v)


def penalty(compiled):
    model, x = net(), torch.randn(5, 4, requires_grad=True)
    out = compiled(model)(x)
    (g,) = autograd.grad(out.sum(), x, create_graph=True)
    (out.mean() + ((g.norm(dim=1) - 1) ** 2).mean()).backward()
    return gradients(model)


def penalty_within(compiled):
    model, x = net(), torch.randn(5, 4, requires_grad=True)

    def step(x):
        (g,) = autograd.grad(model(x).sum(), x, create_graph=True)
        return ((g.norm(dim=1) - 1) ** 2).mean()

    compiled(step)(x).backward()
    return gradients(model)[:-1]


def inner_step(compiled):
    model, x = net(), torch.randn(5, 4)
    loss = compiled(model)(x).square().mean()  # whose gradient depends on the parameters, too
    g = autograd.grad(loss, list(model.parameters()), create_graph=True)
    fast = {name: p - 0.1 * d for (name, p), d in zip(model.named_parameters(), g, strict=True)}
    torch.func.functional_call(model, fast, (x,)).square().mean().backward()
    return gradients(model)


def two_calls(compiled):
    model, x, y = net(), *(torch.randn(2, 4, requires_grad=True) for _ in range(2))
    called = compiled(model)
    g = autograd.grad((called(x) * called(y)).sum(), [x, y], create_graph=True)
    (g[0].square().sum() + g[1].pow(3).sum()).backward()
    return [x.grad, y.grad, *gradients(model)]


def second_derivative(compiled):
    model = net()
    x = torch.randn(6, 4, requires_grad=True)
    u = compiled(model)(x)
    (du,) = autograd.grad(u, x, torch.ones_like(u), create_graph=True)
    (ddu,) = autograd.grad(du.sum(), x, create_graph=True)
    (ddu.sum(1, keepdim=True) + u).square().mean().backward()
    return gradients(model)


def behind_a_break(compiled):
    def broken(x):
        y = x.sin() * 2
        torch._dynamo.graph_break()
        return (y.exp() * y).sum()

    x = at().requires_grad_()
    (first,) = autograd.grad(compiled(broken)(x), x, create_graph=True)
    return first, autograd.grad(first.sum(), x)


def several_results(compiled):
    def several(x):
        y = x.sin() * 2
        return x.t(), None, y.argmax(), y, y.t(), y.detach(), 3

    x = torch.rand(3, 4, requires_grad=True)
    a, _, _, b, c, d, _ = compiled(several)(x)
    (first,) = autograd.grad((a**3).sum() + (b**2 * d).sum() + (c**3).sum(), x, create_graph=True)
    return first, autograd.grad(first.sum(), x)


def under_autocast(compiled):
    model, x = net(), torch.rand(3, 4, requires_grad=True)
    called = compiled(model)
    with torch.autocast("cpu", torch.bfloat16):
        total = called(x).float().pow(3).sum()
    (g,) = autograd.grad(total, x, create_graph=True)
    g.square().sum().backward()
    return [g.bfloat16() for g in gradients(model)[:-1]]


def other_sizes(compiled):
    called, found = compiled(lambda x, n: (x**3 * n).sum(), dynamic=True), []
    for n in (3, 5):
        x = torch.rand(n, requires_grad=True)
        found += autograd.grad(called(x, n), x, create_graph=True)
        found += autograd.grad(found[-1].sum(), x)
    return found


def hooked(compiled):
    x, y = at().requires_grad_(), at().requires_grad_()
    x.register_hook(lambda g: g * 2)
    (first,) = autograd.grad(compiled(lambda x, y: (x * 3 + y**3).sum())(x, y), y, create_graph=True)
    return first, autograd.grad(first.sum(), (x, y), allow_unused=True)[1]


def normalized(compiled):
    return second_of(compiled(net(nn.BatchNorm1d(6))))


def dropped(compiled):
    return second_of(compiled(net(nn.Dropout(0.5))))


def changed(compiled):
    x, y = at().requires_grad_(), at()
    called = compiled(lambda x, y: (x**3 + y).exp().sum())(x, y)
    y.mul_(2)
    (first,) = autograd.grad(called, x, create_graph=True)
    return autograd.grad(first.sum(), x)


def second_of(called):
    x = torch.randn(5, 4, requires_grad=True)
    (first,) = autograd.grad(called(x).sum(), x, create_graph=True)
    return first.detach(), autograd.grad(first.square().sum(), x, allow_unused=True)


RIGHT = [
    twice,
    four_times,
    of_a_gradient,
    penalty,
    penalty_within,
    inner_step,
    two_calls,
    second_derivative,
    behind_a_break,
]
RIGHT += [several_results, under_autocast, other_sizes, hooked]
FUNCTIONAL = {
    "hessian": lambda f: functional.hessian(f, at()),
    "hessian in one": lambda f: functional.hessian(f, at(), vectorize=True),
    "hvp": lambda f: functional.hvp(f, at(), torch.ones(4)),
    "vhp": lambda f: functional.vhp(f, at(), torch.ones(4)),
}


def both(program):
    """What a program gives compiled, and in eager."""
    found = []
    for backend in ("mlirc", None):
        torch._dynamo.reset()
        torch.manual_seed(0)
        found.append(program(lambda f, b=backend, **how: torch.compile(f, backend=b, **how) if b else f))
    return found


@pytest.mark.parametrize("program", RIGHT)
def test_second_gradients_are_eagers(program):
    torch.testing.assert_close(*both(program))


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_functional(name):
    torch.testing.assert_close(*both(lambda compiled: FUNCTIONAL[name](compiled(f))))


def test_jvp_by_two_gradients():
    torch.testing.assert_close(*both(lambda compiled: functional.jvp(compiled(vector), at(), torch.ones(4))))


@pytest.mark.parametrize("program", [normalized, dropped, changed])
def test_what_cannot_run_again_is_an_error(program):
    torch._dynamo.reset()
    with pytest.raises(RuntimeError, match=LIMIT):
        program(lambda f: torch.compile(f, backend="mlirc"))


def test_an_input_that_is_gone_is_an_error():
    torch._dynamo.reset()
    x, w = at().requires_grad_(), torch.randn(4, 4)

    def product(x):
        return (x @ w).tanh().sum()  # its gradient needs the product, not x

    called = torch.compile(product, backend="mlirc")
    with pytest.raises(RuntimeError, match=LIMIT):
        autograd.grad(called(x * 2), x, create_graph=True)
    torch.testing.assert_close(*autograd.grad(called(x * 2), x), *autograd.grad(product(x * 2), x))


def test_it_is_counted():
    torch._dynamo.reset()
    x = at().requires_grad_()
    called = torch.compile(f, backend="mlirc", options={"fallback": "error"})
    (first,) = autograd.grad(called(x), x, create_graph=True)
    torch.testing.assert_close(first, *autograd.grad(f(x), x))
    with pytest.raises(UnsupportedGraph, match="gradient of a gradient"):
        first.sum().backward()

"""Gradients of gradients of a compiled call, as programs ask for them: eager's, or an error that says why there is none."""

import contextlib
from typing import Any

import pytest
import torch
from torch import autograd, nn
from torch.autograd import functional

from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.fallback import second_gradients

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


def normalized_twice(compiled):
    """Between the call and its gradients another one moves the statistics, which are no part of the results."""
    model, x, other = net(nn.BatchNorm1d(6)), torch.randn(5, 4, requires_grad=True), torch.randn(7, 4)
    called = compiled(model)
    out = called(x)
    called(other)
    (first,) = autograd.grad(out.sum(), x, create_graph=True)
    first.square().sum().backward()
    return first.detach(), x.grad, gradients(model)[:-1], list(model.buffers())


def images(compiled):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.LeakyReLU(), nn.Dropout2d(0.3), nn.Conv2d(3, 1, 2))
    x = torch.randn(2, 2, 6, 6, requires_grad=True)
    (g,) = autograd.grad(compiled(model)(x).sum(), x, create_graph=True)
    ((g.flatten(1).norm(dim=1) - 1) ** 2).mean().backward()
    return gradients(model)[:-1], list(model.buffers())


RANDOM = {
    "dropout": lambda x: nn.functional.dropout(x.sin(), 0.4) * x,
    "two": lambda x: nn.functional.dropout(x.sin(), 0.4) * nn.functional.dropout(x * x, 0.2),
    "rand_like": lambda x: x**3 * torch.rand_like(x),
    "randn": lambda x: (x + torch.randn(4)) ** 3,
    "bernoulli": lambda x: x**3 * torch.bernoulli(torch.full((4,), 0.5)),
    "in place": lambda x: x**3 * torch.empty(4).uniform_(1, 2),
    "alpha dropout": lambda x: nn.functional.alpha_dropout(x * x, 0.4) * x,
    "rrelu": lambda x: nn.functional.rrelu(x * x - 0.3, training=True) * x,
    "attention": lambda x: nn.functional.scaled_dot_product_attention(
        *[x.view(1, 1, 2, 2) ** k for k in (1, 2, 3)], dropout_p=0.5
    ),
}


def drawing(name, compiled):
    x, called, found = at().requires_grad_(), compiled(RANDOM[name]), []
    for _ in range(3):
        (first,) = autograd.grad(called(x).sum(), x, create_graph=True)
        found += [first.detach(), *autograd.grad(first.square().sum(), x), torch.rand(2)]
    return found


def hook_behind_a_view(compiled):
    """A gradient without history calls no hook."""
    found = []
    for f in (lambda x: x * 3, torch.sin, lambda x: x.amax(0), torch.relu):
        x = at().view(4, 1).requires_grad_()
        x.register_hook(lambda g: found.append(g.detach()))  # noqa: B023
        view = x.transpose(0, -1)
        (first,) = autograd.grad(compiled(f)(view).sum(), x, create_graph=True)
        found.append(first.detach())
        if first.requires_grad:
            found += autograd.grad(first.sum(), x, allow_unused=True)
    return found


def changed(compiled):
    x, y = at().requires_grad_(), at()
    called = compiled(lambda x, y: (x**3 + y).exp().sum())(x, y)
    y.mul_(2)
    (first,) = autograd.grad(called, x, create_graph=True)
    return autograd.grad(first.sum(), x)


def gaps(compiled):
    """A copy of what is written to would have other strides."""

    def program(x, y):
        y.mul_(2)
        return (x**3 * y).exp().sum()

    x = at().requires_grad_()
    (first,) = autograd.grad(compiled(program)(x, torch.ones(8)[::2]), x, create_graph=True)
    return autograd.grad(first.sum(), x)


def second_of(called):
    x = torch.randn(5, 4, requires_grad=True)
    (first,) = autograd.grad(called(x).sum(), x, create_graph=True)
    return first.detach(), autograd.grad(first.square().sum(), x, allow_unused=True)


VIEWS = {
    "two parts": lambda x: (lambda y: (y[0], y[1]))(x.view(2, 2).sin()),
    "parts, and their base": lambda x: (lambda y: (y[1], y, y.t()))(x.view(2, 2).exp()),
    "of two tensors": lambda x: (x.sin().view(2, 2)[0], *x.exp().split(2), x.cos()),
    "of an input, too": lambda x: (x[1:], *x.tanh().chunk(2), x * x),
}


def of_views(name, compiled):
    x = at().requires_grad_()
    results = compiled(VIEWS[name])(x)
    total: Any = sum(y.square().sum() * k for k, y in enumerate(results, 1))
    (first,) = autograd.grad(total, x, create_graph=True)
    return [y.detach() for y in results], first.detach(), autograd.grad(first.square().sum(), x)


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
RIGHT += [several_results, under_autocast, other_sizes, hooked, hook_behind_a_view]
RIGHT += [normalized, normalized_twice, images, dropped]
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


@pytest.mark.thinned(4)
@pytest.mark.parametrize("program", RIGHT)
def test_second_gradients_are_eagers(program):
    torch.testing.assert_close(*both(program))


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_are_drawn_again(name):
    torch.testing.assert_close(*both(lambda compiled: drawing(name, compiled)))


def test_random_numbers_of_a_gpu_are_drawn_again(monkeypatch):
    """A GPU whose generator is the CPU's here. While a CUDA graph is recorded its state is not asked for."""
    asked = []
    monkeypatch.setattr(second_gradients, "devices_of", lambda args: [torch.device("cuda", 1)])
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: (asked.append(device), torch.get_rng_state())[1])
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: torch.set_rng_state(state))
    monkeypatch.setattr(torch.random, "fork_rng", lambda devices: forked(devices))
    torch.testing.assert_close(*both(lambda compiled: drawing("two", compiled)))
    assert set(map(str, asked)) == {"cuda:1"}
    asked.clear()
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    torch._dynamo.reset()
    torch.compile(RANDOM["two"], backend="mlirc")(at().requires_grad_())
    assert not asked


@contextlib.contextmanager
def forked(devices):
    state = torch.get_rng_state()
    yield
    torch.set_rng_state(state)


@pytest.mark.parametrize("name", VIEWS)
def test_results_that_are_views(name):
    torch.testing.assert_close(*both(lambda compiled: of_views(name, compiled)))


def test_what_was_freed_is_an_error():
    torch._dynamo.reset()
    x = at().requires_grad_()
    out = torch.compile(f, backend="mlirc")(x)
    out.backward()
    with pytest.raises(RuntimeError, match="a second time"):
        autograd.grad(out, x, create_graph=True)


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_functional(name):
    torch.testing.assert_close(*both(lambda compiled: FUNCTIONAL[name](compiled(f))))


def test_jvp_by_two_gradients():
    torch.testing.assert_close(*both(lambda compiled: functional.jvp(compiled(vector), at(), torch.ones(4))))


@pytest.mark.parametrize("program", [changed, gaps])
def test_what_cannot_run_again_is_an_error(program):
    torch._dynamo.reset()
    with pytest.raises(RuntimeError, match=LIMIT):
        program(lambda f: torch.compile(f, backend="mlirc"))


PASSING_VIEWS = {
    "transposed": lambda x: x.mT,
    "part": lambda x: x[1:, :2],
    "flat": lambda x: x.view(-1),
    "of a view": lambda x: x.t()[1].unsqueeze(0),
}


@pytest.mark.parametrize("name", PASSING_VIEWS)
def test_an_input_that_is_a_view_and_gone_is_taken_again(name):
    torch._dynamo.reset()
    x, w, view = torch.randn(3, 4, requires_grad=True), at().requires_grad_(), PASSING_VIEWS[name]

    def products(x, w):
        return (x.sum() * w).tanh().sum() * (x**3).sum()

    def second(f, kept):
        given = x * 1
        passed = view(given) if kept else None
        y = f(view(given) if passed is None else passed, w)
        gradients = autograd.grad(y, [x, w], create_graph=True, allow_unused=True)
        total = sum(g.square().sum() for g in gradients if g is not None)
        return autograd.grad(total, [x, w], allow_unused=True)

    for found, expected in zip(
        second(torch.compile(products, backend="mlirc"), False), second(products, True), strict=True
    ):
        assert (found is None) == (expected is None)
        if found is not None and expected is not None:
            torch.testing.assert_close(found, expected)


def test_an_input_that_is_gone_is_an_error():
    """Of the second gradient: the first is a number that nobody may differentiate."""
    torch._dynamo.reset()
    x, w = at().requires_grad_(), torch.randn(4, 4)

    def product(x):
        return (x @ w).tanh().sum()  # its gradient needs the product, not x

    called = torch.compile(product, backend="mlirc")
    (first,) = autograd.grad(called(x * 2), x, create_graph=True)
    torch.testing.assert_close(first, *autograd.grad(product(x * 2), x))
    with pytest.raises(RuntimeError, match=LIMIT):
        autograd.grad(first.sum(), x)
    torch.testing.assert_close(*autograd.grad(called(x * 2), x), *autograd.grad(product(x * 2), x))


def test_it_is_counted():
    torch._dynamo.reset()
    x = at().requires_grad_()
    called = torch.compile(f, backend="mlirc", options={"fallback": "error"})
    (first,) = autograd.grad(called(x), x, create_graph=True)
    torch.testing.assert_close(first, *autograd.grad(f(x), x))
    with pytest.raises(UnsupportedGraph, match="gradient of a gradient"):
        first.sum().backward()


FACTORED = {
    "inv": torch.linalg.inv,
    "cholesky": torch.linalg.cholesky,
    "solve": lambda x: torch.linalg.solve(x, x.sin()),
    "power": lambda x: torch.linalg.matrix_power(x, -2),
    "tensorinv": lambda x: torch.linalg.tensorinv(x[:, :, None], 1),
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", FACTORED)
def test_factorizations_that_check_their_matrix(name):
    """AOTAutograd orders their checks as it orders prints, but a check may be made again."""
    torch.manual_seed(0)
    start = torch.randn(4, 4, dtype=torch.float64)
    found = []
    for f in (FACTORED[name], torch.compile(FACTORED[name], backend="mlirc")):
        x = (start @ start.mT + torch.eye(4)).requires_grad_()
        (first,) = autograd.grad(f(x).sin().sum(), x, create_graph=True)
        found.append(autograd.grad(first.cos().sum(), x))
    torch.testing.assert_close(*found)


def test_an_effect_does_not_happen_twice():
    def shown(x):
        torch.ops.aten._print("seen")
        return torch.linalg.inv(x).sin()

    x = torch.eye(3, requires_grad=True)
    result = torch.compile(shown, backend="mlirc")(x).sum()
    with pytest.raises(RuntimeError, match="effects"):
        (first,) = autograd.grad(result, x, create_graph=True)
        first.sum().backward()


def test_calls_without_gradients_ask_for_no_states(monkeypatch):
    asked = []
    monkeypatch.setattr(second_gradients, "states", lambda devices: asked.append(devices) or [torch.get_rng_state()])
    run = torch.compile(lambda x: torch.nn.functional.dropout(x), backend="mlirc")
    run(at())
    asked.clear()
    run(at())
    assert not asked


def test_a_gpu_that_is_lost_is_the_call_s_to_tell(monkeypatch):
    def lost():
        raise RuntimeError("CUDA error: unspecified launch failure")

    graph = second_gradients.Graph(torch.fx.symbolic_trace(lambda x: x.sin()), [at()], lambda why: None)
    assert graph.states_before() is not None
    graph.devices = [torch.device("cuda", 0)]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lost)
    assert graph.states_before() is None

"""Second gradients of graphs that write to an input or a buffer: eager's, with the history of before the write."""

from typing import Any

import pytest
import torch
from torch import autograd, nn
from torch.autograd import functional

from mlirc.frontend.fallback import second_gradients
from tests.frontend.fallback.second_gradients.test_second_gradients import LIMIT, at, both, gradients, net


def scaled(x, y):
    y.mul_(0.5).add_(1)
    return (x**3 * y).exp().sum() * 0.01


def overwritten(x, y):
    y.copy_(x)
    return (x**3 * y).sum()


def averaged(x, y):
    with torch.no_grad():
        y.lerp_(x, 0.1)
    return (x**3).sum() + (x * y).sum()


def counted(x, y):
    y.add_(1)
    return (x**3).sum()


def in_part(x, y):
    y[:2] += 1
    return (x[:2] ** 3 * y[:2]).sum()


def written_and_returned(x, y):
    y.mul_(x.detach().sum() + 1)
    return (x.sin() * y).pow(2).sum(), y, y.view(2, 2)


def of_a_buffer(f, compiled):
    x, y = at().requires_grad_(), torch.linspace(1, 2, 4)
    results = compiled(f)(x, y)
    first = results[0] if isinstance(results, tuple) else results
    (g,) = autograd.grad(first, x, create_graph=True)
    return g.detach(), y.detach(), autograd.grad(g.sum(), x)


def of_what_was_computed(f, compiled):
    """What is written to has a history, which ends before the write."""
    x, w = at().requires_grad_(), torch.linspace(1, 2, 4).requires_grad_()
    y = w * 1
    results = compiled(f)(x, y)
    first = results[0] if isinstance(results, tuple) else results
    g = autograd.grad(first + y.pow(2).sum(), [x, w], create_graph=True, allow_unused=True)
    total: Any = sum(part.square().sum() for part in g if part is not None)
    return y.detach(), [x if x is None else x.detach() for x in g], autograd.grad(total, [x, w], allow_unused=True)


def of_what_is_gone(f, compiled):
    called = compiled(lambda x, y: (lambda r: r[0] if isinstance(r, tuple) else r)(f(x, y)))
    return functional.hvp(lambda x: called(x, torch.ones(4)), at(), torch.ones(4))


WRITES = [scaled, overwritten, averaged, counted, in_part, written_and_returned]
WAYS = [of_a_buffer, of_what_was_computed, of_what_is_gone]


class Averaged(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return x * (1 + self.mean)


class StatisticsRead(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(6)

    def forward(self, x):
        return self.norm(x) * self.norm.running_var + self.norm.running_mean


WRITERS = {
    "average": Averaged,
    "statistics that are read": StatisticsRead,
    "spectral norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(6, 6)),
    "spectral norm by a hook": lambda: nn.utils.spectral_norm(nn.Linear(6, 6)),
    "instance norm": lambda: nn.Sequential(
        nn.Unflatten(1, (3, 2)), nn.InstanceNorm1d(3, track_running_stats=True), nn.Flatten()
    ),
}


def penalty_of(name, compiled):
    model, x = net(WRITERS[name]()), torch.randn(5, 4, requires_grad=True)
    called = compiled(model)
    for _ in range(2):
        out = called(x)
        (g,) = autograd.grad(out.sum(), x, create_graph=True)
        (out.mean() + ((g.norm(dim=1) - 1) ** 2).mean()).backward()
    return x.grad, gradients(model), list(model.buffers())


@pytest.mark.parametrize("f", WRITES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.thinned(4)
def test_graphs_that_write_to_an_input(f, way):
    torch.testing.assert_close(*both(lambda compiled: way(f, compiled)))


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.thinned(2)
def test_modules_that_write_to_buffers(name):
    torch.testing.assert_close(*both(lambda compiled: penalty_of(name, compiled)))


def test_of_a_large_input_that_is_written_to_no_copy_is_kept(monkeypatch):
    torch._dynamo.reset()
    x, memory = at().requires_grad_(), torch.zeros(4)
    monkeypatch.setattr(second_gradients, "COPIED", 15)

    def program(x, memory):
        memory.add_(x.detach())
        return (x**3 + memory).sum()

    called = torch.compile(program, backend="mlirc")
    (first,) = autograd.grad(called(x, memory), x, create_graph=True)
    torch.testing.assert_close(first, 3 * x.detach() ** 2)
    with pytest.raises(RuntimeError, match=LIMIT):
        autograd.grad(first.sum(), x)

"""Inputs that conjugate or negate what is in memory are compiled: values, flags, strides and memory of results, writes, gradients."""

from functools import partial

import pytest
import torch

from mlirc.frontend import statistics

pytestmark = pytest.mark.thinned

NUMBERS = torch.arange(24.0).view(4, 6).cos()
PAIRS = torch.complex(NUMBERS, NUMBERS.flip(0))
INPUTS = {
    "conjugated": lambda: PAIRS.clone().conj(),
    "negated": lambda: torch._neg_view(NUMBERS.clone()),
    "imaginary part": lambda: PAIRS.clone().conj().imag,
    "both": lambda: torch._neg_view(PAIRS.clone().conj()),
    "conjugated rows behind": lambda: PAIRS.clone().t().conj()[1:],
    "negated part": lambda: torch._neg_view(NUMBERS.clone())[1:, ::2],
}


def add_in_place(x):
    x.add_(1)
    return x * 2


def write_a_row(x):
    x[0].mul_(2)
    return x[1:], x + 1


def write_a_view(x):
    y = x.view_as(x)
    y.mul_(3)
    return y, y.sum()


BODIES = {
    "arithmetic": lambda x: x * 2 + 1,
    "views": lambda x: (x[1:], x.t(), x.sum(0)),
    "itself": lambda x: (x, x + 1),
    "conjugates": lambda x: (x.conj(), x.conj() * 2, x.conj().contiguous()),
    "parts": lambda x: (x.real * 2, torch.view_as_real(x.resolve_conj())) if x.is_complex() else x.abs(),
    "products": lambda x: x @ x.mT,
    "copies": lambda x: (x.clone(), x.contiguous(), x.to(torch.complex128)),
    "detached": lambda x: (x.detach(), x.detach() + x),
    "saved": lambda x: x[1:] * x[1:] + x.sin().sum(),
}
WRITES = {"in place": add_in_place, "of a row": write_a_row, "of a view": write_a_view}


def values(x: torch.Tensor) -> torch.Tensor:
    return x.detach().clone().resolve_conj().resolve_neg()


def facts(x: torch.Tensor) -> tuple:
    return x.is_conj(), x.is_neg(), x.stride(), x.dtype, x.requires_grad


def compare(make, body, gradients=False, **how):
    """Results, what is written, and gradients are eager's, and nothing runs in eager."""
    seen = []
    statistics.reset()
    for function in (body, torch.compile(lambda x: body(x), backend="mlirc", **how)):
        x = make()
        made = function(x)
        made = made if isinstance(made, tuple) else (made,)
        within = [y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for y in made]
        seen.append([values(y) for y in made] + [values(x)])
        seen.append(([facts(y) for y in made], facts(x), within))
        if gradients:
            sum((y.abs() ** 2).sum() for y in made if y.requires_grad).backward()
            seen[-2].append(x.grad)
            seen[-1] += (facts(x.grad),)
    torch.testing.assert_close(seen[2], seen[0])
    assert seen[3] == seen[1]
    assert statistics.graphs and not any(graph.fallback for graph in statistics.graphs) and not statistics.fallbacks


@pytest.mark.thinned(8)
@pytest.mark.parametrize("body", [*BODIES, *WRITES])
@pytest.mark.parametrize("name", INPUTS)
def test_inference(name, body):
    compare(INPUTS[name], (BODIES | WRITES)[body])


@pytest.mark.thinned(8)
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("name", INPUTS)
def test_gradients(name, body):
    compare(lambda: INPUTS[name]().detach().requires_grad_(), BODIES[body], gradients=True)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("body", [body for body in BODIES if body != "detached"])
@pytest.mark.parametrize("name", ["conjugated", "negated", "both"])
def test_symbolic_sizes(name, body):
    compare(INPUTS[name], BODIES[body], dynamic=True)


def test_a_buffer_and_a_parameter():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch._neg_view(NUMBERS.clone()))
            self.register_buffer("shift", PAIRS.clone().conj().imag)

        def forward(self, x):
            return x @ self.weight + self.shift

    x = torch.ones(4, 4)
    made, trained = {}, {}
    statistics.reset()
    for backend in ("eager", "mlirc"):
        layer = Layer()
        function = torch.compile(layer, backend=backend)
        with torch.no_grad():
            made[backend] = [function(x)]
            layer.weight.mul_(2)  # what was computed of it is computed again
            made[backend].append(function(x))
        function(x).square().sum().backward()
        trained[backend] = layer.weight.grad
    torch.testing.assert_close(made["mlirc"], made["eager"])
    torch.testing.assert_close(trained["mlirc"], trained["eager"])
    assert {graph.kind for graph in statistics.graphs} == {"inference", "forward", "backward"}
    assert not statistics.fallbacks


def test_two_views_of_one_memory():
    """AOTAutograd takes them again of one base, without flags: the graph runs in eager, counted."""

    def function(x, y):
        x.mul_(2)
        return y + x

    seen = []
    statistics.reset()
    for run in (function, torch.compile(function, backend="mlirc")):
        memory = PAIRS.clone()
        seen.append((run(torch._neg_view(memory), memory), memory))
    torch.testing.assert_close(seen[1], seen[0])
    assert any("share memory" in why for why in statistics.fallbacks)


def test_flags_that_change():
    """A program for one kind of tensor takes none of another, in memory or from the disk cache."""
    compiled = torch.compile(lambda x: x * 2 + 1, backend="mlirc")
    for _ in range(2):
        for make in (PAIRS.clone, partial(PAIRS.conj), lambda: torch._neg_view(PAIRS)):
            torch.testing.assert_close(compiled(make()), make() * 2 + 1)
        torch._dynamo.reset()

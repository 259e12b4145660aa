"""The option compile_seconds: each program by quick code, by its best code, and by one after the other within a step, against eager."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import mlirc
from mlirc.frontend import statistics


@dataclass
class Program:
    """`make` gives a function and the arguments of each of its calls; parameters are those of the arguments and the module."""

    make: Callable[[], tuple[Callable, list[tuple]]]
    dynamic: bool | None = None


def linear() -> tuple[Callable, list[tuple]]:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)), calls((5, 8))


def convolutions() -> tuple[Callable, list[tuple]]:
    layers = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 8, 3)
    return nn.Sequential(*layers), calls((2, 3, 12, 12))


def dropout() -> tuple[Callable, list[tuple]]:
    return nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.5), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 4)), calls((6, 8))


def random() -> tuple[Callable, list[tuple]]:
    return lambda x: x * torch.rand_like(x) + torch.randn(8), calls((6, 8))


def attention() -> tuple[Callable, list[tuple]]:
    def run(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)

    return run, [tuple(torch.randn(3, 2, 4, 10, 8)) for _ in range(4)]


def written() -> tuple[Callable, list[tuple]]:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(8))
            self.layer = nn.Linear(8, 8)

        def forward(self, x, state):
            self.count += 1
            state.mul_(0.5).add_(x.detach().mean(0))
            return self.layer(x) * self.count + state

    return Counts(), [(torch.randn(5, 8), torch.randn(8)) for _ in range(4)]


def views() -> tuple[Callable, list[tuple]]:
    def run(x):
        y = x.sin()
        return y, y[1:].t(), x.view(-1), x[0], y * 2

    return run, calls((4, 6))


def sizes() -> tuple[Callable, list[tuple]]:
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.LayerNorm(16)), [(torch.randn(n, 8),) for n in (5, 9, 3, 5)]


def of_data() -> tuple[Callable, list[tuple]]:
    return lambda x: x[x > 0].exp().sum() + x.relu(), calls((5, 8))


def branch() -> tuple[Callable, list[tuple]]:
    return lambda x: torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,)), calls((5, 8))


def integers() -> tuple[Callable, list[tuple]]:
    return lambda x: ((x * 10).int() % 3, x.argmax(-1), x.sort(-1)[0], x > 0), calls((5, 8))


def calls(shape: tuple[int, ...]) -> list[tuple]:
    return [(torch.randn(shape),) for _ in range(4)]


PROGRAMS = {
    "linear": Program(linear),
    "convolutions": Program(convolutions),
    "dropout": Program(dropout),
    "random": Program(random),
    "attention": Program(attention),
    "written": Program(written),
    "views": Program(views),
    "sizes": Program(sizes, dynamic=True),
    "sizes of data": Program(of_data),
    "branch": Program(branch),
    "integers": Program(integers),
}
NEVER_TRAINED = {"integers"}
ORDERS = {  # before which of forward and backward pass of each call the background is waited for
    "between steps": [(False, False), (True, False), (False, False)],
    "within the first": [(False, True), (False, False)],
    "within the second": [(False, False), (False, True), (False, False)],
}


def steps(program: Program, compile_: Callable, train: bool, order: list[tuple[bool, bool]]) -> list[Any]:
    """What the calls of a program give, and leave behind."""
    torch.manual_seed(1)
    function, given = program.make()
    run, found = compile_(function), []
    for (first, second), args in zip(order, given, strict=False):
        torch.manual_seed(2)
        args = [x.clone().requires_grad_(train and len(args) in (1, 3)) for x in args]
        if first:
            mlirc.finish_compiling()
        results = run(*args) if train else torch.no_grad()(run)(*args)
        results = results if isinstance(results, tuple) else (results,)
        if second:
            mlirc.finish_compiling()
        if train:
            sum(x.pow(2).sum() for x in results if x.requires_grad).backward()
        found += [(x.detach().clone(), x.stride(), x._is_view()) for x in results]
        found += [x.grad for x in args] + [x.detach().clone() for x in args] + [torch.get_rng_state()]
        if isinstance(function, nn.Module):
            found += [x.clone() for x in function.buffers()] + [p.grad for p in function.parameters()]
    return found


@pytest.mark.thinned(3)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_by_quick_code_and_its_best(name, train, order):
    if train and name in NEVER_TRAINED:
        pytest.skip("it has no gradients")
    program = PROGRAMS[name]
    statistics.reset()

    def compiled(function):
        options = {"compile_seconds": 0, "fallback": "error"}
        return torch.compile(function, backend="mlirc", options=options, dynamic=program.dynamic, fullgraph=True)

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        expected = steps(program, lambda function: function, train, ORDERS[order])
        found = steps(program, compiled, train, ORDERS[order])
    assert len(found) == len(expected)
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x, y, atol=1e-5, rtol=1e-4) if isinstance(x, torch.Tensor) else compare(x, y)
    graphs = [graph for graph in statistics.graphs if not graph.subgraphs]
    assert graphs and not statistics.fallbacks
    assert all(graph.quick_calls for graph in graphs)
    mlirc.finish_compiling()
    assert not any(graph.quick for graph in graphs)
    assert any(graph.kernels or graph.aten or graph.library for graph in graphs)


def compare(found: Any, expected: Any) -> None:
    if expected is None:
        assert found is None
        return
    torch.testing.assert_close(found[0], expected[0], atol=1e-5, rtol=1e-4)
    assert found[1:] == expected[1:]

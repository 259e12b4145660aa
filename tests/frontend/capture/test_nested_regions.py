"""torch.compiler.nested_compile_region: its code is compiled with all around it, and kept on disk."""

import contextlib

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import get_overridable_functions
from torch.utils._python_dispatch import TorchDispatchMode

from mlirc.frontend import statistics
from mlirc.frontend.capture.nested_regions import CHECKED, named
from mlirc.frontend.torch_compat.aot_autograd import trace_result

region = torch.compiler.nested_compile_region


@region
def product(x, w):
    return torch.relu(x @ w)


@region
def two_results(x, w):
    return product(x, w).sin(), x.cos()


@region
def random(x):
    return F.dropout(x, 0.5)


@region
def inverse(x):
    return torch.linalg.inv(x) * 2


@region
def half(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ w


@region
def constant(x):
    return x + torch.tensor([1.0, 2.0, 3.0, 4.0]), 3


@region
def writes(x):
    x.add_(1)
    return x.sin()


def layers(x, w):
    for _ in range(3):
        x = product(x, w)
    return x


def within(x, w):
    first, second = two_results(x, w)
    third, fourth = two_results(first, w)
    return third + second, fourth


def dropped(x, w):
    return random(x @ w) + random(x * 2)


def casts(x, w):
    return half(x, w).float() + half(x * 2, w)


def numbers(x, w):
    made, n = constant(x)
    return made * n @ w


def written(x, w):
    y = x.clone()
    return writes(y) + writes(y) @ w, y


def solved(x, w):
    return inverse(x @ w) + inverse(w)


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.register_buffer("scale", torch.full((4,), 2.0))

    @region
    def layer(self, x, linear):
        return F.gelu(linear(x)) * self.scale

    def forward(self, x, w):
        for linear in self.layers:
            x = self.layer(x, linear)
        return x @ w


def called(fn, x, w):
    """What a call gives and leaves."""
    torch.manual_seed(3)
    x, w = x.clone(), w.detach().clone().requires_grad_(w.requires_grad)
    made = fn(x, w)
    made = [made] if isinstance(made, torch.Tensor) else list(made)
    if w.requires_grad:
        sum(y.sum() for y in made if y.requires_grad).backward()
    return [*made, x, w.grad]


FULL = [pytest.param(fn, marks=pytest.mark.full) for fn in (within, casts, numbers)]


@pytest.mark.parametrize(
    "fn", [dropped, written, solved, Layers(), *FULL], ids=lambda fn: getattr(fn, "__name__", "layers")
)
def test_nothing_of_a_region_runs_in_python(fn):
    statistics.reset()
    x, w = torch.randn(4, 4), torch.randn(4, 4, requires_grad=True)
    expected = called(fn, x, w)
    compiled = torch.compile(fn, backend="mlirc", fullgraph=True, options={"fallback": "error"})
    torch.testing.assert_close(called(compiled, x, w), expected)
    assert [graph.kind for graph in statistics.graphs] == ["forward", "backward"]
    assert not any("higher_order" in name for graph in statistics.graphs for name in graph.aten)


def test_a_region_raises_what_eager_raises():
    with pytest.raises(torch.linalg.LinAlgError):
        torch.compile(inverse, backend="mlirc", options={"fallback": "error"})(torch.zeros(4, 4))


class Checks(TorchDispatchMode):
    """Whether errors of a factorization are asked for."""

    seen = False

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen |= function is torch.ops.aten._linalg_check_errors.default
        return function(*args, **(kwargs or {}))


def test_names_of_functions_that_raise_by_data():
    """With an effect in a region, PyTorch drops gradients of its calls (2.11), or raises (2.13)."""
    functions, x = get_overridable_functions(), torch.eye(3)
    seen = set()
    for function in [*functions[torch.linalg], *(f for f in functions[torch] if hasattr(torch.Tensor, f.__name__))]:
        for rest in ((), (x,), (-1,)):
            with contextlib.suppress(Exception), Checks() as checks:
                function(x.clone(), *rest)
            if checks.seen:
                seen.add(function.__name__)
    assert {"inverse", "linalg_inv", "linalg_solve"} <= seen
    assert not [name for name in seen if not named(name, CHECKED)]


@pytest.mark.skipif(
    not torch.__version__.startswith(trace_result.VERSIONS),
    reason="this version of torch is none whose traces are kept",
)
def test_the_disk_cache(folder):
    x, w = torch.randn(3, 4), torch.randn(4, 4)
    for kept in ("miss", "hit"):
        torch._dynamo.reset()
        statistics.reset()
        torch.testing.assert_close(torch.compile(layers, backend="mlirc")(x, w), layers(x, w))
        assert [(graph.cache, graph.tracing) for graph in statistics.graphs] == [(kept, kept)]


@pytest.mark.full
def test_symbolic_sizes():
    run, w = torch.compile(layers, backend="mlirc", dynamic=True), torch.randn(4, 4)
    for n in (3, 5):
        x = torch.randn(n, 4)
        torch.testing.assert_close(run(x, w), layers(x, w))

"""Sizes that are computed from floats of the data, as `int(0.5 * x.sum().item())`: in subgraphs, with eager's numbers, errors and gradients."""

import math

import pytest
import sympy
import torch
from torch.utils._sympy.functions import CeilToInt, FloorToInt, ToFloat, TruncToInt

import mlirc
from mlirc.dialects.core.symbols import parse
from mlirc.frontend import statistics
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.importer.sizes import expression


@pytest.fixture(autouse=True)
def captured():
    torch._dynamo.reset()
    statistics.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        yield


def compiled(program, **options):
    return torch.compile(program, backend="mlirc", fullgraph=True, options={"fallback": "error"}, **options)


def half(x):
    return torch.zeros(int(0.5 * x.sum().item())) + x[0]


def rounded_up(x):
    return torch.ones(math.ceil(x.sum().item() / 3)) * 2


def part(x):
    return x[: int(0.5 * x.sum().item())].sin()


def at_least_one(x):
    n = max(1, int(x.shape[0] * x.mean().item()))
    return x[:n] * 2, n


def also_the_float(x):
    """The float is a result, a factor in two subgraphs, and what a size is made of."""
    s = x.sum().item()
    n = int(s * 0.5)
    return x.sin() * s, torch.ones(n) * s, n, s


def checked(x):
    s = x.sum().item()
    torch._check(s > 1.0)
    return torch.zeros(int(s / 2), 2) + x[0]


def in_turns(x):
    """Each size depends on the one before."""
    first = x.repeat_interleave(2)[: int(0.5 * x.abs().sum().item())].exp()
    return torch.arange(int(first.sum().item() * 0.7)) * first.shape[0], first.repeat(2)


FULL = [pytest.param(program, marks=pytest.mark.full) for program in (half, rounded_up, part, at_least_one, in_turns)]
PROGRAMS = [also_the_float, checked, *FULL]
INPUTS = [torch.ones(8), torch.tensor([1.5, 0.25, 3.0]), torch.ones(6, dtype=torch.int64)]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_inference(program):
    run = compiled(program)
    for x in INPUTS[: 2 + (program is half)]:
        torch.testing.assert_close(run(x), program(x))
    assert not statistics.fallbacks and statistics.graphs[0].subgraphs >= 1
    assert "aten._local_scalar_dense.default" in statistics.graphs[0].aten


@pytest.mark.parametrize(
    "x", [-torch.ones(8), pytest.param(torch.full((8,), math.nan), marks=pytest.mark.full)], ids=str
)
@pytest.mark.parametrize("program", [checked, pytest.param(half, marks=pytest.mark.full)])
def test_what_eager_raises(program, x):
    with pytest.raises(Exception) as expected:
        program(x)
    with pytest.raises(type(expected.value)):
        compiled(program)(x)


def test_gradients_through_such_a_size():
    def program(x, w):
        n = int(0.5 * x.detach().sum().item())
        return (x[:n] * w).sin().sum() + (w * x[0]).expand(n).exp().sum()

    x, w = torch.ones(8, requires_grad=True), torch.tensor(2.0, requires_grad=True)
    expected = torch.autograd.grad(program(x, w), (x, w))
    torch.testing.assert_close(torch.autograd.grad(compiled(program)(x, w), (x, w)), expected)
    assert not statistics.fallbacks


def test_a_hit_in_the_disk_cache(folder):
    for kept in ("miss", "hit"):
        torch._dynamo.reset()
        statistics.reset()
        torch.testing.assert_close(compiled(half, dynamic=True)(INPUTS[0]), half(INPUTS[0]))
        assert {graph.cache for graph in statistics.graphs if graph.subgraph is not None} == {kept}


def test_explain_counts_the_calls_between_subgraphs():
    assert "aten._local_scalar_dense.default: a size is known when it has run" in " ".join(
        str(mlirc.explain(half)(INPUTS[0])).split()
    )


@pytest.mark.parametrize(
    ("rounding", "scale", "expected"),
    [
        (TruncToInt, 2.0, "2*s0"),
        (TruncToInt, 1.5, "(3*s0)//2"),
        (FloorToInt, 0.25, "s0//4"),
        (CeilToInt, 0.5, "(s0 + 1)//2"),
        (TruncToInt, 0.3, None),
        (TruncToInt, -1.0, None),
    ],
)
def test_a_size_times_a_float(rounding, scale, expected):
    """As of an image that is enlarged by a scale. 0.3 has no short binary form: its products are rounded."""
    size = rounding(sympy.Float(scale) * ToFloat(sympy.Symbol("s0", integer=True, positive=True)), evaluate=False)
    if expected is None:
        with pytest.raises(UnsupportedGraph):
            expression(size)
    else:
        assert expression(size) == parse(expected)

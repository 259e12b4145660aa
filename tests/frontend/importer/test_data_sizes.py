"""Graphs whose sizes depend on data are compiled in pieces, with eager's results, errors and gradients."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import mlirc
from mlirc.frontend import statistics
from tests.compare_stages import compare


@pytest.fixture(autouse=True)
def captured():
    torch._dynamo.reset()
    statistics.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        yield


def compiled(program, **options):
    return torch.compile(program, backend="mlirc", fullgraph=True, options={"fallback": "error"} | options)


def masked(x, w):
    y = x.sin()
    return (y[y[:, 0] > 0] @ w).relu().sum(1)


def counted(x, n):
    k = n.sum().item()
    torch._check(k <= x.shape[0])
    torch._check(k >= 0)
    return x[:k].exp() * k, torch.zeros(k + 1) + x[0, 0]


def repeated(x, n):
    return torch.repeat_interleave(x.exp(), n, dim=0).softmax(1)


def distinct(x):
    values, inverse = torch.unique(x, return_inverse=True)
    return values * 2 + 1, inverse.float().mean() + torch.nonzero(x).sum()


def in_turns(x):
    """Each size depends on the one before."""
    positive = x[x > 0].exp()
    large = positive[positive > 2] * 3
    return large.sum() + positive.mean(), large


def written(x, n):
    """An argument is written to in the last piece, and what was viewed of it before has its old elements."""
    old = x[1:] * 2
    k = x[x > n]
    x.add_(1)
    return old + x[1:], k - 1


def randomly(x):
    a = torch.rand_like(x)
    b = x[a > 0.5]
    return torch.rand_like(b) + b, torch.rand(2)


CASES = [
    (masked, lambda: (torch.randn(9, 4), torch.randn(4, 3))),
    (counted, lambda: (torch.randn(6, 4), torch.randint(0, 4, (2,)))),
    (repeated, lambda: (torch.randn(6, 4), torch.randint(0, 4, (6,)))),
    (distinct, lambda: (torch.randint(0, 4, (5, 4)),)),
    (in_turns, lambda: (torch.randn(40),)),
    (written, lambda: (torch.randn(40), torch.tensor(0.3))),
    (randomly, lambda: (torch.randn(30),)),
]


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("program", "inputs"), CASES, ids=[program.__name__ for program, _ in CASES])
def test_inference(program, inputs):
    run = compiled(program)
    for seed in range(4):
        torch.manual_seed(seed)
        given = inputs()
        copies = [x.clone() for x in given]
        torch.manual_seed(seed)
        made = run(*given)
        torch.manual_seed(seed)
        compare(made, program(*copies), rtol=1e-5, atol=1e-5)
        compare(given, copies, rtol=0, atol=1e-6)
    assert not statistics.fallbacks and statistics.graphs[0].subgraphs == len(statistics.graphs) - 1 > 0


def test_training():
    """Sizes that the forward graph finds are arguments of the backward graph."""

    class Router(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.experts = nn.Linear(8, 2), nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

        def forward(self, x):
            best = self.gate(x).softmax(-1).max(-1)
            out = torch.zeros_like(x)
            for k, expert in enumerate(self.experts):
                rows = torch.nonzero(best.indices == k).flatten()
                out = out.index_add(0, rows, F.gelu(expert(x[rows])) * best.values[rows, None])
            return out

    torch.manual_seed(0)
    model = Router()
    run = torch.compile(model, backend="mlirc", fullgraph=True, dynamic=True, options={"fallback": "error"})
    for rows in (12, 7):
        x = torch.randn(rows, 8, requires_grad=True)
        steps = []
        for call in (run, model):
            result = call(x)
            steps.append([result, *torch.autograd.grad(result.square().sum(), [x, *model.parameters()])])
        compare(*steps, rtol=1e-4, atol=1e-5)
    kinds = {graph.kind for graph in statistics.graphs if graph.subgraph is not None}
    assert kinds == {"forward", "backward"} and not statistics.fallbacks


def test_what_does_not_hold_is_an_error():
    run = compiled(counted)
    run(torch.randn(6, 4), torch.tensor([1, 1]))
    for n in (7, -1):
        with pytest.raises(RuntimeError, match="Runtime assertion failed for expression"):
            run(torch.randn(6, 4), torch.tensor([n, 0]))
    compare(run(x := torch.randn(6, 4), n := torch.tensor([0, 0])), counted(x, n))


def test_explain_shows_the_subgraphs():
    with torch.no_grad():
        told = mlirc.explain(masked)(torch.randn(9, 4), torch.randn(4, 3))
    whole, *pieces = told.data["graphs"]
    assert whole["subgraphs"] == 2 and list(whole["aten"]) == ["aten.index.Tensor"]
    assert [graph["subgraph"] for graph in pieces] == [0, 1] and all(graph["kernels"] for graph in pieces)
    text = " ".join(str(told).split())
    assert "its sizes depend on data, it is compiled as the 2 next" in text and "(inference, subgraph 1)" in text


def test_a_condition_on_a_float():
    """Python asks it, before what comes after is computed."""

    def program(x):
        torch._check(x.sum().item() > 0)
        return x[x > 0] * 2

    x = torch.ones(8)
    run = compiled(program)
    compare(run(x), program(x))
    with pytest.raises(RuntimeError):
        run(-x)

"""Jagged nested tensors: graphs for all lengths, forward and backward, as many as under `aot_eager`."""

from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch.nn import functional

from mlirc.frontend import statistics

BATCHES = ((3, 5), (2, 4, 6), (1, 9, 4), (7, 7, 2), (1, 1))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.norm = torch.nn.Embedding(50, 8), torch.nn.LayerNorm(8)
        self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)

    def forward(self, tokens):
        x = self.embedding(tokens)
        return x + self.down(functional.gelu(self.up(self.norm(x))))


def jagged(lengths, make):
    return torch.nested.nested_tensor([make(n) for n in lengths], layout=torch.jagged)


def tokens(lengths):
    return jagged(lengths, lambda n: torch.randint(0, 50, (n,)))


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return [p.grad for p in model.parameters()]


def graphs(fn, backend, inputs, **options):
    """The results, and how many graphs Dynamo made."""
    torch._dynamo.reset()
    counters.clear()
    statistics.reset()
    compiled = torch.compile(fn, backend=backend, fullgraph=True, **options)
    results = [compiled(x) for x in inputs]
    assert not statistics.fallbacks
    return results, counters["stats"]["unique_graphs"]


def test_a_model_with_gradients():
    torch.manual_seed(0)
    model, inputs = Model(), list(map(tokens, BATCHES))
    ours, made = graphs(model, "mlirc", inputs, options={"fallback": "error"})
    theirs, expected = graphs(model, "aot_eager", inputs)
    assert made == expected < len(BATCHES)
    x: Any
    for x, one, other in zip(inputs, ours, theirs, strict=True):
        plain = model(x)
        assert one.is_nested and torch.equal(one.offsets(), x.offsets())
        torch.testing.assert_close(one.values(), plain.values())
        wanted = gradients(model, plain.values().square().mean())
        torch.testing.assert_close(gradients(model, one.values().square().mean()), wanted)
        torch.testing.assert_close(gradients(model, other.values().square().mean()), wanted)


@pytest.mark.parametrize(
    "fn", [lambda x: x.relu().sin() * 2, lambda x: x.mean(1), lambda x: x.values().square().mean()]
)
def test_operators(fn):
    inputs = [jagged(lengths, lambda n: torch.randn(n, 4)) for lengths in BATCHES[:3]]
    ours, _ = graphs(fn, "mlirc", inputs, options={"fallback": "error"})
    for x, one in zip(inputs, ours, strict=True):
        wanted = fn(x)
        torch.testing.assert_close(*((y.values() if y.is_nested else y) for y in (one, wanted)))

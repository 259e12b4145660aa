"""Jagged nested tensors: graphs for all lengths, forward and backward, as many as under `aot_eager`."""

from functools import partial
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


def attention(heads, x, more=None):
    """Of three views of one tensor; keys and values of `more`."""
    q, k, v = (y.unflatten(-1, (heads, -1)).transpose(1, 2) for y in (x, x if more is None else more, x * 2))
    v = v if more is None else k.sin()
    return functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)


@pytest.mark.thinned(1)
@pytest.mark.parametrize("crossed", [False, True])
def test_attention_is_in_the_graph(crossed):
    torch.manual_seed(0)
    batches = ((3, 5), (2, 4, 6), (2, 9, 4), (6, 1), (5, 0, 3))
    made = torch.compile(partial(attention, 2), backend="mlirc", fullgraph=True, options={"fallback": "error"})
    torch._dynamo.reset()
    counters.clear()
    for lengths in batches:
        inputs = [jagged(n, lambda n: torch.randn(n, 8)) for n in (lengths, lengths[::-1])[: 1 + crossed]]
        ours, theirs = ([x.detach().requires_grad_() for x in inputs] for _ in range(2))
        results = made(*ours), attention(2, *theirs)
        for x in results:
            x.values().square().sum().backward()
        torch.testing.assert_close(results[0].values(), results[1].values())
        for x, y in zip(ours, theirs, strict=True):
            torch.testing.assert_close(x.grad.values(), y.grad.values())
    assert counters["stats"]["unique_graphs"] == 4  # static, dynamic, and where the shortest has 1 or 0


def test_attention_that_pytorch_alone_has_ends_the_graph():
    """Dropout draws numbers for each sequence; another backend's graphs are its own."""
    x = jagged((3, 5), lambda n: torch.randn(n, 8)).unflatten(-1, (2, 4)).transpose(1, 2)
    dropped = lambda x: functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5)
    for fn, backend in ((dropped, "mlirc"), (lambda x: functional.scaled_dot_product_attention(x, x, x), "aot_eager")):
        torch._dynamo.reset()
        with pytest.raises(torch._dynamo.exc.Unsupported):
            torch.compile(fn, backend=backend, fullgraph=True)(x)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    "fn", [lambda x: x.relu().sin() * 2, lambda x: x.mean(1), lambda x: x.values().square().mean()]
)
def test_operators(fn):
    inputs = [jagged(lengths, lambda n: torch.randn(n, 4)) for lengths in BATCHES[:3]]
    ours, _ = graphs(fn, "mlirc", inputs, options={"fallback": "error"})
    for x, one in zip(inputs, ours, strict=True):
        wanted = fn(x)
        torch.testing.assert_close(*((y.values() if y.is_nested else y) for y in (one, wanted)))

"""Sparse gradients are made within compiled graphs: indices, elements, their strides and memory are eager's, and optimizers take them."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from mlirc.frontend import statistics

TOKENS = torch.tensor([[1, 2, 3], [3, 0, 1]])


class Twice(nn.Module):
    """Its gradient is the sum of two sparse ones, the elements of one of which are expanded."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(5, 4, sparse=True), nn.Linear(4, 5)

    def forward(self, tokens):
        return self.head(self.table(tokens)).sum() + self.table(tokens[0]).sum()


class Function(nn.Module):
    def __init__(self, of):
        super().__init__()
        self.weight, self.of = nn.Parameter(torch.randn(5, 4)), of

    def forward(self, tokens):
        return self.of(tokens, self.weight)


MODELS = {
    "embedding": lambda: nn.Embedding(5, 4, sparse=True),
    "embedding, scaled": lambda: Function(lambda i, w: functional.embedding(i, w * 2, sparse=True).tanh()),
    "twice": Twice,
    "mean of a bag": lambda: nn.EmbeddingBag(5, 4, sparse=True),
    "sum of a bag": lambda: nn.EmbeddingBag(5, 4, sparse=True, mode="sum"),
    "gather": lambda: Function(lambda i, w: torch.gather(w, 1, i, sparse_grad=True)),
}
OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.5),
    "sparse adam": lambda parameters: torch.optim.SparseAdam(parameters, lr=0.1),
}


def parts(x: torch.Tensor) -> tuple:
    if not x.is_sparse:
        return x.layout, x.clone()
    indices, elements = x._indices(), x._values()
    return x.layout, x.is_coalesced(), indices.clone(), elements.clone(), indices.stride(), elements.stride()


def steps(model: nn.Module, run, optimizer, tokens: torch.Tensor) -> list:
    """Gradients and parameters of three steps, in two of which a gradient is added to one that is there."""
    seen = []
    for step in range(3):
        run(tokens).sin().sum().backward()
        held = [p.grad for p in model.parameters()]
        run(tokens)  # another call takes no memory of what was given
        seen += [parts(x) for x in held]
        optimizer.step()
        if step:
            optimizer.zero_grad()
        seen += [p.detach().clone() for p in model.parameters()]
    return seen


@pytest.mark.thinned(8)
@pytest.mark.parametrize("tokens", [TOKENS, TOKENS[:0]], ids=["tokens", "none"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_training(name, dynamic, optimizer, tokens):
    if tokens.numel() == 0 and name == "gather":
        tokens = TOKENS[:1]
    torch.manual_seed(0)
    plain = MODELS[name]()
    model = copy.deepcopy(plain)
    make = OPTIMIZERS[optimizer]
    traced = copy.deepcopy(plain)
    try:
        expected = steps(plain, plain, make(plain.parameters()), tokens)
        steps(traced, torch.compile(traced, backend="aot_eager", dynamic=dynamic), make(traced.parameters()), tokens)
    except Exception as limit:
        # PyTorch traces a sum of two sparse gradients in few cases; SparseAdam refuses dense gradients
        with pytest.raises(type(limit)):
            steps(model, torch.compile(model, backend="mlirc", dynamic=dynamic), make(model.parameters()), tokens)
        assert name == "twice"
        return
    torch._dynamo.reset()
    statistics.reset()
    compiled = torch.compile(model, backend="mlirc", dynamic=dynamic, options={"fallback": "error"})
    actual = steps(model, compiled, make(model.parameters()), tokens)
    for found, wanted in zip(actual, expected, strict=True):
        for x, y in zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]:
            torch.testing.assert_close(x, y) if isinstance(y, torch.Tensor) else check_equal(x, y)
    backward = [graph for graph in statistics.graphs if graph.kind == "backward"]
    assert backward and any("sparse" in why for graph in backward for _, why in graph.aten.values())


def check_equal(x, y):
    assert x == y


def test_other_sizes_and_the_disk_cache():
    for _ in range(2):
        torch._dynamo.reset()
        compiled = torch.compile(layer := nn.Embedding(7, 3, sparse=True), backend="mlirc", dynamic=True)
        for tokens in (TOKENS, TOKENS[:, :2], torch.arange(6).view(3, 2)):
            layer.zero_grad()
            compiled(tokens).sum().backward()
            assert layer.weight.grad.is_sparse and layer.weight.grad._indices().tolist() == [tokens.flatten().tolist()]
            found = layer.weight.grad.to_dense()
            layer.zero_grad()
            layer(tokens).sum().backward()
            torch.testing.assert_close(found, layer.weight.grad.to_dense())

"""Gradients of embeddings: values against float64, and where they are accumulated."""

import copy

import pytest
import torch
from torch import nn

import mlirc

pytestmark = pytest.mark.thinned

PADDING = 3


class Words(nn.Module):
    """Embeddings of words, their kinds (of as many), and positions; a decoder, which may share the words' weight."""

    def __init__(self, tied: bool, padding: int | None):
        super().__init__()
        self.words = nn.Embedding(40, 16, padding_idx=padding)
        self.kinds = nn.Embedding(40, 16)
        self.positions = nn.Embedding(8, 16)
        self.decoder = nn.Linear(16, 40)
        if tied:
            self.decoder.weight = self.words.weight

    def forward(self, tokens, kinds):
        places = torch.arange(tokens.shape[1]).expand_as(tokens)
        hidden = self.words(tokens) + self.kinds(kinds) + self.positions(places)
        return self.decoder(torch.tanh(hidden)).square().sum()


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def gradients(module, call, *inputs):
    module.zero_grad()
    call(*inputs).backward()
    return [p.grad.clone() for p in module.parameters()]


def compiled(module, **options):
    return torch.compile(module, backend="mlirc", fullgraph=True, options={"fallback": "error"}, **options)


def check(module, function, *inputs):
    """Each gradient has at most twice eager's error against float64."""
    found, eager = gradients(module, function, *inputs), gradients(module, module, *inputs)
    double = copy.deepcopy(module).double()
    for ours, theirs, wanted in zip(found, eager, gradients(double, double, *inputs), strict=True):
        assert ours.stride() == theirs.stride() and ours.dtype == theirs.dtype
        floor = 4 * torch.finfo(ours.dtype).eps * wanted.norm()
        assert (ours - wanted).norm() <= max(2 * (theirs - wanted).norm(), floor)


def words(count: int = 6):
    """Tokens, one of them many times, and one that pads."""
    tokens = torch.randint(40, (5, count))
    tokens[1:, : count // 2] = PADDING
    tokens[0] = 7
    return tokens, torch.randint(40, (5, count))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("padding", [None, PADDING])
@pytest.mark.parametrize("tied", [True, False])
def test_values(tied, padding, dtype):
    module = Words(tied, padding).to(dtype)
    check(module, compiled(module), *words())


def test_sizes_that_change():
    module = Words(True, PADDING)
    function = compiled(module, dynamic=True)
    for count in (6, 4, 8):
        check(module, function, *words(count))


@pytest.mark.parametrize("tied", [True, False])
def test_rows_are_added_in_place(tied):
    module = Words(tied, None)
    (_, backward) = mlirc.explain(module)(*words()).data["graphs"]
    wanted = {"aten.index_add_.default": 4, "aten.index_put_.default": 1} if tied else {"aten.index_add_.default": 3}
    assert {op: count for op, (count, _) in backward["aten"].items()} == wanted


def test_a_token_many_times_beside_a_large_product():
    """1/32 added to 3e6 is lost, a thousand times; the rows are added up first, as in eager."""
    table = nn.Parameter(torch.zeros(4, 8))
    x = torch.full((1, 8), 1000.0)

    def loss(tokens):
        return (nn.functional.embedding(tokens, table) / 32).sum() + (x @ table.t()).sum() * 3000

    compiled(loss)(torch.zeros(1000, dtype=torch.int64)).backward()
    assert torch.equal(table.grad[0], torch.full((8,), 3e6 + 31.25))


def test_int32_tokens_and_none():
    module = nn.Embedding(5, 3)
    function = compiled(lambda t: module(t).sum())
    for tokens in (torch.tensor([1, 1, 4], dtype=torch.int32), torch.zeros(0, dtype=torch.int32)):
        (found,) = torch.autograd.grad(function(tokens), [module.weight])
        assert torch.equal(found, torch.bincount(tokens, minlength=5).float()[:, None].expand(5, 3))


def test_the_product_is_somebody_elses_too():
    """Nothing may be added to what is still read."""
    x, g, w, tokens = torch.randn(50, 6), torch.randn(50, 40), torch.randn(50, 6), torch.randint(40, (50,))

    def f(x, g, w):
        product = g.t() @ x
        total = product + torch.ops.aten.embedding_dense_backward(w, tokens, 40, -1, False)
        return total, product * 2

    torch.testing.assert_close(compiled(f)(x, g, w), f(x, g, w))


@pytest.mark.parametrize("static", [True, False], ids=["known sizes", "symbolic sizes"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_padding_index_that_is_a_symbol(tied, static):
    """It counts from the end where it is negative: under symbolic sizes it is then made of one."""
    weight, tokens = torch.randn(9, 4, requires_grad=True), torch.arange(9).remainder(7) + 2

    def function(weight, tokens, n):
        rows = torch.nn.functional.embedding(tokens, weight, padding_idx=n)
        return ((rows @ weight.t() if tied else rows) * 3).square().sum()

    if static:
        torch._dynamo.mark_static(weight)
    call = compiled(function, dynamic=True)
    for n in (2, 3, -1, 8, 0, -2):
        (found,), (wanted,) = (torch.autograd.grad(f(weight, tokens, n), weight) for f in (call, function))
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-4)

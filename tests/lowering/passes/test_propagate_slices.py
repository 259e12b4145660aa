"""Functions whose last step reads a part: what propagate-slices makes of them, against eager."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

pytestmark = pytest.mark.thinned

OPTIONS = {"fallback": "error", "cache": False}


class Reader(nn.Module):
    """Two layers of a transformer, then what `read` takes of them, then a linear layer."""

    def __init__(self, read, causal: bool):
        super().__init__()
        self.read, self.causal = read, causal
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(4))
        self.products = nn.ModuleList(nn.Linear(32, 96) for _ in range(2))
        self.outs = nn.ModuleList(nn.Linear(32, 32) for _ in range(2))
        self.queries = nn.ModuleList(nn.Linear(32, 32) for _ in range(2))
        self.ups = nn.ModuleList(nn.Linear(32, 64) for _ in range(2))
        self.downs = nn.ModuleList(nn.Linear(64, 32) for _ in range(2))
        self.head = nn.Linear(32, 7)

    def forward(self, x):
        for i in range(2):
            h = self.norms[2 * i](x)
            _, k, v = (z.unflatten(-1, (4, 8)).transpose(1, 2) for z in self.products[i](h).chunk(3, -1))
            q = self.queries[i](h).unflatten(-1, (4, 8)).transpose(1, 2)
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
            x = x + self.outs[i](seen.transpose(1, 2).flatten(2))
            x = x + self.downs[i](F.gelu(self.ups[i](self.norms[2 * i + 1](x))))
        return self.head(self.read(x))


READS = {
    "first": lambda x: x[:, 0],
    "last": lambda x: x[:, -1:],
    "some": lambda x: x[:, 2:5],
    "every third": lambda x: x[:, 1::3],
    "one of the batch": lambda x: x[1],
    "two rows": lambda x: x[:, 0] * x[:, 3],
    "mean and first": lambda x: x.mean(1) + x[:, 0],
}


@pytest.mark.thinned(1)
@pytest.mark.parametrize("name", READS)
def test_layers(name):
    torch.manual_seed(0)
    module, x = Reader(READS[name], causal=name in ("last", "some")), torch.randn(3, 11, 32)
    compiled = torch.compile(module, backend="mlirc", options=OPTIONS, dynamic=name == "last")
    with torch.no_grad():
        got, eager = compiled(x), module(x)
        exact = module.double()(x.double())
    assert got.stride() == eager.stride()
    assert (got - exact).norm() <= 2 * (eager - exact).norm()


def run(function, *inputs):
    compiled = torch.compile(function, backend="mlirc", options=OPTIONS)
    copies = [x.clone() for x in inputs]
    with torch.no_grad():
        return compiled(*inputs), function(*copies), copies


def test_not_a_number_stays_in_its_row():
    x = torch.randn(6, 8)
    x[2] = float("nan")
    got, eager, _ = run(lambda x, w: (F.softmax(x @ w, -1) * 2)[4:5].exp(), x, torch.randn(8, 8))
    torch.testing.assert_close(got, eager)


def test_what_is_overwritten_is_read_before():
    def function(x, y):
        z = (x.sin() + y)[1:3]
        x.mul_(2)
        return z.cos() + x[1:3]

    x = torch.randn(9, 5)
    got, eager, (changed, _) = run(function, x, torch.randn(5))
    torch.testing.assert_close(got, eager)
    torch.testing.assert_close(x, changed)


def test_results_keep_their_strides():
    def function(x):
        y = x.sin().t()
        return y[:, 1], y[2:4].exp(), x.exp()[:0] + 1

    got, eager, _ = run(function, torch.randn(9, 5))
    for a, b in zip(got, eager, strict=True):
        torch.testing.assert_close(a, b)
        assert a.stride() == b.stride()


def test_columns_of_a_product_with_a_symbolic_number_of_rows():
    def function(x, w, b):
        return torch.addmm(b, x, w)[:, 3:9].relu()[-1]

    compiled = torch.compile(function, backend="mlirc", options=OPTIONS, dynamic=True)
    for rows in (5, 8):
        inputs = torch.randn(rows, 16), torch.randn(16, 40), torch.randn(40)
        torch.testing.assert_close(compiled(*inputs), function(*inputs))


@pytest.mark.parametrize("dtype", [torch.float16, torch.int64, torch.complex64])
def test_a_view_of_one_element_keeps_its_strides(dtype):
    """Others read bits of one element as several of a smaller dtype, for which its stride must be 1."""

    def program(x):
        return x.sum(-1).select(-2, 0).view(dtype)

    x = torch.ones(4, 1, 4, dtype=torch.bool)
    assert torch.equal(torch.compile(program, backend="mlirc", options=OPTIONS)(x), program(x))

"""Operators that take functions (cond, while_loop, scan, map, associative_scan, ...): eager's answers and gradients, and a true reason."""

import math

import pytest
import torch
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops.map import map as each

import mlirc
from mlirc.frontend import statistics

X, C = torch.linspace(-1, 2, 12).reshape(3, 4), torch.linspace(0, 1, 4)


def chosen(x, c):
    return torch.cond(x.sum() > 0, lambda x, c: (x * c).sin(), lambda x, c: x.cos() + c, (x.sin(), c))


def repeated(x, c):
    return while_loop(lambda n, x: n < 4, lambda n, x: (n + 1, (x + c).sin()), (torch.tensor(0), x.relu()))[1]


def summed(x, c):
    return scan(lambda c, x: (c + x.sin(), c * x), c, x, dim=0)


def mapped(x, c):
    return each(lambda x, c: x.sin() * c, x, c) + 1


def together(x, c):
    return associative_scan(lambda a, b: a * b, x + c, dim=0, combine_mode="generic")


def called(fn, x, c):
    x, c = (t.detach().clone().requires_grad_(t.requires_grad) for t in (x, c))
    made = fn(x, c)
    made = [made] if isinstance(made, torch.Tensor) else list(made)
    if x.requires_grad:
        sum(y.sum() for y in made).backward()
    return [*made, x.grad, c.grad]


@pytest.mark.parametrize(
    ("fn", "name", "trained"),
    [
        (chosen, "cond", True),
        pytest.param(repeated, "while_loop", False, marks=pytest.mark.full),  # the next test has it
        pytest.param(summed, "scan", True, marks=pytest.mark.full),
        pytest.param(mapped, "map_impl", False, marks=pytest.mark.full),
        pytest.param(together, None, False, marks=pytest.mark.full),
    ],
)
def test_eagers_answer_and_a_reason(fn, name, trained):
    x, c = X.clone().requires_grad_(trained), C.clone().requires_grad_(trained)
    statistics.reset()
    compiled = torch.compile(fn, backend="mlirc", fullgraph=True, options={"fallback": "error"})
    for given in (x, -x.detach().requires_grad_(trained)):  # each branch of cond
        torch.testing.assert_close(called(compiled, given, c), called(fn, given, c))
    for graph in statistics.graphs:
        assert not graph.aten and graph.kernels, name


def noisy(x, c):
    return torch.cond(x.sum() > 0, lambda x, c: x + torch.rand_like(x), lambda x, c: x * c, (x, c))


def test_explain_shows_what_stays_in_eager():
    text = " ".join(str(mlirc.explain(noisy)(X, C)).split())
    assert (
        "1 ATen call higher_order.cond: its bodies run in eager (2 and 1 operators): a function calls aten.rand"
        in text.replace("_like", "")
    )
    assert "through Python: only Python can call it" in text


def test_an_operator_that_writes():
    @torch.library.custom_op("graphs_in_graphs::add_one", mutates_args={"x"})
    def add_one(x: torch.Tensor) -> None:
        x.add_(1)

    def fn(x, c):
        y = x.sin()
        add_one(y)
        return y * c

    statistics.reset()
    torch.testing.assert_close(torch.compile(fn, backend="mlirc", fullgraph=True)(X, C), fn(X, C))
    assert (
        statistics.graphs[0].aten["higher_order.auto_functionalized_v2"][1] == "no op of ours, and PyTorch's is Python"
    )


class Scripted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x).relu()


@pytest.mark.filterwarnings("ignore")
def test_what_dynamo_does_not_look_into_is_told():
    traced = torch.jit.trace(Scripted(), X)
    torch.testing.assert_close(torch.compile(traced, backend="mlirc")(X), traced(X))
    explained = mlirc.explain(traced)(X)
    assert not explained.data["graphs"] and "compile the module that it was traced from" in " ".join(
        str(explained).split()
    )
    sparse = torch.eye(3).to_sparse_csr()
    (broken,) = mlirc.explain(lambda s, x: torch.sparse.mm(s, x).sin())(sparse, X).data["graph_breaks"]
    assert "sparse" in broken["reason"]


APART = {
    "results": ((1, 3), torch.t, lambda x: x.flip(0), lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:])),
    "gradients": ((4, 1), torch.t, lambda x: x.cumsum(1), lambda x: x * 1.0),
    "products": (
        (4, 1),
        torch.clone,
        lambda x: (x.t() @ x.new_ones(4, 4)).t() * 1,
        lambda x: torch.einsum("ij,kj->ik", x, x.new_ones(1, 1)),
    ),
}


@pytest.mark.parametrize("what", APART)
def test_branches_that_lie_apart_in_a_dimension_of_size_1(what):
    """PyTorch merges the branches' strides, and refuses eager's where they differ in a dimension that nobody walks."""
    shape, lie, one, other = APART[what]
    run = torch.compile(
        lambda flag, x: torch.cond(flag, one, other, (x,)), backend="mlirc", options={"fallback": "error"}
    )
    for flag in (True, False):
        x = lie(torch.linspace(-1, 2, math.prod(shape)).reshape(shape)).requires_grad_()
        y, z = run(torch.tensor(flag), x), (one if flag else other)(x)
        found, expected = (torch.autograd.grad(r.square().sum(), x) for r in (y, z))
        torch.testing.assert_close((y, found), (z, expected))

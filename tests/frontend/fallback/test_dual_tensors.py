"""Forward-mode AD through compiled functions: tangents are eager's, whatever was called before. Without a dual level nothing runs in eager."""

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad

import mlirc
from mlirc.frontend.torch_compat.dynamo.dual_level import dual_level

FUNCTIONS = {
    "elementwise": lambda x: x.sin() * x,
    "rows": lambda x: x.softmax(-1),
    "matmul": lambda x: x @ x.mT,
    "a view": lambda x: x.mT,
    "two results": lambda x: (x.exp(), x.sum(0)),
    "indices": lambda x: x[torch.tensor([1, 0])].amax(1),
}


def dual(f, x, tangent):
    """The results and their tangents."""
    with forward_ad.dual_level():
        results = f(forward_ad.make_dual(x, tangent))
        results = results if isinstance(results, tuple) else (results,)
        return [part.clone() for y in results for part in forward_ad.unpack_dual(y)]


def check(f, options=None):
    torch._dynamo.reset()
    x, tangent = torch.randn(2, 3, generator=torch.Generator().manual_seed(0)), torch.ones(2, 3)
    compiled = torch.compile(f, backend="mlirc", options=options)
    for _ in range(2):
        torch.testing.assert_close(dual(compiled, x, tangent), dual(f, x, tangent))
        torch.testing.assert_close(compiled(x), f(x))
        needs = x.clone().requires_grad_()
        torch.testing.assert_close(dual(compiled, needs, tangent), dual(f, needs, tangent))


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_tangents(name):
    check(FUNCTIONS[name])


def test_tangents_of_parameters():
    model = nn.Linear(3, 4)
    x = torch.randn(2, 3)
    compiled = torch.compile(model, backend="mlirc")
    with torch.no_grad():
        compiled(x)
    expected = dual(model, x, torch.ones(2, 3))
    torch.testing.assert_close(dual(compiled, x, torch.ones(2, 3)), expected)


def test_without_the_guard(monkeypatch):
    monkeypatch.setattr(dual_level, "_found", [None])
    check(FUNCTIONS["rows"])


def test_what_is_counted():
    f, x = FUNCTIONS["rows"], torch.randn(2, 3)
    with forward_ad.dual_level():
        assert "dual_level" in str(mlirc.explain(f)(x))
    torch._dynamo.reset()
    jvp = torch.compile(
        lambda x: torch.func.jvp(f, (x,), (x,)), backend="mlirc", options={"fallback": "error"}, fullgraph=True
    )
    torch.testing.assert_close(jvp(x), torch.func.jvp(f, (x,), (x,)))

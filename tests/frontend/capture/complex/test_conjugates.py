"""Conjugates of conjugates, with views between them: eager's results and gradients, without a call from Python."""

import random

import pytest
import torch

from mlirc.frontend import statistics

VIEWS = {
    "none": lambda x: x,
    "t": lambda x: x.t(),
    "transpose": lambda x: x.transpose(-1, 0),
    "permute": lambda x: x.permute(1, 0),
    "slice": lambda x: x[1:],
    "expand": lambda x: x[:1].expand(4, -1),
    "view": lambda x: x.unsqueeze(0).squeeze(0),
    "detach": lambda x: x.detach(),
}


def compiled(function):
    torch.compiler.reset()
    statistics.reset()
    return torch.compile(function, backend="mlirc", fullgraph=True, options={"cache": False, "fallback": "error"})


@pytest.mark.thinned(6)
@pytest.mark.parametrize("seed", range(12))
def test_two_conjugates_are_none(seed):
    draw = random.Random(seed)
    names = draw.choices(list(VIEWS), k=draw.randint(0, 3))
    views = [VIEWS[name] for name in names]
    count = 2 if "expand" in names else draw.randint(2, 3)  # a conjugate in memory has no strides of 0

    def function(z, w):
        for _ in range(count):
            z = z.conj()
            for view in views:
                z = view(z)
        return torch.mm(z, w), z.exp() * 2

    z = torch.randn(6, 6, dtype=torch.complex64)
    probe = z
    for _ in range(count):
        for view in views:
            probe = view(probe)
    w = torch.randn(probe.shape[1], probe.shape[1], dtype=torch.complex64)
    with torch.no_grad():
        found, expected = compiled(function)(z, w), function(z, w)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
        assert one.stride() == other.stride() and one.is_conj() == other.is_conj()
    assert not any(graph.through_python for graph in statistics.graphs), [g.through_python for g in statistics.graphs]


@pytest.mark.parametrize("name", ["vecdot", "cholesky", "solve"])
def test_gradients(name):
    function = {
        "vecdot": lambda a, b: torch.linalg.vecdot(a, b),
        "cholesky": lambda a, b: torch.linalg.cholesky(a @ a.mH + 4 * torch.eye(4)),
        "solve": lambda a, b: torch.linalg.solve(a, b),
    }[name]
    a, b = (torch.randn(4, 4, dtype=torch.complex128, requires_grad=True) for _ in range(2))
    results = []
    for f in (compiled(function), function):
        y = f(a, b)
        results.append((y, *torch.autograd.grad(y, (a, b), torch.ones_like(y), allow_unused=True)))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)
    assert not any(graph.through_python for graph in statistics.graphs)


def test_a_conjugate_of_a_conjugate_that_is_returned_is_a_view_of_the_input():
    function = lambda z: (z.conj().t().conj(), z.conj().conj() + 1)
    z = torch.randn(3, 4, dtype=torch.complex64)
    with torch.no_grad():
        found, expected = compiled(function)(z), function(z)
    assert [x.is_conj() for x in found] == [x.is_conj() for x in expected]
    torch.testing.assert_close(found, expected)
    z.add_(1)
    torch.testing.assert_close(found[0], expected[0])

"""Matmuls with beta and alpha, as native calls: eager's bits, of any numbers, and eager's errors."""

import pytest
import torch

import mlirc
from mlirc.frontend import statistics

OPTIONS = {"cache": False, "fallback": "error"}
NUMBERS = [(0.5, 2.0), (0, 0.25), (-4.775, 1), (1, 0), (2, -3)]


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("batched", [False, True])
def test_matmuls_with_numbers(batched, dtype):
    call, lead = (torch.baddbmm, (2,)) if batched else (torch.addmm, ())

    def function(bias, x, y):
        return [call(bias, x, y.mT, beta=beta, alpha=alpha) for beta, alpha in NUMBERS]

    torch.compiler.reset()
    statistics.reset()
    run = torch.compile(function, backend="mlirc", options=OPTIONS)
    for rows in (3, 5, 6):
        shapes = [(*lead, rows, 7), (*lead, rows, 4), (*lead, 7, 4)]
        inputs = [torch.randn(shape).to(dtype) for shape in shapes]
        for bias in (inputs[0], inputs[0][..., :1, :], torch.full_like(inputs[0], float("nan"))):
            got, expected = run(bias, *inputs[1:]), function(bias, *inputs[1:])
            for x, y in zip(got, expected, strict=True):
                assert x.stride() == y.stride()
                torch.testing.assert_close(x, y, rtol=0, atol=0, equal_nan=True)
    assert not any(graph.through_python for graph in statistics.graphs)


@pytest.mark.parametrize("numbers", [(3, -2), (0, 1), (1, 0), (2**53, 5)])
def test_integers(numbers):
    beta, alpha = numbers

    def function(b, x):
        made = torch.addmm(b, x, x, beta=beta, alpha=alpha), torch.addmv(b[0], x, b[1], beta=beta, alpha=alpha)
        batches = b.expand(2, 4, 4), x.expand(2, 4, 4)
        return (
            *made,
            torch.baddbmm(*batches, batches[1], beta=beta, alpha=alpha),
            torch.addbmm(b, *batches, beta=beta, alpha=alpha),
        )

    torch.compiler.reset()
    x = torch.randint(-9, 9, (4, 4))
    run = torch.compile(function, backend="mlirc", options=OPTIONS)
    for got, expected in zip(run(x, x), function(x, x), strict=True):
        assert torch.equal(got, expected)
    data = mlirc.explain(function)(x, x).data["graphs"][0]
    assert len(data["aten"]) == 4 and not data["through_python"]


def test_a_number_that_is_no_double_is_given_from_python():
    function = lambda b, x: torch.addmm(b, x, x, alpha=2**53 + 1)
    x = torch.randint(-9, 9, (4, 4))
    torch.compiler.reset()
    assert torch.equal(torch.compile(function, backend="mlirc", options=OPTIONS)(x, x), function(x, x))
    data = mlirc.explain(function)(x, x).data["graphs"][0]
    assert list(data["through_python"]) == ["aten.addmm.default"]


def test_steps_of_newton_and_schulz():
    """As the optimizer Muon has them, with a gradient."""

    def function(x):
        for _ in range(2):
            gram = x @ x.T
            x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=-4.775, alpha=2.0315), x, beta=3.4445)
        return x

    x, y = (torch.linspace(-1, 1, 24).reshape(4, 6).requires_grad_() for _ in range(2))
    torch.compiler.reset()
    torch.compile(function, backend="mlirc", options=OPTIONS)(x).sum().backward()
    function(y).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)

"""A gradient's own gradient is eager's, or an error that says why; on a GPU, whose graphs run here on the CPU, too."""

import pytest
import torch
from torch import nn

from mlirc.frontend.partition import recomputation

F = nn.functional
LIMIT = "does not currently support double backward"

OPERATORS = {  # whose gradients need less than their input
    "threshold": lambda x: F.threshold(x, 0.1, 0.2),
    "threshold of a view": lambda x: F.threshold(x.view(8, 9), 0.1, 0.2),
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "leaky relu": F.leaky_relu,
    "abs": torch.abs,
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "where": lambda x: torch.where(x > 0, x * x, x),
    "hardshrink": F.hardshrink,
    "dropout": lambda x: F.dropout(x * x, 0.5),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "max_pool2d of a view": lambda x: F.max_pool2d(x.view(1, 2, 6, 6), 3, 2),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, 2),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "cross_entropy": lambda x: F.cross_entropy(x.view(8, 9), torch.arange(8)),
    "silu": F.silu,
}


def second(fn, **options):
    """Whether a gradient has a gradient, and which: a tensor, None, or PyTorch's limit."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    x = torch.randn(2, 6, 6, requires_grad=True)
    (first,) = torch.autograd.grad(torch.compile(fn, **options)(x).sum(), x, create_graph=True)
    if not first.requires_grad:
        return False, None
    try:
        return True, torch.autograd.grad(first.square().sum(), x, allow_unused=True)[0]
    except RuntimeError as error:
        assert LIMIT in str(error)
        return True, LIMIT


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.thinned(4)
def test_a_second_gradient_is_not_lost(name, on_gpu, monkeypatch):
    monkeypatch.setattr(recomputation, "is_on_gpu", lambda x: on_gpu)
    has, found = second(OPERATORS[name], backend="mlirc", options={"cache": False})
    eagers, expected = second(OPERATORS[name], backend="eager")
    assert has or not eagers
    if "dropout" in name and on_gpu:
        assert found is LIMIT
    elif expected is None:
        assert found is None or not found.any()
    else:
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_result_that_nobody_differentiates_has_no_second_gradient(dynamic):
    """Where sizes are symbols autograd makes zeros for its gradient: what comes of them would depend on the input."""

    def program(x, y):
        return x * -1.5 + y, F.leaky_relu(y), y * y

    found = []
    for function in (program, torch.compile(program, backend="mlirc", dynamic=dynamic, options={"cache": False})):
        torch.manual_seed(0)
        x, y = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
        for used in ((0,), (1,), (0, 2), (0, 1)):
            results = function(x, y)
            total = torch.stack([results[k].sum() for k in used]).sum()
            first = torch.autograd.grad(total, (x, y), create_graph=True, allow_unused=True)
            again = torch.stack([x.sum(), *(g.sum() for g in first if g is not None)]).sum()
            found.append([g.requires_grad for g in first if g is not None])
            found += torch.autograd.grad(again, (x, y), allow_unused=True)
    half = len(found) // 2
    torch.testing.assert_close(found[half:], found[:half])

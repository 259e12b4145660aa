"""A `TorchDispatchMode` of the program's sees the operators of a compiled graph, and may change what they give."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from mlirc.frontend import statistics
from mlirc.frontend.errors import UnsupportedGraph

aten = torch.ops.aten


class Doubled(TorchDispatchMode):
    def __init__(self, operator):
        super().__init__()
        self.operator = operator

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        made = operator(*args, **(kwargs or {}))
        return made * 2 if operator is self.operator else made


def backward(call, around, history=False):
    x = torch.linspace(-1, 1, 6, requires_grad=True)
    y = call(x)
    with around:
        (gradient,) = torch.autograd.grad(y, x, create_graph=history)
    return gradient.detach()


@pytest.mark.thinned
@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("history", [True, False])
def test_a_backward_pass_within_a_mode(cache, dynamic, history):
    for _ in range(2):  # the second time the graph is loaded from the disk cache
        torch._dynamo.reset()
        compiled = torch.compile(
            lambda x: x.exp().sin().sum(), backend="mlirc", dynamic=dynamic, options={"cache": cache}
        )
        for mode in (None, aten.cos.default, None, aten.cos.default):
            around = nullcontext() if mode is None else Doubled(mode)
            x = torch.linspace(-1, 1, 6)
            expected = x.exp().cos() * x.exp() * (1 if mode is None else 2)
            torch.testing.assert_close(backward(compiled, around, history and mode is None), expected)


def test_a_mode_is_left_by_the_first_backward_pass():
    statistics.reset()
    compiled = torch.compile(lambda x: x.exp().sin().sum(), backend="mlirc", options={"cache": False})
    changed = backward(compiled, Doubled(aten.cos.default))
    torch.testing.assert_close(backward(compiled, nullcontext()) * 2, changed)
    assert [graph.kind for graph in statistics.graphs if graph.fallback] == ["backward"]


def test_inference_within_a_mode():
    compiled = torch.compile(lambda x: x.exp() + 1, backend="mlirc")
    x = torch.ones(3)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), x.exp() + 1)
        with Doubled(aten.exp.default):
            torch.testing.assert_close(compiled(x), x.exp() + 1)


def test_operations_are_counted():
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 5))
    found = []
    for call in (model, torch.compile(model, backend="mlirc")):
        loss = call(torch.randn(4, 6)).sum()
        with FlopCounterMode(display=False) as counter:
            loss.backward()
        found.append(counter.get_total_flops())
    assert found[0] and found[0] == found[1]


def test_the_option_that_makes_eager_an_error():
    compiled = torch.compile(lambda x: x.exp().sin().sum(), backend="mlirc", options={"fallback": "error"})
    with pytest.raises(UnsupportedGraph, match="TorchDispatchMode"):
        backward(compiled, Doubled(aten.cos.default))


class Ignored(Doubled):
    @classmethod
    def ignore_compile_internals(cls):
        return True


def test_a_mode_that_compiled_code_need_not_tell():
    compiled = torch.compile(lambda x: x.exp().sin().sum(), backend="mlirc", options={"fallback": "error"})
    before = backward(compiled, nullcontext())
    torch.testing.assert_close(backward(compiled, Ignored(aten.cos.default)), before)

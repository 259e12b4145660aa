"""What the judge says of gradients of gradients, which `aot_eager` has none of."""

import torch

from tests.fuzz import judge

PROGRAM = """
import torch
from tests.fuzz.calls import gradients
from tests.fuzz.tensors import tensor
OPTIONS = {"dynamic": False}
def program(a, b):
    v0 = b.sin()
    v1 = torch.div(a, 1, rounding_mode="floor")
    torch._dynamo.graph_break()
    return v0 / (v0 + 2), v1
def make():
    return program
def drive(f, m, see):
    leaf = tensor((5,), torch.float32, 1).requires_grad_()
    b = tensor((2, 5), torch.float32, 2).requires_grad_()
    g = gradients(f(leaf[:, None], b), [leaf, b], create_graph=True)
    see(g)
    see(gradients(g, [leaf, b]))
"""

WITH_HISTORY = """
import torch
import torch.nn.functional as F
from tests.fuzz.calls import gradients
from tests.fuzz.tensors import tensor
OPTIONS = {"dynamic": True}
def program(a, weight, bias):
    v0 = a[0]
    a.add_(1)
    torch._dynamo.graph_break()
    v0.mul_(2)
    F.max_pool1d(v0[:1, :], 3, stride=3, padding=1)
    return (F.conv1d(a, weight, bias, stride=2, padding=1),)
def make():
    return program
def drive(f, m, see):
    leaf = tensor((7, 1, 5), torch.float32, 44).requires_grad_()
    a = leaf.flip(0)
    r = f(a, tensor((3, 1, 3), torch.float32, 76), tensor((3,), torch.float32, 96))
    see(r, a)
    g = gradients(r, [leaf], create_graph=True)
    see(g)
    see(gradients(g, [leaf]))
"""
"""`aot_eager` has no gradient of the gradient here, as eager: Dynamo leaves what is behind the break to it."""


class Tripled(torch.autograd.Function):
    """Gradients whose own gradient is three times what it is."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return Tripled.apply(g.detach() + 3 * (g - g.detach())) if torch.is_grad_enabled() else g


def tripled(graph, inputs):
    return lambda *args: tuple(Tripled.apply(x) for x in graph(*args))


def test_zeros_for_none_behind_a_compiled_call_are_a_limit():
    assert judge.judge(PROGRAM).kind == "limit"


def test_zeros_for_hooks_that_nobody_knows_are_a_limit(monkeypatch):
    assert judge.judge(WITH_HISTORY).kind == "limit"
    monkeypatch.setattr(judge, "run_unheard", lambda program: judge.run(program, "mlirc"))
    assert judge.judge(WITH_HISTORY).kind == "bug"


def test_a_wrong_gradient_of_a_gradient_is_a_bug():
    assert judge.judge(PROGRAM, tripled).kind == "bug"

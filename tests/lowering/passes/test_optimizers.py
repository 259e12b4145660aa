"""Steps of PyTorch's own optimizers, compiled: right, and one or few kernels."""

import copy

import pytest
import torch

import mlirc

OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.1),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, amsgrad=True),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.1, momentum=0.5),
}


@pytest.mark.thinned(1)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_accurate(name):
    torch.manual_seed(0)
    ours = [torch.nn.Parameter(torch.randn(5, 7)), torch.nn.Parameter(torch.randn(3))]
    eager = copy.deepcopy(ours)
    exact = [torch.nn.Parameter(p.detach().double()) for p in ours]
    step = torch.compile(OPTIMIZERS[name](ours).step, backend="mlirc", options={"fallback": "error"})
    # under a compiler the step number is a float32 tensor, in eager a Python number: a difference that is PyTorch's
    others = [torch.compile(OPTIMIZERS[name](eager).step, backend="aot_eager"), OPTIMIZERS[name](exact).step]
    for _ in range(4):
        for ours_, eager_, exact_ in zip(ours, eager, exact, strict=True):
            gradient = torch.randn_like(ours_)
            ours_.grad, eager_.grad, exact_.grad = gradient, gradient.clone(), gradient.double()
        step()
        for other in others:
            other()
    for ours_, eager_, exact_ in zip(ours, eager, exact, strict=True):
        assert (ours_ - exact_).norm() <= 2 * (eager_ - exact_).norm() + 1e-6


def test_nothing_of_adam_is_left_to_aten():
    parameter = torch.nn.Parameter(torch.randn(64, 64))
    parameter.grad = torch.randn(64, 64)
    optimizer = torch.optim.Adam([parameter], lr=0.1)
    optimizer.step()  # makes the state
    explained = mlirc.explain(optimizer.step, options={"fallback": "error"})()
    graphs = explained.data["graphs"]
    assert graphs, explained
    assert sum(count for graph in graphs for count, _ in graph["aten"].values()) == 0, graphs

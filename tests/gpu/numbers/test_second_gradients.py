"""Gradients of gradients on a GPU: what draws random numbers, and batch norms in training, give eager's."""

import copy

import pytest
import torch
from torch import autograd, nn
from torch.nn import functional as F

from tests.frontend.fallback.second_gradients.test_second_gradients import RANDOM

DRAWN = ("dropout", "two", "rand_like", "alpha dropout", "rrelu", "attention")


def drawn(call):
    x, found = torch.linspace(-1, 1, 4, device="cuda").requires_grad_(), []
    torch.manual_seed(3)
    for _ in range(4):
        (first,) = autograd.grad(call(x).sum(), x, create_graph=True)
        found += [first.detach(), *autograd.grad(first.square().sum(), x), torch.rand(2, device="cuda"), torch.rand(2)]
    return found


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("name", DRAWN)
def test_random_numbers_are_drawn_again(name, mode):
    torch._dynamo.reset()
    options = {} if mode == "default" else {"mode": mode}
    run = torch.compile(RANDOM[name], backend="mlirc", options=options)
    torch.testing.assert_close(drawn(run), drawn(RANDOM[name]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize(
    "layer", [nn.BatchNorm2d(16), nn.InstanceNorm2d(16), nn.GroupNorm(4, 16)], ids=lambda x: type(x).__name__
)
def test_a_gradient_penalty(layer, dropout):
    torch._dynamo.reset()
    torch.manual_seed(0)
    layers = nn.Conv2d(4, 16, 3), copy.deepcopy(layer), nn.SiLU(), nn.Dropout2d(dropout), nn.Conv2d(16, 1, 3)
    model = nn.Sequential(*layers).cuda()
    twin, found = copy.deepcopy(model), []
    start = torch.randn(4, 4, 12, 12, device="cuda")
    for module, call in ((model, torch.compile(model, backend="mlirc")), (twin, twin)):
        torch.manual_seed(5)
        for _ in range(3):
            x = start.clone().requires_grad_()
            (g,) = autograd.grad(call(x).sum(), x, create_graph=True)
            (F.mse_loss(g.flatten(1).norm(dim=1), torch.ones(4, device="cuda"))).backward()
        found.append([*(p.grad for p in module.parameters() if p.grad is not None), *module.buffers()])
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-3)

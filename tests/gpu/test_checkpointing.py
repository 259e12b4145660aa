"""Activation checkpointing on a GPU: the backward graph draws the forward graph's random numbers again."""

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.compare_stages import compare


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize(
    "part",
    [
        lambda x, w: F.dropout(torch.tanh(x @ w), 0.4),
        lambda x, w: F.dropout(F.dropout(torch.tanh(x @ w), 0.4) @ w, 0.2),
        lambda x, w: torch.rand_like(x) * torch.sin(x @ w),
        lambda x, w: torch.bernoulli(x.detach().sigmoid()) * torch.sin(x @ w),
    ],
)
def test_random_numbers_are_eagers(part, mode):
    def program(x, w):
        return checkpoint(part, F.dropout(x, 0.1), w, use_reentrant=False) * 2

    def step(run):
        torch.manual_seed(0)
        inputs = [torch.randn(n, 8, device="cuda", requires_grad=True) for n in (6, 8)]
        steps = []
        for _ in range(3):
            result = run(*inputs)
            steps += [result, *torch.autograd.grad(result.sum(), inputs), torch.rand(3, device="cuda")]
            steps[-4] = result.detach().clone()
        return steps

    torch._dynamo.reset()
    compiled = torch.compile(program, backend="mlirc", options={"fallback": "error", "mode": mode})
    compare(step(compiled), step(program), rtol=1e-3, atol=1e-4)

"""The error of long sums of float64: within five times eager's, whose sums are a cascade (4.4 for the worst here, on one thread)."""

import math

import pytest
import torch

KINDS = {
    "random": lambda x: x,
    "sorted in rows": lambda x: x.view(-1, 50).sort(-1)[0].flatten(),
    "positive": torch.abs,
}


@pytest.mark.parametrize("length", [1000, 166400, 1000000])
@pytest.mark.parametrize("kind", KINDS)
def test_error(kind, length):
    torch.compiler.reset()
    compiled = torch.compile(lambda x: x.sum(), backend="mlirc")
    errors = []
    for seed in range(12):
        x = KINDS[kind](torch.randn(length, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)))
        exact = math.fsum(x.tolist())
        errors.append([x.sum().item() - exact, compiled(x).item() - exact])
    eager, ours = torch.tensor(errors, dtype=torch.float64).square().mean(0).sqrt().tolist()
    assert ours <= 5 * eager, (ours, eager)

"""Parameters and buffers on a GPU, changed between calls in ways that PyTorch does not count: the next call sees it."""

import pytest
import torch
from torch import nn

WAYS = {
    "data": lambda x: x.data.mul_(1.5),
    "one element": lambda x: x.data.view(-1)[3:4].add_(2.0),
    "dlpack": lambda x: torch.from_dlpack(x.detach()).mul_(1.5),
    "storage": lambda x: x.untyped_storage().copy_(x.detach().clone().mul_(1.5).untyped_storage()),
    "counted": lambda x: x.detach().mul_(1.5),
}


class Net(nn.Module):
    """A folded convolution, one of few channels, products that could be merged and padded."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 32, 7, stride=2, padding=3, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(32) for _ in range(2))
        self.conv = nn.Conv2d(32, 32, 3, padding=1, bias=False)
        self.q, self.k = nn.Linear(32, 33), nn.Linear(32, 33)

    def forward(self, x):
        x = torch.relu(self.norms[0](self.first(x)))
        x = torch.relu(self.norms[1](self.conv(x)) + x).mean((2, 3))
        return self.q(x) * self.k(x)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "name",
    [
        "first.weight",
        "conv.weight",
        "norms.1.weight",
        "norms.1.bias",
        "norms.0.running_mean",
        "norms.1.running_var",
        "q.weight",
        "k.bias",
    ],
)
def test_a_change_is_seen(name, way, mode):
    module = Net().cuda().bfloat16().eval()
    with torch.no_grad():
        for norm in module.norms:
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
        x = torch.randn(4, 3, 32, 32, device="cuda", dtype=torch.bfloat16)
        run = torch.compile(module, backend="mlirc", options={"mode": mode, "fallback": "error"})
        for _ in range(3):
            before = run(x).clone()
        changed = (
            module.get_parameter(name) if name.rpartition(".")[2] in ("weight", "bias") else module.get_buffer(name)
        )
        WAYS[way](changed)
        after, expected = run(x).clone(), module(x)
    limit = (expected.double() - module.double()(x.double())).abs().max() * 4 + 1e-2 * expected.abs().max()
    assert (after - expected).abs().max() <= limit
    assert (before - expected).abs().max() > 0
    torch._dynamo.reset()


def test_frozen_parameters_are_computed_once():
    module = Net().cuda().bfloat16().eval()
    with torch.no_grad():
        x = torch.randn(4, 3, 32, 32, device="cuda", dtype=torch.bfloat16)
        run = torch.compile(module, backend="mlirc", options={"freeze": True, "fallback": "error"})
        before = run(x)
        module.conv.weight.data.mul_(1.5)
        assert torch.equal(run(x), before)
        module.conv.weight.mul_(1.0)
        assert not torch.equal(run(x), before)
    torch._dynamo.reset()

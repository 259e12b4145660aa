"""Group norms between convolutions lie channels last: right against float64, with gradients, and each tensor is read in its order."""

import copy

import pytest
import torch
from torch import nn

from tests.lowering.cpu.convolution.test_convolutions import report

# channels, groups, height, width
NETS = [(8, 1, 9, 7), (16, 2, 8, 8), (24, 3, 12, 10), (32, 8, 6, 20), (12, 12, 9, 9), (20, 5, 1, 40), (64, 2, 5, 5)]


class Net(nn.Module):
    def __init__(self, channels: int, groups: int):
        super().__init__()
        self.first = nn.Conv2d(3, channels, 3, padding=1)
        self.norm, self.second = nn.GroupNorm(groups, channels), nn.Conv2d(channels, channels, 3, padding=1)
        self.last = nn.GroupNorm(groups, channels)
        nn.init.normal_(self.norm.weight)
        nn.init.normal_(self.last.bias)

    def forward(self, x):
        x = self.first(x)
        y = self.second(nn.functional.silu(self.norm(x)))
        return nn.functional.avg_pool2d(self.last(x + y), 3, 1, 1) - y


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def step(call, x, parameters):
    x = x.detach().requires_grad_()
    y = call(x)
    return [y, *torch.autograd.grad(y.square().sum(), [x, *parameters])]


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("channels", "groups", "height", "width"), NETS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_values_and_gradients(channels, groups, height, width, dynamic):
    net = Net(channels, groups)
    exact, call = copy.deepcopy(net).double(), torch.compile(net, backend="mlirc", dynamic=dynamic)
    for images in (2, 3):
        x = torch.randn(images, 3, height, width) + 3
        with torch.no_grad():
            inferred = call(x)
        found = step(call, x, net.parameters())
        eager, right = step(net, x, net.parameters()), step(exact, x.double(), exact.parameters())
        for got, one, best in zip([inferred, *found], [eager[0], *eager], [right[0], *right], strict=True):
            assert got.stride() == one.stride()
            limit = 2 * (one - best).norm() + 2e-6 * best.norm() + 1e-4 * (best.norm() == 0)
            assert (got - best).norm() <= limit, ((got - best).norm(), limit)


def test_infinities_and_nan_stay_in_their_groups():
    net = Net(16, 4)
    call = torch.compile(net, backend="mlirc")
    for number in (torch.inf, torch.nan):
        x = torch.randn(2, 3, 16, 16)
        x[1, 0, 3, 3] = number
        with torch.no_grad():
            torch.testing.assert_close(call(x).isfinite(), net(x).isfinite())


@pytest.mark.thinned(2)
@pytest.mark.parametrize("groups", [1, 4, 16])
def test_nothing_is_copied_to_another_order(groups):
    """Each kernel reads and writes images channels last; sums of few channels go over the pixels first."""
    net, x = Net(64, groups).eval(), torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        graph = report(net, x)
    assert not [k for k in graph["kernels"] if set(k["ops"]) <= {"copy"}]
    sums = [k for k in graph["kernels"] if "reduce" in k["ops"] and "lt" not in k["ops"]]
    assert len(sums) == (2 if groups == 1 else 8), [k["ops"] for k in graph["kernels"]]


@pytest.mark.thinned
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(2, 16, 9, 7), (3, 24, 1, 1), (1, 12, 1, 33), (0, 8, 3, 3), (2, 12, 3, 4, 5)])
def test_groups_of_few_channels(shape, dtype, dynamic):
    """Alone, with rows far from 0, of which a sum of squares in float32 would keep no digit."""
    layout = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    x = (torch.randn(shape) + torch.arange(shape[1]).view(-1, *[1] * (len(shape) - 2)) * 200).to(dtype)
    x = x.contiguous(memory_format=layout)
    parameters = torch.randn(shape[1]).to(dtype), torch.randn(shape[1]).to(dtype)
    for weight, bias in (parameters, (None, None), (parameters[0], None)):
        norm = lambda x, w=weight, b=bias: nn.functional.group_norm(x, 4, w, b)
        given = [v.double() if v is not None else None for v in (weight, bias)]
        exact = nn.functional.group_norm(x.double(), 4, *given)
        torch._dynamo.reset()
        found = torch.compile(norm, backend="mlirc", dynamic=dynamic, options={"cache": False, "fallback": "error"})(x)
        eager = norm(x)
        assert found.stride() == eager.stride() and found.dtype == eager.dtype
        if exact.numel():
            limit = 2 * (eager - exact).abs().max() + 2 * max(torch.finfo(dtype).eps, 1e-13) * exact.abs().max()
            assert (found - exact).abs().max() <= limit

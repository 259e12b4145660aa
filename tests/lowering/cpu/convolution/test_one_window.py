"""Convolutions of one window, which are matmuls: values, strides and gradients as eager's."""

import copy

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.thinned

MODULES = {
    "whole image": lambda bias: (nn.Conv2d(6, 10, (5, 4), stride=3, bias=bias), (3, 6, 5, 4)),
    "row": lambda bias: (nn.Conv1d(6, 10, 5, bias=bias), (3, 6, 5)),
    "volume": lambda bias: (nn.Conv3d(2, 3, (2, 3, 2), bias=bias), (1, 2, 2, 3, 2)),
    "pixel": lambda bias: (nn.Conv2d(6, 10, 1, bias=bias), (3, 6, 1, 1)),
    "transposed": lambda bias: (nn.ConvTranspose2d(6, 10, (4, 3), stride=2, bias=bias), (3, 6, 1, 1)),
    "transposed, one filter": lambda bias: (nn.ConvTranspose2d(6, 1, (4, 3), bias=bias), (1, 6, 1, 1)),
    "one filter": lambda bias: (nn.Conv2d(8, 1, 4, bias=bias), (5, 8, 4, 4)),
}


@pytest.mark.parametrize("dtype", (torch.float64, torch.float32, torch.bfloat16, torch.float16))
@pytest.mark.parametrize("training", (True, False), ids=("training", "inference"))
@pytest.mark.parametrize("bias", (True, False), ids=("bias", "no bias"))
@pytest.mark.parametrize("last", (True, False), ids=("channels last", "contiguous"))
@pytest.mark.parametrize("name", MODULES)
def test_as_eager(name, last, bias, training, dtype):
    torch._dynamo.reset()
    torch.manual_seed(0)
    module, shape = MODULES[name](bias)
    if last and len(shape) != 4:
        pytest.skip("channels last is of images")
    module, x = module.to(dtype), torch.randn(shape).to(dtype)
    x = x.to(memory_format=torch.channels_last) if last else x
    exact = copy.deepcopy(module).double()
    compiled = torch.compile(module, backend="mlirc", dynamic=name == "pixel", options={"fallback": "error"})
    results = [
        run(f, x.to(next(exact.parameters()).dtype if f is exact else dtype), training)
        for f in (module, compiled, exact)
    ]
    for eager, ours, want in zip(*results, strict=True):
        assert (eager.shape, eager.stride(), eager.dtype) == (ours.shape, ours.stride(), ours.dtype)
        limit = 2 * (eager - want).abs().max() + 4 * torch.finfo(dtype).eps * want.abs().max()
        assert (ours - want).abs().max() <= limit


def run(f, x, training):
    """The result, and in training the gradients of the image and of the parameters."""
    module = getattr(f, "_orig_mod", f)
    x = x.detach().requires_grad_(training)
    with torch.set_grad_enabled(training):
        y = f(x)
    if not training:
        return [y]
    weights = torch.arange(y.numel()).remainder(7).to(y.dtype).view(y.shape)
    return [y, *torch.autograd.grad((y * weights).sum(), [x, *module.parameters()])]

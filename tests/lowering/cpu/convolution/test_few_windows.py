"""Convolutions of one window, or of few, which are matmuls: values, strides and gradients as eager's."""

import copy

import pytest
import torch
from torch import nn

import mlirc
from mlirc.lowering.passes.simplify import convolution_to_matmul

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


FEW = {
    "padded": lambda bias: (nn.Conv2d(16, 17, 3, padding=1, bias=bias), (2, 16, 3, 4)),
    "strided": lambda bias: (nn.Conv2d(16, 17, (3, 2), (2, 3), (1, 0), bias=bias), (2, 16, 5, 7)),
    "strided, more windows": lambda bias: (nn.Conv2d(16, 17, 3, 2, 1, bias=bias), (1, 16, 14, 15)),
    "far apart": lambda bias: (nn.Conv2d(17, 16, 2, (3, 4), dilation=(2, 1), bias=bias), (1, 17, 7, 7)),
    "dilated": lambda bias: (nn.Conv2d(16, 16, 3, 2, (3, 2), (2, 3), bias=bias), (2, 16, 5, 4)),
    "more padding than image": lambda bias: (nn.Conv2d(16, 16, 2, padding=2, bias=bias), (1, 16, 1, 1)),
    "points": lambda bias: (nn.Conv2d(16, 19, 1, (2, 1), bias=bias), (2, 16, 4, 2)),
    "rows": lambda bias: (nn.Conv1d(16, 17, 3, 2, 1, bias=bias), (4, 16, 7)),
    "volumes": lambda bias: (nn.Conv3d(16, 16, (2, 1, 3), (1, 2, 2), (1, 0, 1), bias=bias), (1, 16, 2, 3, 4)),
    "same": lambda bias: (nn.Conv2d(16, 16, (2, 3), padding="same", bias=bias), (2, 16, 2, 3)),
    "transposed": lambda bias: (nn.ConvTranspose2d(16, 17, 3, padding=1, bias=bias), (2, 16, 3, 2)),
    "transposed, strided": lambda bias: (
        nn.ConvTranspose2d(17, 16, (4, 3), (2, 4), (1, 0), (1, 2), bias=bias),
        (2, 17, 2, 3),
    ),
    "transposed, dilated": lambda bias: (nn.ConvTranspose2d(16, 16, 2, 3, 1, 1, 1, bias, (2, 3)), (1, 16, 3, 2)),
    "transposed rows": lambda bias: (nn.ConvTranspose1d(16, 16, 5, 2, 2, 1, bias=bias), (2, 16, 5)),
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("training", (True, False), ids=("training", "inference"))
@pytest.mark.parametrize("bias", (True, False), ids=("bias", "no bias"))
@pytest.mark.parametrize("last", (True, False), ids=("channels last", "contiguous"))
@pytest.mark.parametrize("name", FEW)
def test_few_windows(name, last, bias, training, monkeypatch):
    monkeypatch.setattr(convolution_to_matmul, "LEAST_WEIGHTS", 1)
    monkeypatch.setattr(convolution_to_matmul, "STRIDED_WEIGHTS", 1)
    test_as_eager(name, last, bias, training, torch.float32)
    module, shape = FEW[name](bias)
    with torch.set_grad_enabled(training):
        found = mlirc.explain(module)(torch.randn(shape)).data["graphs"]
    assert not any("convolution" in call for graph in found for call in graph["aten"])


@pytest.mark.thinned(4)
@pytest.mark.parametrize("dtype", (torch.float64, torch.float32, torch.bfloat16, torch.float16))
@pytest.mark.parametrize("training", (True, False), ids=("training", "inference"))
@pytest.mark.parametrize("bias", (True, False), ids=("bias", "no bias"))
@pytest.mark.parametrize("last", (True, False), ids=("channels last", "contiguous"))
@pytest.mark.parametrize("name", MODULES)
def test_as_eager(name, last, bias, training, dtype):
    torch._dynamo.reset()
    torch.manual_seed(0)
    module, shape = (MODULES | FEW)[name](bias)
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

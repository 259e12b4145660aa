"""Convolutions whose stride, padding, dilation, output padding or groups is a number that a call says, with gradients."""

import pytest
import torch

from mlirc.lowering.passes.simplify import convolution_to_matmul

pytestmark = pytest.mark.thinned

FUNCTIONS = {
    "stride": lambda x, w, n: torch.conv2d(x, w, stride=n),
    "stride, one window": lambda x, w, n: torch.conv2d(x[:, :, :3, :2], w, stride=n),
    "stride, padded": lambda x, w, n: torch.conv2d(x, w, stride=(1, n), padding=1),
    "stride, rows": lambda x, w, n: torch.conv1d(x[..., 0], w[..., 0], stride=n),
    "padding": lambda x, w, n: torch.conv2d(x, w, padding=n),
    "dilation": lambda x, w, n: torch.conv2d(x, w, padding=2, dilation=n),
    "dilation, points": lambda x, w, n: torch.conv2d(x, w[..., :1, :1], dilation=n),
    "groups": lambda x, w, n: torch.conv2d(x, w[:, : w.shape[1] // n], groups=n),
    "transposed, stride": lambda x, w, n: torch.conv_transpose2d(x, w, stride=n),
    "transposed, stride, one window": lambda x, w, n: torch.conv_transpose2d(x[..., :1, :1], w, stride=n),
    "transposed, padding": lambda x, w, n: torch.conv_transpose2d(x, w, stride=3, padding=n),
    "transposed, output padding": lambda x, w, n: torch.conv_transpose2d(x, w, stride=3, output_padding=n),
    "transposed, dilation": lambda x, w, n: torch.conv_transpose2d(x, w, dilation=n),
    "transposed, dilation, points": lambda x, w, n: torch.conv_transpose2d(x, w[..., :1, :1], dilation=n),
    "transposed, groups": lambda x, w, n: torch.conv_transpose2d(x, w[:, : w.shape[1] // n], groups=n),
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("few", (True, False), ids=("few windows", "many"))
@pytest.mark.parametrize("channels", (4, 96))
@pytest.mark.parametrize("training", (True, False), ids=("training", "inference"))
@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_eager(name, training, channels, few, monkeypatch):
    """All sizes are numbers; the result's may be, whatever the setting is."""
    if few:
        monkeypatch.setattr(convolution_to_matmul, "LEAST_WEIGHTS", 1)
        monkeypatch.setattr(convolution_to_matmul, "STRIDED_WEIGHTS", 1)
        monkeypatch.setattr(convolution_to_matmul, "LEAST_CHANNELS", 1)
    torch._dynamo.reset()
    torch.manual_seed(0)
    tensors = [torch.randn(2, channels, 5, 3), torch.randn(channels, channels, 3, 2) / channels]
    for t in tensors:
        torch._dynamo.mark_static(t.requires_grad_(training))
    compiled = torch.compile(FUNCTIONS[name], backend="mlirc", dynamic=True, options={"fallback": "error"})
    for n in (2, 1):
        want, found = FUNCTIONS[name](*tensors, n), compiled(*tensors, n)
        torch.testing.assert_close(found, want)
        assert found.stride() == want.stride()
        if training:
            expected, gradients = (torch.autograd.grad(y.square().sum(), tensors) for y in (want, found))
            torch.testing.assert_close(gradients, expected, rtol=1e-4, atol=1e-5)

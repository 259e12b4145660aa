"""Convolutions whose weights lie in memory in another order than row-major: values and gradients as eager's."""

import pytest
import torch
from torch import nn

MODULES = {
    "pixels": lambda: (nn.Conv2d(24, 20, 1), (2, 24, 7, 6)),
    "pixels, few channels": lambda: (nn.Conv2d(3, 5, 1, bias=False), (1, 3, 5, 5)),
    "pixels of rows": lambda: (nn.Conv1d(16, 8, 1), (3, 16, 11)),
    "pixels, norm": lambda: (nn.Sequential(nn.Conv2d(8, 16, 1), nn.BatchNorm2d(16), nn.ReLU()), (2, 8, 6, 5)),
    "pixels, stride": lambda: (nn.Conv2d(16, 24, 1, 2), (2, 16, 9, 9)),
    "pixels, groups": lambda: (nn.Conv2d(16, 24, 1, groups=2), (2, 16, 5, 5)),
    "taps": lambda: (nn.Conv2d(16, 24, 3, padding=1), (1, 16, 8, 9)),
    "taps, norm": lambda: (nn.Sequential(nn.Conv2d(8, 128, 3), nn.BatchNorm2d(128)), (1, 8, 9, 8)),
    "few channels": lambda: (nn.Conv2d(3, 16, (3, 5), 2), (2, 3, 15, 14)),
    "depthwise": lambda: (nn.Conv2d(16, 16, 3, padding=1, groups=16), (2, 16, 7, 7)),
    "groups": lambda: (nn.Conv2d(32, 24, 3, groups=4), (1, 32, 9, 9)),
    "one window": lambda: (nn.Conv2d(6, 10, (5, 4)), (3, 6, 5, 4)),
    "transposed": lambda: (nn.ConvTranspose2d(16, 8, 3, 2, 1), (1, 16, 6, 5)),
    "transposed pixels": lambda: (nn.ConvTranspose2d(16, 8, 1), (2, 16, 6, 5)),
    "volumes": lambda: (nn.Conv3d(4, 8, (2, 3, 1)), (1, 4, 4, 6, 5)),
    "linear": lambda: (nn.Linear(24, 20), (9, 24)),
}
LAYOUTS = {
    "transposed": lambda w: w.transpose(0, 1).contiguous().transpose(0, 1),
    "reversed": lambda w: w.permute(*reversed(range(w.dim()))).contiguous().permute(*reversed(range(w.dim()))),
    "apart": lambda w: torch.stack([w, w + 1], -1)[..., 0],
    "columns": lambda w: torch.cat([w + 1, w], 1)[:, w.shape[1] :],
    "filters": lambda w: w.repeat_interleave(2, 0)[::2],
    "one element": lambda w: w.flatten()[0].expand(w.shape),
    "one filter": lambda w: w[:1].expand(w.shape),
}


@pytest.mark.thinned(12)
@pytest.mark.parametrize("training", (True, False), ids=("training", "inference"))
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", MODULES)
def test_as_eager(name, layout, training):
    torch._dynamo.reset()
    (eager, x), (exact, y), (ours, _) = (
        made(name, layout, training, dtype) for dtype in (torch.float32, torch.float64, torch.float32)
    )
    compiled = torch.compile(ours, backend="mlirc", options={"fallback": "error"})
    got, expected = results(compiled, ours, x, training), results(eager, eager, x, training)
    for a, b, c in zip(got, expected, results(exact, exact, y, training), strict=True):
        assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
        assert (a - c).abs().max() <= 2 * (b - c).abs().max() + 1e-6 * c.abs().max()


def made(name, layout, training, dtype):
    """The module with its weight in the layout, and an input."""
    torch.manual_seed(0)
    module, shape = MODULES[name]()
    x, module = torch.randn(shape).to(dtype), module.to(dtype).train(training)
    weight = next(module.parameters())
    weight.data = LAYOUTS[layout](weight.data)
    return module, x


def results(call, module, x, training):
    """The result of a module, and in training the gradients of the image and the parameters."""
    x = x.clone().requires_grad_(training)
    with torch.set_grad_enabled(training):
        y = call(x)
    if not training:
        return [y]
    (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape)).sum().backward()
    return [y.detach(), x.grad, *(p.grad for p in module.parameters())]

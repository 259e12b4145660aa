"""Convolutions that fuse with what follows: depthwise ones, those of few channels, and those of one pixel as matmuls, in inference."""

import copy
import re

import pytest
import torch
from torch import nn

import mlirc
from tests.lowering.cpu.convolution.test_convolutions import compiled

pytestmark = pytest.mark.thinned

# name -> channels, filters, kernel, stride, padding, dilation, groups, image
SHAPES = {
    "3x3": (32, 32, (3, 3), 1, 1, 1, 32, (12, 14)),
    "strided, ragged channels": (19, 19, (5, 5), 2, 2, 1, 19, (15, 33)),
    "7x7 of 7x7": (40, 40, (7, 7), 1, 3, 1, 40, (7, 7)),
    "dilated": (24, 24, (3, 3), 1, 2, 2, 24, (20, 33)),
    "far apart": (8, 8, (3, 3), (2, 3), 5, (1, 7), 8, (6, 40)),
    "no padding, several chunks": (264, 264, (3, 3), 1, 0, 1, 264, (5, 18)),
    "a row of taps": (16, 16, (1, 3), 1, (0, 1), 1, 16, (6, 9)),
    "a column of taps": (16, 16, (3, 1), 1, (1, 0), 1, 16, (6, 9)),
    "windows wholly outside": (8, 8, (3, 3), 1, 4, 1, 8, (1, 1)),
    "few channels": (3, 40, (3, 3), 2, 1, 1, 1, (33, 30)),
    "few channels, full tiles of filters": (3, 64, (7, 7), 2, 3, 1, 1, (33, 30)),
    "few channels, filters of three vectors": (2, 48, (3, 3), 1, 1, 1, 1, (9, 17)),
    "few channels, several chunks of filters": (4, 288, (3, 3), 1, 1, 1, 1, (6, 17)),
    "few channels and filters": (3, 7, (4, 4), 4, 0, 1, 1, (16, 16)),
    "one channel": (1, 8, (5, 5), 1, 2, 1, 1, (9, 9)),
    "a pixel": (24, 40, (1, 1), 1, 0, 1, 1, (7, 7)),
    "a pixel, panels of 16": (20, 32, (1, 1), 1, 0, 1, 1, (9, 11)),
}


class Net(nn.Module):
    """A convolution, batch norm or bias, an activation, an addition."""

    def __init__(self, shape: str, norm: bool):
        super().__init__()
        channels, filters, kernel, *windows, groups, _ = SHAPES[shape]
        self.convolution = nn.Conv2d(channels, filters, kernel, *windows, groups=groups, bias=not norm)
        self.norm = nn.BatchNorm2d(filters) if norm else nn.Identity()
        if norm:
            nn.init.normal_(self.norm.running_mean)
            nn.init.uniform_(self.norm.running_var, 0.5, 2)

    def forward(self, x):
        y = self.norm(self.convolution(x))
        return nn.functional.hardswish(y) + y


@pytest.mark.thinned(3)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("shape", SHAPES)
def test_values(shape, dynamic):
    torch.manual_seed(0)
    norm = len(shape) % 2 == 0
    net = Net(shape, norm).eval()
    x = torch.randn(2, SHAPES[shape][0], *SHAPES[shape][-1])
    if norm:
        x = x.to(memory_format=torch.channels_last)
    with torch.no_grad():
        expected, exact = net(x), copy.deepcopy(net).double()(x.double())
        result = compiled(net, dynamic=dynamic)(x)
    assert result.stride() == expected.stride()
    assert (result - exact).abs().max() <= 2 * (expected - exact).abs().max() + 1e-6


def test_what_follows_a_convolution_is_in_its_kernel():
    convolutions = nn.Conv2d(3, 32, 3, 2, 1), nn.Conv2d(32, 32, 3, 1, 1, groups=32), nn.Conv2d(32, 16, 1)
    activations = nn.SiLU(), nn.Hardswish(), nn.ReLU6()
    net = nn.Sequential(*(m for pair in zip(convolutions, activations, strict=True) for m in pair)).eval()
    with torch.no_grad():
        (graph,) = mlirc.explain(net, options={"fallback": "error"})(torch.randn(1, 3, 40, 40)).data["graphs"]
    names = [kernel["name"] for kernel in graph["kernels"]]
    assert len(names) == 3, names


def test_an_infinite_weight_does_not_reach_the_padding():
    net = nn.Conv2d(8, 8, 3, padding=1, groups=8).eval()
    with torch.no_grad():
        net.weight[:, :, 0] = torch.inf
        x = torch.ones(1, 8, 5, 5)
        for dynamic in (False, True):
            torch.testing.assert_close(compiled(net, dynamic=dynamic)(x), net(x))


def test_filters_that_fill_tiles_have_no_loop_for_a_vector(tmp_path):
    net, x = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3), nn.ReLU()).eval(), torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        torch.compile(net, backend="mlirc", options={"dump": str(tmp_path), "cache": False, "fallback": "error"})(x)
    (lowered,) = tmp_path.glob("*_lower.mlir")
    functions = re.findall(r"func internal @\w+_taps(\d+)_(.*?)\n  }", lowered.read_text(), re.DOTALL)
    assert functions
    for windows, text in functions:
        assert text.count("llvm.store") == int(windows) * 2

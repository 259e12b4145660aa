"""Composite operators that torch.export keeps: a model compiled ahead of time has them decomposed as torch.compile does."""

import pytest
import torch
from torch import nn

import mlirc
from mlirc.frontend.package.exported import exported_program, functional

MODES = ("nearest", "nearest-exact", "bilinear", "bicubic")


@pytest.mark.thinned
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_resized_images_are_no_call_of_aten(mode, memory_format):
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.Upsample(scale_factor=2, mode=mode), nn.ReLU()).eval()
    x = torch.randn(2, 4, 9, 11).to(memory_format=memory_format)
    gm = functional(exported_program(model, (x,), {}, None)).gm
    assert not [node for node in gm.graph.nodes if "upsample" in str(node.target)]
    result = mlirc.compile(model, (x,))(x)
    with torch.no_grad():
        expected = model(x)
    torch.testing.assert_close(result, expected)
    assert result.stride() == expected.stride()


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_resized_images_of_any_size(mode):
    model = nn.Sequential(nn.Upsample(scale_factor=1.5, mode=mode), nn.ReLU()).eval()
    sizes = {"input": {2: torch.export.Dim("h", min=4, max=64), 3: torch.export.Dim("w", min=4, max=64)}}
    compiled = mlirc.compile(model, (torch.randn(2, 4, 9, 11),), dynamic_shapes=sizes)
    for height, width in ((9, 11), (16, 7), (33, 40)):
        x = torch.randn(2, 4, height, width)
        torch.testing.assert_close(compiled(x), model(x))

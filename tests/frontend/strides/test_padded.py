"""Padded images lie as eager's kernels lay them out. The meta functions of torch 2.11 promise row-major strides."""

import pytest
import torch
from torch.nn import functional


@pytest.mark.parametrize("shape", [(2, 7, 5, 6), (1, 3, 5, 6)])
@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_channels_last(mode, shape):
    x = torch.randn(shape).to(memory_format=torch.channels_last)
    padded = torch.compile(lambda x: functional.pad(x, (-1, 1, 2, 1), mode=mode), backend="mlirc")
    expected = functional.pad(x, (-1, 1, 2, 1), mode=mode)
    assert padded(x).equal(expected) and padded(x).stride() == expected.stride()

"""Random inputs of a graph that takes a max pooling's gradient: its indices are those of a pooling, so that no import is called wrong."""

import pytest
import torch
from torch import nn

from mlirc.execution.random_inputs import random_inputs
from mlirc.ir import context, ir
from tests.debugger.planted.test_bisected import forked

NETS = {
    "plain": nn.MaxPool2d(2),
    "overlapping": nn.MaxPool2d(3, 2, 1),
    "ceil": nn.MaxPool2d(2, ceil_mode=True),
    "dilated": nn.MaxPool2d(2, 1, dilation=2),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", NETS)
def test_indices_lie_in_their_windows(name, tmp_path):
    torch._dynamo.reset()
    options = {"dump": str(tmp_path), "fallback": "error"}
    x = torch.randn(2, 3, 9, 7, requires_grad=True)
    torch.compile(NETS[name], backend="mlirc", options=options)(x).sum().backward()
    (file,) = tmp_path.glob("*backward_0_import.mlir")
    with context():
        inputs = random_inputs(ir.Module.parse(file.read_text()), 0)
    (index,) = (v for v in inputs if isinstance(v, torch.Tensor) and v.dtype == torch.int64)
    assert index.unique().numel() > index[0, 0].numel() // 4
    code, said, errors = forked("run", file, "--random", "0", "--check-each-pass")
    assert code == 0 and "right after each pass" in said + errors, said + errors

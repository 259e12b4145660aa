"""Captured graphs: what cannot be called here, or with these inputs, is one error, and no call."""

import pytest
import torch

from mlirc.codegen.emit.checked_program import InputError
from mlirc.dialects.core.context import context
from mlirc.execution.modules import MachineCode, copied
from mlirc.lowering.files.text import parse_module
from mlirc.lowering.pipeline.pass_manager import run_pipeline
from mlirc.lowering.pipeline.pipelines import pipeline
from mlirc.measurement.captured_graphs import CapturedGraph, CapturesError
from mlirc.measurement.sides import read_side

TEXT = """func.func @graph(%0: tensor<4xf32>) -> tensor<4xf32> {
  %1 = "mlirc.exp"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: tests/gpu/commands/test_commands.py calls it")
def test_a_graph_of_a_gpu_where_there_is_none(tmp_path):
    file = tmp_path / "gpu.mlir"
    file.write_text(TEXT.replace("4xf32", '4xf32, {device = "cuda:0"}'))
    graph = CapturedGraph("000", file, [torch.ones(4)])
    for measured in (graph.profiled, lambda: graph.compiled(read_side("gpu"))):
        with pytest.raises(CapturesError, match="000: its tensors are on a GPU, and PyTorch finds none here"):
            measured()


@pytest.mark.parametrize("wrong", [[torch.ones(3)], [torch.ones(4).double()], [], [2.0]], ids=str)
def test_a_step_is_not_called_with_other_inputs(wrong):
    with context():
        module = parse_module(TEXT.encode(), "-")
        run_pipeline(module, pipeline("cpu"))
        code = MachineCode(module)
        code.step([torch.ones(4)])()
        with pytest.raises((InputError, ValueError)):
            code.step(wrong)


def test_copies_for_another_device_keep_their_strides():
    """Between whose elements other memory lies, or that share elements. A tensor's own `to` keeps neither."""
    for x in (torch.ones(4, 6)[:, 1:3], torch.ones(2, 9).T[1:5], torch.ones(4, 1).expand(4, 2), torch.ones(0, 2)):
        made = copied(x, "meta")
        assert made.device.type == "meta" and (made.shape, made.stride()) == (x.shape, x.stride())

"""The six models of the benchmarks: their captures, forward and backward, go on from every stage to what the compiled call gave."""

import re

import pytest
import torch
from safetensors.torch import load_file

from benchmarks.models import MODELS
from benchmarks.step import take_step
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.execution.captures import read_capture
from tests.commands.command import good

STAGES = ["import", "simplify", "fuse", "plan", "lower"]
CASES = [
    pytest.param(name, training, marks=() if name == "mlp" else pytest.mark.full)
    for name in MODELS
    for training in (False, True)
]


@pytest.mark.parametrize(("name", "training"), CASES)
def test_a_capture_goes_on_from_every_stage(name, training, tmp_path):
    model = MODELS[name](small=True)
    module, inputs = model.build(torch.float32, training), model.inputs(2, torch.float32, training)
    options = {"fallback": "error", "dump": tmp_path / "kept", "cache": False}
    take_step(model, module, torch.compile(module, backend="mlirc", options=options), inputs, training)
    graphs = read_capture(tmp_path / "kept").graphs
    assert [graph.kind for graph in graphs] == (["forward", "backward"] if training else ["inference"])
    for graph in graphs:
        assert list(graph.stages) == STAGES and graph.inputs and graph.results
        expected, executed = load_file(graph.results), set()
        for file in graph.stages.values():
            assert printed_and_parsed(file.read_text()) == without_comments(file.read_text())
            lowered, left = tmp_path / "lowered.mlir", tmp_path / "left.safetensors"
            good("opt", file, "--pipeline", "cpu", "-o", lowered)
            if lowered.read_text() in executed:  # what stages lead to is one module
                continue
            executed.add(lowered.read_text())
            good("run", lowered, "--inputs", graph.inputs, "-o", left)
            for key, mine in load_file(left).items():
                torch.testing.assert_close(
                    mine, expected[key], rtol=0, atol=0, equal_nan=True, msg=f"{file.name}: {key}"
                )


def printed_and_parsed(text):
    with context():
        return ir.Module.parse(text).operation.get_asm(enable_debug_info=True).strip()


def without_comments(text):
    return re.sub(r"^//.*\n", "", text, flags=re.MULTILINE).strip()

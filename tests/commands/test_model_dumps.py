"""The six models of the benchmarks: their dumps, forward and backward, go on from every stage to what the compiled call gives."""

import re

import pytest
import torch

from benchmarks.models import MODELS
from benchmarks.step import take_step
from mlirc.codegen.emit.emit import compile_module
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.execution.modules import copies, graph_of, prepare_of
from mlirc.frontend.driver import run as frontend
from tests.commands.command import good

STAGES = ("import", "simplify", "fuse", "plan", "lower")


class Calls:
    """What each compiled graph is called with, and what it gives."""

    def __init__(self, monkeypatch):
        self.wrap, self.found = frontend.wrap, []
        monkeypatch.setattr(frontend, "wrap", self.recording)

    def recording(self, compiled, arguments, constants, native):
        made = self.wrap(compiled, arguments, constants, native)

        def run(args):
            given = copies([args[k] for k in compiled.inputs])
            results = made(args)
            plain = [x for x, (kind, _) in zip(results, compiled.outputs, strict=True) if kind == "result"]
            self.found.append((given, constants, copies(plain)))
            return results

        run._boxed_call = True
        return run


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", ["mlp", *(pytest.param(n, marks=pytest.mark.full) for n in MODELS if n != "mlp")])
def test_a_dump_goes_on_from_every_stage(name, training, tmp_path, monkeypatch):
    calls = Calls(monkeypatch)
    model = MODELS[name](small=True)
    module, inputs = model.build(torch.float32, training), model.inputs(2, torch.float32, training)
    options = {"fallback": "error", "dump": tmp_path, "cache": False}
    take_step(model, module, torch.compile(module, backend="mlirc", options=options), inputs, training)
    graphs = sorted({path.name.split("_")[0] for path in tmp_path.glob("*.mlir")})
    assert len(graphs) == len(calls.found) == 1 + training
    for graph, (given, constants, results) in zip(graphs, calls.found, strict=True):
        for stage in STAGES:
            (path,) = tmp_path.glob(f"{graph}_*_{stage}.mlir")
            with context():
                read = ir.Module.parse(path.read_text()).operation.get_asm(enable_debug_info=True)
                again = ir.Module.parse(read).operation.get_asm(enable_debug_info=True)
                assert read == again and without_comments(path.read_text()) == read.strip(), (
                    "printing and parsing is the identity"
                )
                lowered = ir.Module.parse(good("opt", path, "--pipeline", "cpu").stdout)
                got = call(lowered, copies([*given, *constants]))
            for mine, expected in zip(got, results, strict=True):
                torch.testing.assert_close(mine, expected, rtol=0, atol=0, equal_nan=True, msg=f"{path.name}")


def call(module, inputs):
    """What a module of ours computes: as of a traced graph, so that it may call operators that a stranger's file may not."""
    prepare = prepare_of(module)
    with torch.no_grad():
        if prepare is not None:
            inputs = inputs + compile_module(module, entry="prepare")([inputs[k] for k in prepare[1]])
        return compile_module(module, entry=graph_of(module).name.value)(inputs)


def without_comments(text):
    return re.sub(r"^//.*\n", "", text, flags=re.MULTILINE).strip()

"""A machine without a compiler: PATH leads nowhere, CC and CXX are not set, and everything still compiles and runs."""

import os
from pathlib import Path

import pytest

from tests.forked_programs import python

pytestmark = pytest.mark.thinned

ROOT = Path(__file__).parents[3]

SCRIPT = """
import copy, shutil, sys

assert not any(map(shutil.which, ["cc", "c++", "gcc", "g++", "clang", "clang++", "ld", "as"]))
started = []
sys.addaudithook(lambda event, args: started.append(args) if event in ("subprocess.Popen", "os.exec") else None)

import torch
from benchmarks.step import reference_step, take_step
from mlirc.measurement.error import error_of
from benchmarks.models import MODELS

name, training = sys.argv[1], sys.argv[2] == "training"
model = MODELS[name](small=True)
module = model.build(torch.float32, training)
inputs = model.inputs(2, torch.float32, training)
reference = reference_step(model, module, inputs, training)
call = torch.compile(module, backend="mlirc", options={"fallback": "error"})
error = error_of(take_step(model, module, call, inputs, training), reference)
assert error.outputs < 1e-5 and error.gradients < 1e-4, error
assert not started, f"started {started}"
print("compiled without a compiler")
"""


@pytest.mark.thinned(1)
@pytest.mark.parametrize("way", ["inference", "training"])
@pytest.mark.parametrize("name", ["mlp", pytest.param("bert", marks=pytest.mark.full), "resnet"])
def test_no_compiler(name, way, tmp_path):
    environment = {key: value for key, value in os.environ.items() if key not in ("CC", "CXX")}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment |= {"PATH": str(tmp_path), "PYTHONPATH": path}
    done = python("-c", SCRIPT, name, way, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "compiled without a compiler" in done.stdout

"""TORCH_LOGS and TORCH_TRACE: each stage once, where it was asked for; nothing where not."""

import inspect
import json
import os
import subprocess
import sys
import tomllib

import pytest
import torch

from tests.forked_programs import ROOT, python

PROGRAM = """
import logging, sys, torch
if LEVEL: logging.basicConfig(level=logging.DEBUG)
x = torch.randn(8, 8, requires_grad=True)
for _ in range(2):
    torch._dynamo.reset()
    torch.compile(lambda x: (x.sin() * 2).sum(-1), backend="mlirc")(x).sum().backward()
from mlirc.frontend import statistics
print("LOOKED UP", [report.cache for report in statistics.graphs if report.kind == "forward"], file=sys.stderr)
"""
STAGES = ("import", "simplify", "fuse", "plan", "lower")


def run(level: bool = False, **variables: str) -> str:
    """What a program that compiles the same graph twice writes, with the disk cache on."""
    done = python("-c", PROGRAM.replace("LEVEL", str(level)), env=os.environ | variables)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stderr


@pytest.fixture
def cache(tmp_path):
    return {"MLIRC_CACHE_DIR": str(tmp_path / "cache")}


def titles(text: str) -> dict[str, int]:
    return {stage: text.count(f", after {stage}:") for stage in STAGES}


def test_ir_after_each_stage(cache):
    text = run(TORCH_LOGS="+mlirc.ir", **cache)
    assert titles(text) == dict.fromkeys(STAGES, 4)  # forward and backward, twice: a graph that is shown is compiled
    assert text.count("graph 0, forward, after fuse:") == 1 and "graph 1, backward, after plan:" in text
    assert '"mlirc.sin"' in text and "llvm.load" in text and "fuse-elementwise: " not in text


def test_fusions_with_their_rules_and_code(cache):
    text = run(TORCH_LOGS="+mlirc.lowering.fusion,+mlirc.codegen", **cache)
    assert titles(text) == dict.fromkeys(STAGES, 0) | {"fuse": 4, "lower": 4}
    assert "taken, " in text and '"mlirc.sin"' not in text
    assert "define " in text and "; kernel_0" in text


def test_everything(cache):
    assert titles(run(TORCH_LOGS="+mlirc", **cache)) == dict.fromkeys(STAGES, 4) | {"fuse": 8, "lower": 8}


@pytest.mark.parametrize(("level", "logs"), [(False, "mlirc"), pytest.param(True, "", marks=pytest.mark.full)])
def test_nobody_asked(cache, level, logs):
    """The level of the program's own root logger asks for nothing of ours."""
    asked = {"TORCH_LOGS": logs} if logs else {}
    text = run(level, **asked, **cache)
    assert "LOOKED UP ['miss', 'hit']" in text
    assert titles(text) == dict.fromkeys(STAGES, 0)


def test_the_structured_trace_has_artifacts(cache, tmp_path):
    text = run(TORCH_TRACE=str(tmp_path / "trace"), **cache)
    assert titles(text) == dict.fromkeys(STAGES, 0)
    (file,) = (tmp_path / "trace").iterdir()
    events = [json.loads(line[line.index("{") :]) for line in file.read_text().splitlines() if '{"artifact"' in line]
    names = [event["artifact"]["name"] for event in events if event["artifact"]["name"].startswith("mlirc")]
    wanted = [*(f"mlirc_ir_{stage}" for stage in STAGES), "mlirc_fusion", "mlirc_code"]
    assert sorted(names) == sorted(wanted * 4)


@pytest.fixture
def as_installed(tmp_path):
    """The environment of a Python that finds the entry points of pyproject.toml, however old this installation is."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    told = tmp_path / "site" / "mlirc_as_installed-0.dist-info"
    told.mkdir(parents=True)
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: mlirc-as-installed\nVersion: 0\n")
    (told / "entry_points.txt").write_text(f"[torch.backends]\nmlirc = {groups['torch.backends']['mlirc']}\n")
    return os.environ | {"PYTHONPATH": f"{told.parent}{os.pathsep}{ROOT}"}


def test_names_of_artifacts(cache, as_installed):
    source = inspect.getsource(torch)
    if source.index("_logging._init_logs()") < source.rindex("_import_device_backends()"):
        pytest.skip("this PyTorch reads TORCH_LOGS before it asks backends")
    environment = as_installed | cache | {"TORCH_LOGS": "mlirc_ir,mlirc_code"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("LEVEL", "False").replace("range(2)", "range(1)")],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert titles(done.stderr) == dict.fromkeys(STAGES, 2) | {"lower": 4}
    assert "[__mlirc_ir] graph 0, forward, after import:" in done.stderr and "[__mlirc_code]" in done.stderr


def test_a_process_that_imports_torch_has_nothing_of_mlirc(as_installed):
    program = "import sys, torch; assert not [name for name in sys.modules if name.split('.')[0] == 'mlirc']"
    assert subprocess.run([sys.executable, "-c", program], env=as_installed).returncode == 0

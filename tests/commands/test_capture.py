"""`mlirc capture`: programs run as Python runs them, every torch.compile goes to mlirc, and each graph is kept."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from mlirc.execution.captures import read_capture
from tests.commands.command import bad
from tests.forked_programs import COMMANDS, python


def capture(tmp_path: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "beside.py").write_text("HELLO = 'hello'\n")
    (tmp_path / "program.py").write_text(program)
    environment = {k: v for k, v in os.environ.items() if k != "MLIRC_DUMP"}
    command = ["-m", "mlirc", "capture", "program.py", *arguments, "--out", "kept"]
    return python(*command, cwd=tmp_path, env=environment, imported=COMMANDS)


EVERY_WAY = """
import sys, torch
from torch import compile as imported
from beside import HELLO

assert __name__ == "__main__" and __file__.endswith("program.py")
print(HELLO, sys.argv)

@torch.compile
def plain(x): return x + 1

@torch.compile(backend="inductor", mode="max-autotune")
def tuned(x): return x + 2

named = imported(lambda x: x + 3, backend="eager", dynamic=True)
options = torch.compile(lambda x: x + 4, options={"triton.cudagraphs": True})
function = torch.compile(lambda x: x + 5, backend=lambda gm, inputs: 1 / 0)
ours = torch.compile(lambda x: x + 6, backend="mlirc", options={"pipeline": "strict", "dump": "/nowhere"})
class Model(torch.nn.Linear):
    def forward(self, x): return super().forward(x) * 2
module = Model(3, 3)
module.compile(backend="aot_eager")
x = torch.ones(3)
for k, f in enumerate((plain, tuned, named, options, function, ours)):
    assert torch.equal(f(x), x + k + 1)
module(x)
sys.exit(3)
"""


def test_every_compile_goes_to_mlirc(tmp_path):
    done = capture(tmp_path, EVERY_WAY, "--lr", "3", "-x", "a b")
    assert done.returncode == 3, done.stderr
    assert done.stdout == "hello ['program.py', '--lr', '3', '-x', 'a b']\n"
    assert done.stderr == "mlirc capture: 7 graphs, made of 7 graphs of Dynamo's, in kept; graph breaks: 0\n"
    found = read_capture(tmp_path / "kept")
    assert [g.kind for g in found.graphs] == ["inference"] * 6 + ["forward"]
    assert all(list(g.stages) == ["import", "simplify", "fuse", "plan", "lower"] for g in found.graphs)
    assert found.graphs[5].record["options"]["pipeline"] == "strict"
    assert found.run["exit"] == 3 and found.run["error"] is None
    assert found.run["left_out"] == ["option 'triton.cudagraphs' of inductor"]
    assert found.run["command"][1:] == ["--lr", "3", "-x", "a b"]


def test_a_module_of_a_package_that_goes_to_another_folder(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package/part.py").write_text("W = 2\n")
    (tmp_path / "package/__main__.py").write_text(
        "import os, sys, torch\nfrom .part import W\nos.chdir('/')\n"
        "print(torch.compile(lambda x: x * W)(torch.ones(1)).item(), sys.argv[1:], __package__)\n1 / 0\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "MLIRC_DUMP"}
    command = ["-m", "mlirc", "capture", "-m", "package", "-v", "--out", "kept"]
    done = python(*command, cwd=tmp_path, env=environment, imported=COMMANDS)
    assert (done.returncode, done.stdout) == (1, "2.0 ['-v'] package\n"), done.stderr
    assert "__main__.py" in done.stderr.splitlines()[1] and "runpy" not in done.stderr, done.stderr
    assert done.stderr.splitlines()[-1].startswith("mlirc capture: 1 graph, made of 1 graph of Dynamo's, in kept;")


def test_a_program_that_raises(tmp_path):
    program = "import torch\ntorch.compile(lambda x: x + 1)(torch.ones(2))\nprint('at', end='')\n1 / 0\n"
    done = capture(tmp_path, program)
    assert (done.returncode, done.stdout) == (1, "at")
    *trace, last = done.stderr.splitlines()
    assert trace[0] == "Traceback (most recent call last):" and 'program.py", line 4, in <module>' in trace[1]
    assert trace[-1] == "ZeroDivisionError: division by zero" and "runpy" not in done.stderr
    assert last.startswith("mlirc capture: 1 graph, made of 1 graph of Dynamo's, in kept")
    found = read_capture(tmp_path / "kept")
    assert found.run["error"] == "ZeroDivisionError: division by zero" and found.graphs[0].inputs is not None


def test_graph_breaks_are_kept(tmp_path):
    program = (
        "import torch\ndef f(x):\n    x = x + 1\n    print('now')\n    return x * 2\ntorch.compile(f)(torch.ones(2))\n"
    )
    done = capture(tmp_path, program)
    assert done.returncode == 0 and done.stderr.endswith("graph breaks: 1\n"), done.stderr
    (found,) = json.loads((tmp_path / "kept/capture.json").read_text())["graph_breaks"]
    assert "print" in found["reason"] + found["explanation"] and "program.py:4 in f" in found["user_stack"][-1]


FULL = """
import resource, signal, torch
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (MOST, MOST))
torch.compile(lambda x: x + 1)(torch.ones(2))
print("at the end")
"""


@pytest.mark.parametrize(("most", "kept"), [(1500, True), (150, False)])
def test_a_full_disk(most, kept, tmp_path):
    """No file is written in part, and one line says that some are not there."""
    done = capture(tmp_path, FULL.replace("MOST", str(most)))
    assert (done.returncode, done.stdout) == (1, "at the end\n"), done.stderr
    assert "mlirc capture: kept: File too large; " in done.stderr and done.stderr.count("\n") == 1, done.stderr
    left = list((tmp_path / "kept").iterdir())
    assert bool(left) == kept and all(path.stat().st_size for path in left)
    for path in left:
        assert path.suffix in (".py", ".json", ".mlir", ".txt") and not path.name.startswith("."), path
        if path.suffix == ".json":
            json.loads(path.read_text())


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("print()", "the script calls no function that torch.compile made"),
        ("raise ValueError('x')", "as the script raised ValueError: x"),
        ("def f(", "as the script raised SyntaxError"),
    ],
)
def test_a_program_without_a_graph(program, why, tmp_path):
    done = capture(tmp_path, program)
    *_, last = done.stderr.splitlines()
    assert done.returncode == 1 and "mlirc capture: kept: no graph was compiled" in last and why in last


def test_bad_input(tmp_path):
    (tmp_path / "a.py").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").write_text("mine")
    script = tmp_path / "a.py"
    assert "No such file" in bad("capture", tmp_path / "x.py", "--out", tmp_path / "o", code=2)
    assert "no regular file" in bad("capture", tmp_path, "--out", tmp_path / "o", code=2)
    assert "none is written over" in bad("capture", script, "--out", tmp_path / "full", code=2)
    assert "is no folder" in bad("capture", script, "--out", script, code=2)
    assert "Not a directory" in bad("capture", script, "--out", script / "b", code=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.py", "full"]
    assert (tmp_path / "full/mine").read_text() == "mine"

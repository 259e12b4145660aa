"""The command `mlirc compare`: what it measures, shows and refuses. How fast anything is, is not asserted but where it waits."""

import json

import pytest
import torch

from tests.commands.command import bad, good, run

SLOW = """
import time
from dataclasses import dataclass

import torch

from mlirc.passes import GraphBuilder, register
from mlirc.ir import ir


@register
@dataclass(frozen=True)
class {name}:
    "Replaces each exp by an ATen call that waits, or by a sine."

    name = "{passed}"
    wrong: bool = False

    def run(self, function, ledger):
        for op in list(function.regions[0].blocks[0].operations):
            if op.operation.name == "mlirc.exp":
                with ir.InsertionPoint(op), op.location:
                    made = GraphBuilder().sin(op.operands[0])
                op.results[0].replace_all_uses_with(made)
"""
SCRIPT = """
import torch
f = torch.compile(lambda x: (x.exp() + 1).softmax(-1))
with torch.no_grad():
    f(torch.randn(16, 32))
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def test_a_pass_that_changes_the_answer_shows_as_an_error(script, tmp_path):
    passes = tmp_path / "passes.py"
    passes.write_text(SLOW.format(name="SinForExp", passed="sin-for-exp"))
    out = tmp_path / "out.json"
    arguments = ("--import", passes, "--rounds", 3, "--compilations", 2, "--json", out)
    done = good("compare", "cpu", "cpu + sin-for-exp after cse#1", script, *arguments)
    said = " ".join(done.stdout.split())
    assert "Noise: 2 compilations of each side, which vary so that a difference of less than a factor of" in said
    assert "B has A's kernels" not in said and "3 rounds are too few" in said
    assert "by wall clock too few rounds to say, by CPU time too few rounds to say" in said
    found = json.loads(out.read_text())
    assert (found["schema"], found["A"], found["B"], found["rounds"]) == (2, "cpu", "cpu + sin-for-exp after cse#1", 3)
    assert found["compilations"] == 2 and "Student" in found["method"] and found["failed"] == []
    (subject,) = found["subjects"]
    sides = subject["sides"]
    assert sides.keys() == {"A", "B"}
    assert sides["A"]["error"]["outputs"] < 1e-6
    assert sides["B"]["error"]["outputs"] > 1e-2 and sides["B"]["taken"].keys() >= {"fuse-elementwise"}
    for side in sides.values():
        for clock in ("wall", "cpu"):
            assert [len(one["samples"]) for one in side[clock]["compilations"]] == [3, 3]
            assert side[clock]["median"] > 0
        assert (side["kernels"], side["launches"], side["read"], side["written"]) == (1, 1, 2048, 2048)
        assert side["compile"] > 0 and side["flops"] > 0 and side["arena"] == 0
    assert subject["verdict"] == dict.fromkeys(("wall", "cpu"), "too few rounds to say")
    for clock in ("wall", "cpu"):
        interval = subject["faster"][clock]
        assert 0 < interval["low"] <= interval["value"] <= interval["high"] and subject["margin"][clock] >= 1


def test_a_pass_that_changes_nothing_is_told(script):
    said = " ".join(
        good("compare", "cpu", "cpu + cse after cse#1", script, "--rounds", 6, "--compilations", 2).stdout.split()
    )
    assert "B has A's kernels, calls and arena; cse took 0" in said and "rounds are too few" not in said


def test_a_slower_side_is_told_from_noise(tmp_path):
    """B is eager, whose function waits wherever it is not traced."""
    path = tmp_path / "script.py"
    path.write_text(
        "import time, torch\n"
        "@torch.compile\n"
        "def f(x):\n"
        "    if not torch.compiler.is_compiling():\n"
        "        time.sleep(0.05)\n"
        "    return x + 1\n"
        "f(torch.randn(8))\n"
    )
    done = good("compare", "cpu", "eager", path, "--rounds", 8, "--json", "-")
    (subject,) = json.loads(done.stdout)["subjects"]
    assert subject["verdict"]["wall"] == "slower" and subject["faster"]["wall"]["high"] < 0.5


def test_captured_graphs(tmp_path):
    function = torch.compile(lambda x: (x.exp() + 1).softmax(-1), backend="mlirc", options={"dump": str(tmp_path)})
    with torch.no_grad():
        function(torch.randn(4, 8))
    done = good("compare", "cpu", "strict", "--captures", tmp_path, "--rounds", 2, "--compilations", 2, "--json", "-")
    (subject,) = json.loads(done.stdout)["subjects"]
    a, b = subject["sides"]["A"], subject["sides"]["B"]
    assert a["launches"] == 1 < b["launches"] and a["read"] + a["written"] < b["read"] + b["written"]
    assert a["error"]["outputs"] < 1e-6 and b["error"]["outputs"] < 1e-6


def test_models():
    few = ("--rounds", 2, "--compilations", 2)
    done = good("compare", "cpu", "cpu", "--models", "mlp", "--small", "--ways", "training", *few, "--json", "-")
    (subject,) = json.loads(done.stdout)["subjects"]
    assert subject["name"] == "mlp (small) training float32"
    assert all(side["error"]["gradients"] < 1e-5 for side in subject["sides"].values())


def test_a_side_that_fails_is_named_and_the_rest_is_told(script, tmp_path):
    passes = tmp_path / "passes.py"
    passes.write_text(
        SLOW.format(name="Raises", passed="raises").replace("for op in", "raise KeyError('here')\n        for op in")
    )
    done = run("compare", "cpu", "cpu + raises after simplify", script, "--import", passes, "--rounds", 2)
    assert done.exit_code == 1 and "Traceback" not in done.stderr
    assert "under 'cpu + raises after simplify'" in done.stderr and "here" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["cpu"], 2, "name two sides"),
        (["cpu", "cpu"], 2, "say what to compare on"),
        (["cpu", "cpu", "a.py", "--models", "mlp"], 2, "one of them"),
        (["cpu", "cpux", "--models", "mlp"], 2, "did you mean 'cpu'?"),
        (["cpu", "cpu", "--models", "mpl"], 2, "no model 'mpl'; did you mean 'mlp'?"),
        (["cpu", "cpu", "--models", "mlp", "--ways", "train"], 2, "no way 'train'"),
        (["cpu", "cpu", "none.py"], 2, "none.py: No such file or directory"),
        (["cpu", "cpu", "--captures", "nowhere"], 2, "nowhere: No such file or directory"),
    ],
)
def test_bad_input(arguments, code, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said in bad("compare", *arguments, code=code)


def test_a_folder_without_graphs(tmp_path):
    assert "no capture" in bad("compare", "cpu", "cpu", "--captures", tmp_path)


def test_a_graph_that_does_not_parse(tmp_path):
    with torch.no_grad():
        torch.compile(lambda x: x.exp(), backend="mlirc", options={"dump": str(tmp_path)})(torch.randn(4))
    (file,) = tmp_path.glob("*_import.mlir")
    file.write_text("func.func @graph(")
    assert file.name in bad("compare", "cpu", "cpu", "--captures", tmp_path)


def test_functions_that_subjects_share_are_compiled_for_each_of_them():
    """Dynamo compiles a function so many times at most, and then runs it in eager without a word: so the third model was."""
    import torch

    from mlirc.measurement.comparing import compare_on
    from mlirc.measurement.error import CallResults
    from mlirc.measurement.sides import read_side
    from mlirc.measurement.subjects import FunctionSubject

    x, none = torch.ones(4), CallResults([], [])
    subject = FunctionSubject("shared", lambda x: x.sin(), lambda f: lambda: f(x), lambda f: none, lambda: None)
    for _ in range(4):
        found = compare_on(subject, read_side("cpu"), read_side("cpu"), rounds=2, compilations=2)
        assert [facts.kernels for facts in found.facts.values()] == [1, 1]

"""Planted bugs of the import: `--check-each-pass` and `bisect` name the ATen operator that is imported wrong, and execute no text of a graph."""

import os
import re
import shlex
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from mlirc.dialects.core.context import context
from mlirc.dialects.core.dialect import IMPORTS
from tests.commands.command import good, run

aten = torch.ops.aten


def rows(x, y):
    return (x - y).exp().sum(1, keepdim=True) + x.neg()


def columns(x, y):
    return (x * y).sum(1) - x


def normal(x, y):
    z = (x @ y).cos()
    return torch.nn.functional.layer_norm(z, (6,)).relu(), z.t()


def update(x, y):
    z = x.clone()
    x.copy_(torch.where(y > 0, z.sin(), z))
    return z * 0.1


def drawn(x, y):
    return torch.nn.functional.dropout(x.tanh() * 0.1, 0.4) - y, torch.rand(6) + x.argmax(1)


def half(x, y):
    return (x.to(torch.bfloat16) + 0.1).exp().float().sum(0) - y


@dataclass(frozen=True)
class Plant:
    """A function, the operator that is imported by the rule of another, or with other arguments, and these."""

    function: Any
    target: Any
    change: Any
    instead: Any = None


PLANTS = {
    "operands swapped": Plant(rows, aten.sub.Tensor, lambda x, y: (y, x)),
    "another dimension": Plant(columns, aten.sum.dim_IntList, lambda x, dims, *rest: (x, [0], *rest)),
    "another epsilon": Plant(normal, aten.native_layer_norm.default, lambda *given: (*given[:4], 1e-3)),
    "branches swapped": Plant(update, aten.where.self, lambda c, x, y: (c, y, x)),
    "after a draw": Plant(drawn, aten.sub.Tensor, lambda x, y: (y, x)),
    "an index": Plant(drawn, aten.argmax.default, lambda x, *rest: (x, 0)),
    "a half type": Plant(half, aten.exp.default, lambda x: (x,), aten.sin.default),
}
PROGRAM = """
import torch
from mlirc.dialects.core.context import context
from mlirc.dialects.core.dialect import IMPORTS
with context():
    rule = IMPORTS[torch.ops.aten.sub.Tensor]
    IMPORTS[torch.ops.aten.sub.Tensor] = lambda g, x, y: rule(g, y, x)
torch.compile(lambda x, y: (x - y).exp(), backend="mlirc")(torch.randn(3, 4), torch.randn(3, 4))
"""
FUNCTIONS = (rows, columns, normal, update, drawn, half)


@pytest.fixture(autouse=True, scope="module")
def imports_are_complete():
    with context():
        pass


def captured(function, folder):
    torch.manual_seed(2)
    with torch.no_grad():
        options = {"dump": folder, "cache": False, "fallback": "error"}
        torch.compile(function, backend="mlirc", options=options)(torch.randn(6, 6), torch.randn(6, 6))
    (path,) = folder.glob("*_import.mlir")
    return path, path.with_name("000_inference_inputs.safetensors")


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    return captured(rows, tmp_path_factory.mktemp("right"))


@pytest.mark.thinned(4)
@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS)
def test_the_operator_is_named(plant, monkeypatch, tmp_path):
    rule = IMPORTS[plant.instead or plant.target]
    wrong = lambda g, *given, **named: rule(g, *plant.change(*given), **named)
    monkeypatch.setitem(IMPORTS, plant.target, wrong)
    path, inputs = captured(plant.function, tmp_path)
    line = plant.function.__code__.co_firstlineno
    done = run("run", path, "--inputs", inputs, "--check-each-pass", "--target", "interpreter")
    said = done.stderr.splitlines()[-1]
    found = re.search(
        r"the import is wrong, of (\S+) '\w+' \(.*test_wrong_imports\.py:(\d+)\): (result|argument) \d", said
    )
    assert done.exit_code == 1 and found and found[1] == str(plant.target), done.stderr
    assert line < int(found[2]) <= line + 3 and re.search(r"error \S+, where \S+ is allowed", said), said


def test_bisect_names_it(monkeypatch, tmp_path):
    rule = IMPORTS[aten.sub.Tensor]
    monkeypatch.setitem(IMPORTS, aten.sub.Tensor, lambda g, x, y: rule(g, y, x))
    path, inputs = captured(rows, tmp_path)
    arguments = [
        "bisect",
        path,
        "-p",
        "canonicalize",
        "--inputs",
        inputs,
        "--target",
        "interpreter",
        "-o",
        tmp_path / "b.mlir",
    ]
    said = good(*arguments).stdout
    assert re.match(r"The import is wrong, of aten.sub.Tensor 'sub' \(.*\d\): result 0 at ", said)
    command = re.search(r"It is shown by\n  mlirc (run .*)\n", said)
    assert command and "the import is wrong" in run(*shlex.split(command[1])).stderr


def test_of_a_program_what_shows_it_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM)
    said = good("bisect", "program.py", "--target", "interpreter").stdout
    assert said.startswith("Of program.py it is graph 0, of program.py:8: the import is wrong, of aten.sub.Tensor"), (
        said
    )
    command = re.search(r"It is shown by\n  mlirc (run .*)\n", said)
    assert command and "the import is wrong" in run(*shlex.split(command[1])).stderr
    assert len(list((tmp_path / "bisected").iterdir())) == 3


@pytest.mark.thinned(4)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_what_is_imported_right_is_said_to_be(function, tmp_path):
    path, inputs = captured(function, tmp_path)
    done = good("run", path, "--inputs", inputs, "-p", "canonicalize", "--check-each-pass", "--target", "interpreter")
    assert "import: right, compared with 000_inference_aten.py in float64\n" in done.stderr
    done = good("run", path, "--random", "3", "-p", "canonicalize", "--check-each-pass", "--target", "interpreter")
    assert "import: right" in done.stderr


MARK = "made_by_a_graph"
SYSTEM = f"__import__('os').system('touch {MARK}')"
HOSTILE = {
    "a call of Python": f"sub = {SYSTEM}",
    "in an argument": f"sub = torch.ops.aten.sub.Tensor(arg0_1, {SYSTEM})",
    "in an annotation": f"sub: {SYSTEM} = {SYSTEM}",
    "an attribute": "sub = torch.ops.aten.sub.Tensor.__class__.__base__.__subclasses__()",
    "of a tensor": f"sub = arg0_1.numpy().tofile('{MARK}')",
    "beyond torch.ops": f"sub = torch.save(arg0_1, '{MARK}')",
    "of torch": "sub = torch.ops.aten.sub.Tensor(arg0_1, torch.hub)",
    "beyond the overload": "sub = torch.ops.aten.sub.Tensor.decompose(arg0_1, arg1_1)",
    "a file": f"sub = torch.ops.aten.from_file.default('{MARK}', True, 36)",
    "a pickle": f"sub = torch.ops.aten.save.default(arg0_1, '{MARK}')",
    "memory": "sub = torch.ops.aten.set_.source_Tensor(arg0_1, arg1_1)",
    "another library": "sub = torch.ops.profiler._record_function_enter_new.default('a')",
    "no such overload": "sub = torch.ops.aten.sub.Nothing(arg0_1, arg1_1)",
    "a loop": "for x in [1]: pass",
    "an import": "import os",
    "a function": f"sub = (lambda: {SYSTEM})()",
    "a comprehension": f"sub = [{SYSTEM} for x in [1]]",
    "a string that computes": f'sub = torch.ops.aten.sub.Tensor(arg0_1, f"{{{SYSTEM}}}")',
    "a walrus": f"sub = (x := {SYSTEM})",
    "an attribute that is assigned": f"torch.ops = {SYSTEM}",
    "unpacked": f"sub = torch.ops.aten.sub.Tensor(*{SYSTEM})",
    "numbers without end": "sub = 9223372036854775807 * 9223372036854775807 * 9223372036854775807",
    "a list without end": "sub = [0] * 999999999999",
    "a power": "sub = 9 ** 9 ** 9 ** 9",
    "deep": f"sub = {'-' * 5000}1",
    "nested": f"sub = {'(' * 5000}1{')' * 5000}",
    "a name that is not there": "sub = nothing",
    "a zero": "sub = 1 % 0",
    "a warning": "sub = arg0_1 if 1 is '\\d' else arg1_1",
    "no text": "sub = '\0'",
}


@pytest.mark.parametrize("how", HOSTILE)
def test_a_hostile_graph_is_refused_and_not_executed(how, right, monkeypatch, tmp_path):
    path, text = right[0], right[0].with_name("000_inference_aten.py").read_text()
    copy = tmp_path / path.name
    copy.write_text(path.read_text())
    changed = re.sub(r"sub: .*", lambda _: HOSTILE[how], text, count=1)
    assert changed != text
    (tmp_path / "000_inference_aten.py").write_text(changed)
    monkeypatch.chdir(tmp_path)
    done = good("run", copy, "-p", "canonicalize", "--check-each-pass", "--target", "interpreter")
    said = [line for line in done.stderr.splitlines() if "no reference of the import stage: " in line]
    assert len(said) == 1 and done.stdout == "right after each pass\n", done.stderr
    assert sorted(os.listdir(tmp_path)) == sorted([path.name, "000_inference_aten.py"])


@pytest.mark.parametrize(
    "text", ["", "import os", "class A:\n  pass", "class A(B):\n  def forward(self, *x):\n    return (x,)", "\xff("]
)
def test_what_is_no_graph_is_refused(text, right, tmp_path):
    copy = tmp_path / right[0].name
    copy.write_text(right[0].read_text())
    (tmp_path / "000_inference_aten.py").write_bytes(text.encode("latin-1"))
    done = good("run", copy, "-p", "canonicalize", "--check-each-pass", "--target", "interpreter")
    assert "no reference of the import stage: " in done.stderr


def test_a_record_that_is_no_record_is_refused(right, tmp_path):
    for name in (right[0].name, "000_inference_aten.py"):
        (tmp_path / name).write_text(right[0].with_name(name).read_text())
    (tmp_path / "000.json").write_text('{"inputs_of": [7, "x"]}')
    done = good("run", tmp_path / right[0].name, "-p", "canonicalize", "--check-each-pass", "--target", "interpreter")
    assert "no reference of the import stage: the record of " in done.stderr

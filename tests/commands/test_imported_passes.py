"""Passes that --import brings and that are wrong: the line says what is wrong, and where in their file."""

import textwrap

import pytest

from mlirc.lowering.pipeline.pass_manager import passes, register
from tests.commands.command import bad, good

X = "tensor<4xf32>"
GRAPH = f"""
func.func @graph(%x: {X}) -> {X} {{
  %0 = "mlirc.exp"(%x) : ({X}) -> {X}
  return %0 : {X}
}}"""

PASS = """
from dataclasses import dataclass
from mlirc.ir import create, ir
from mlirc.passes import register

def helper(values):
    return None in values  # line 7

@register
@dataclass(frozen=True)
class Wrong:
    \"\"\"Wrong.\"\"\"
    name = "wrong"
    takes = "graph"
    def run(self, function, ledger):
        for op in list(function.regions[0].blocks[0].operations):
            if op.operation.name == "mlirc.exp":
                with ir.InsertionPoint(op), op.location:
                    BODY  # line 19
"""


@pytest.fixture
def file(tmp_path):
    yield tmp_path / "wrong.py"
    passes().pop("wrong", None)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('create("max", list(op.operands), [op.results[0].type])', "the dialect has no op 'mlirc.max', at wrong.py:19"),
        ("op.no_such_name", "'no_such_name', at wrong.py:19"),
        ("[][0]", "IndexError: list index out of range, at wrong.py:19"),
        ("helper(list(op.operands))", ", at wrong.py:7"),
    ],
)
def test_a_pass_that_raises_is_told_with_its_line(file, body, said):
    file.write_text(PASS.replace("BODY", body))
    line = bad("opt", "-", "-p", "wrong", "--import", file, text=GRAPH)
    assert line.startswith("main opt: pass 'wrong' failed at mlirc.exp ") and line.endswith(f"{said}\n")


def test_an_error_of_a_pass_of_ours_has_no_line_of_python():
    assert ".py:" not in bad("opt", "-", "-p", "plan-memory", text=GRAPH)


@pytest.mark.parametrize("key", ["takes", "gives"])
def test_a_form_that_there_is_not(file, key):
    file.write_text(PASS.replace('takes = "graph"', f'{key} = "grph"'))
    line = bad("opt", "-", "-p", "wrong", "--import", file, text=GRAPH, code=2)
    assert f"Wrong.{key}: no form 'grph'; did you mean 'graph'?" in line and "wrong" not in passes()


@pytest.mark.parametrize("form", ["graph", "kernel", "memory", "lowered"])
def test_each_form_can_be_taken(file, form):
    exec(compile(PASS.replace('"graph"', f'"{form}"'), str(file), "exec"), {"__name__": "wrong"})
    assert passes()["wrong"].takes == form and register(passes()["wrong"])


def test_a_difference_shows_the_op_that_was_added(file):
    """Of two ops that are alike but for their operands, the one that the pass made."""
    body = (
        'made = create("abs", list(op.operands), [op.results[0].type]); op.results[0].replace_all_uses_with(made.out)'
    )
    file.write_text(PASS.replace("BODY", body))
    ops = [("abs", "x"), ("exp", "0"), ("abs", "1"), ("sin", "2")]
    lines = "\n".join(f'  %{k} = "mlirc.{name}"(%{x}) : ({X}) -> {X}' for k, (name, x) in enumerate(ops))
    graph = f"func.func @graph(%x: {X}) -> {X} {{\n{lines}\n  return %3 : {X}\n}}"
    text = good(
        "opt", "-", "-p", "wrong", "--import", file, "--diff", "-o", "/dev/null", text=textwrap.dedent(graph)
    ).stderr
    changed = [line[:19] for line in text.splitlines() if line[0] in "-+~"]
    assert changed == ['+ %1 = "mlirc.abs"(', '~ %3 = "mlirc.abs"(']


def test_an_import_that_raises_is_told_with_its_line(file):
    file.write_text("import os\n\n\ndef f():\n    return {}['boom']\n\n\nf()\n")
    line = bad("opt", "-", "-p", "cse", "--import", file, text=GRAPH, code=2)
    assert line == f"main opt: --import {file}: KeyError: 'boom', at wrong.py:5\n"


def test_an_import_that_registers_no_pass(file):
    file.write_text(PASS.replace("@register\n", ""))
    line = bad("opt", "-", "-p", "wrong", "--import", file, text=GRAPH, code=2)
    assert line.endswith(f"; --import {file} registered none: decorate it with mlirc.passes.register\n")


def test_an_import_that_registers_another_pass_has_no_hint(file):
    file.write_text(PASS.replace("BODY", "pass"))
    line = bad("opt", "-", "-p", "wrongly", "--import", file, text=GRAPH, code=2)
    assert "did you mean 'wrong'?" in line and "registered none" not in line

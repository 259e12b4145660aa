"""Where there is no float64 to compare with, check_each_pass says so, and why."""

import torch

from mlirc.dialects.core.context import context
from mlirc.execution.each_pass import check_each_pass
from mlirc.ir import ir

SUM = """func.func @graph(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = "mlirc.neg"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}"""


def first_line(text, x):
    lines = []
    with context():
        check_each_pass(ir.Module.parse(text), "canonicalize", [x], False, lines.append)
    return lines[0]


def test_it_says_what_it_compares_with():
    assert first_line(SUM, torch.ones(8)) == "as given: compared with float64"


def test_it_says_why_there_is_no_float64(monkeypatch):
    from mlirc.execution import accuracy

    def refuse(x):
        raise RuntimeError("not\n for double")

    monkeypatch.setattr(accuracy, "widened", refuse)
    line = first_line(SUM, torch.ones(8))
    assert line.endswith("not with float64: in float64 it raises RuntimeError: not for double")
    monkeypatch.undo()
    monkeypatch.setattr(accuracy, "in_float64", lambda module: None)
    assert "not with float64: float64 would mean something else" in first_line(SUM, torch.ones(8))

"""Where there is no float64 to compare with, check_each_pass says so, and why."""

import torch

from mlirc.dialects.core.context import context
from mlirc.execution.accuracy import Expectation
from mlirc.execution.each_pass import _blamed, check_each_pass
from mlirc.execution.modules import interpret
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


DRAWS = """func.func @graph(%x: tensor<64xf32>) -> tensor<64xf32> {
  %0 = "mlirc.exp"(%x) : (tensor<64xf32>) -> tensor<64xf32> loc("model.py":1:1)
  %1:2 = "mlircx.aten_effect"(%0) {aliases = "-1, -1", args = "[{\\22$\\22: 0}, 0.5, true]", op = "aten.native_dropout.default"}
    : (tensor<64xf32>) -> (tensor<64xf32>, tensor<64xi1>) loc("model.py":2:1)
  %2 = "mlirc.neg"(%1#0) : (tensor<64xf32>) -> tensor<64xf32> loc("model.py":3:1)
  return %2 : tensor<64xf32>
}"""


def test_what_draws_at_random_draws_the_same_in_float64():
    """An operator that draws keeps its dtype: a draw in float64 would be another."""
    x = torch.randn(64)
    assert first_line(DRAWS, x) == "as given: compared with float64"
    with context():
        module = ir.Module.parse(DRAWS)
        torch.manual_seed(3)
        assert check_each_pass(module, "canonicalize,cse,to-kernels,plan-memory", [x], False) is None


def test_a_small_error_before_a_draw_is_named_where_it_is():
    """Without float64, an error of a thousandth passed for rounding, and a later op was blamed."""
    with context():
        wrong = ir.Module.parse(
            DRAWS.replace(
                '"mlirc.exp"(%x) : (tensor<64xf32>) -> tensor<64xf32>',
                '"mlirc.expm1"(%x) : (tensor<64xf32>) -> tensor<64xf32>',
            )
        )
        expected = Expectation(ir.Module.parse(DRAWS), [torch.full((64,), 8.0)])
        found = expected.compare(interpret(wrong, [torch.full((64,), 8.0)]))
        assert found is not None
        blamed = _blamed(ir.Module.parse(DRAWS), wrong, [torch.full((64,), 8.0)], found, None)
    assert blamed == "mlirc.expm1 (model.py:1:1)"


class Threads:
    """Notes how many threads PyTorch has while the interpreter runs."""

    def __init__(self):
        self.seen = set()

    def before(self, op, operands):
        self.seen.add(torch.get_num_threads())

    def after(self, op, values, held):
        pass


def test_small_tensors_are_interpreted_by_one_thread():
    """A wait for threads in each of thousands of operators takes longer than all else."""
    threads, large = torch.get_num_threads(), SUM.replace("8xf32", "40000xf32")
    try:
        torch.set_num_threads(2)
        for text, size, expected in ((SUM, 8, 1), (large, 40_000, 2)):
            seen = Threads()
            with context():
                interpret(ir.Module.parse(text), [torch.ones(size)], seen)
            assert seen.seen == {expected} and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)

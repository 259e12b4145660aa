"""Inputs that PyTorch computes on with several threads: a forked process has none of its parent's."""

import os

from tests.forked_programs import COMMANDS, python

LARGE = """func.func @graph(%x: tensor<40000xf32>) -> tensor<40000xf32> {
  %0 = "mlirc.cos"(%x) : (tensor<40000xf32>) -> tensor<40000xf32>
  %1 = "mlirc.exp"(%0) : (tensor<40000xf32>) -> tensor<40000xf32>
  return %1 : tensor<40000xf32>
}"""
PARENT = """
import torch
from mlirc.execution.isolated import isolated

torch.set_num_threads(2)
work = lambda tell: float(torch.ones(1 << 20).sin().sum())
assert abs(work(None) - isolated(work, 60)) < 1
"""


def test_each_pass_is_checked_on_them(tmp_path):
    (tmp_path / "large.mlir").write_text(LARGE)
    done = python(
        "-m", "mlirc", "run", "large.mlir", "--pipeline", "cpu", "--check-each-pass",
        cwd=tmp_path, imported=COMMANDS, env=os.environ | {"OMP_NUM_THREADS": "2"},
    )  # fmt: skip
    assert done.returncode == 0 and "right after each pass" in done.stdout, done.stderr


def test_a_parent_that_has_computed_with_threads():
    done = python("-c", PARENT, imported=COMMANDS)
    assert done.returncode == 0, done.stderr

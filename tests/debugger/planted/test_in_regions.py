"""Planted bugs within branches and steps of loops: named down to the rewrite and its source line, as in a graph without any."""

import re

import pytest
import torch
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from tests.debugger.planted.patches import PATCHES
from tests.debugger.planted.test_bisected import CPU, forked, module_file

__all__ = ["module_file"]


def branch(x, y):
    return torch.cond(x.sum() > 1e9, lambda x, y: x + y, lambda x, y: x.cos() * 2 - y, (x, y))


def chosen(x, y):
    return torch.cond(x.sum() > 1e9, lambda x, y: x + y, lambda x, y: torch.where(x > y, x, y * 2), (x, y))


def loop(x, y):
    step = lambda i, x, y: (i + 1, (x.softmax(1) - y).contiguous(), y.clone())
    return while_loop(lambda i, x, y: i < 3, step, (torch.tensor(0), x, y))[1]


def steps(x, y):
    return scan(lambda c, x: (c * 0.5 + (x - c).exp().sum(), c.clone()), x[0], y)[0]


def siblings(x, y):
    return while_loop(lambda i, x, y: i < 2, lambda i, x, y: (i + 1, y.sin(), y.cos() - x), (torch.tensor(0), x, y))[1]


BUGS = [  # the mistake, in what, the pass, its rewrite
    ("wrong fold", branch, "fold-constants", "mlirc.mul"),
    ("wrong expansion", loop, "decompose", "mlirc.softmax"),
    ("bad mask", chosen, "to-kernels", "mlirc.gt"),
    ("results exchanged", siblings, "fuse-horizontally", "-> "),
    ("maximum for sum in a fused row", steps, "fuse-elementwise", "-> "),
]


@pytest.mark.parametrize(
    ("name", "given", "culprit", "rewrite"),
    [pytest.param(*bug, id=bug[0], marks=[pytest.mark.full] if 0 < k < 4 else []) for k, bug in enumerate(BUGS)],
)
def test_the_rewrite_in_a_region_is_named(name, given, culprit, rewrite, module_file, tmp_path):
    patch, small = tmp_path / "patch.py", tmp_path / "small.mlir"
    patch.write_text(PATCHES[name])
    path = module_file(given)
    inputs = path.with_name(path.name.replace("_0_import.mlir", "_inputs.safetensors"))  # of which loops run
    words = [path, *CPU.split(), "--import", patch, "--target", "interpreter", "--inputs", inputs]
    code, _, said = forked("run", *words, "--check-each-pass")
    assert code == 1 and f"'{culprit}" in said and "changed the answer" in said, said
    code, told, said = forked("bisect", *words, "-o", small, "--no-reduce")
    assert code == 0 and told.startswith("The answer is wrong") and f"The pass is '{culprit}" in told, told + said
    found = re.search(r"The rewrite is number (\d+)[^:]*: (.*)", told)
    first = given.__code__.co_firstlineno
    assert found and rewrite in found[2], told
    where = re.search(r"test_in_regions\.py:(\d+)", found[2])
    assert where and first < int(where[1]) <= first + 2, told

"""Mistakes that normal numbers of one size do not show: each is named, with no other help than the module."""

import re

import pytest
import torch
from safetensors.torch import save_file
from torch._higher_order_ops.while_loop import while_loop

from mlirc.execution.random_inputs import KINDS, other_inputs
from mlirc.ir import context, ir
from tests.commands.command import good
from tests.debugger.planted.patches import PATCHES
from tests.debugger.planted.test_bisected import alone, forked

ANY = 'tensor<?x?xf32, {size = "s0, s1"}>'
EVEN = f"""func.func @graph(%x: {ANY}, %y: {ANY}) -> {ANY} {{
  %0 = "mlirc.add"(%x, %y) : ({ANY}, {ANY}) -> {ANY}
  %1 = "mlirc.exp"(%0) : ({ANY}) -> {ANY}
  return %1 : {ANY}
}}"""

BYTES, WORDS = "tensor<6x37xi8>", "tensor<6x37xi32>"
SIGNED = f"""func.func @graph(%x: {BYTES}) -> {WORDS} {{
  %0 = "mlirc.cast"(%x) : ({BYTES}) -> {WORDS}
  return %0 : {WORDS}
}}"""


def attention(x, y):
    return torch.nn.functional.scaled_dot_product_attention(x[None, None], y[None, None], (x + y)[None, None])


def place(x, y):
    return x.argmax(1), y.argmin(0)


def highest(x, y):
    return (x * 3).amax(-1)


def zero(x, y):
    return x + 0.0, y * 2


def sign(x, y):
    return torch.copysign(y, x + 0.0)


def chosen(x, y):
    return torch.where(x > 0, x, y * 3).sum(-1)


def loop(x, y):
    step = lambda i, x, y: (i + 1, (x @ y).tanh() + x, (y - x @ x.t()).sin())
    return while_loop(lambda i, x, y: i < 3, step, (torch.tensor(0), x, y))[1:]


BUGS = [  # the mistake, in what, columns, which step, whether bisect finds it in the passes: the rewrite
    ("off by one where a size is even", EVEN, 0, "fuse-elementwise", "add -> exp"),
    ("a maximum begins at zero", highest, 37, "machine code", "amax"),
    ("zero is neutral of a sum", zero, 6, "fold-constants", "mlirc.add"),
    ("zero is neutral of a sum", sign, 6, "fold-constants", "mlirc.add"),
    ("a mask inverted in the tail", chosen, 37, "machine code", "gt"),
    ("sign lost", SIGNED, 0, "machine code", "cast"),
    ("scale lost", attention, 37, "machine code", "attention"),
    ("least for greatest", place, 37, "machine code", "arg"),
    ("stale buffer in a loop", loop, 6, "plan-memory", "the plan"),
]


def written(given, columns, folder):
    if isinstance(given, str):
        (folder / "given.mlir").write_text(given)
        return folder / "given.mlir"
    torch._dynamo.reset()
    options = {"dump": folder, "fallback": "error", "cache": False}
    with torch.no_grad():
        torch.compile(given, backend="mlirc", options=options, dynamic=False)(
            torch.randn(6, columns), torch.randn(6, columns)
        )
    (path,) = folder.glob("*_import.mlir")
    return path


@pytest.mark.thinned(5)
@pytest.mark.parametrize(("name", "given", "columns", "step", "rewrite"), BUGS)
def test_the_pass_is_named(name, given, columns, step, rewrite, tmp_path):
    path = written(given, columns, tmp_path)
    (tmp_path / "patch.py").write_text(PATCHES[name])
    code, _, said = forked("run", path, "--import", tmp_path / "patch.py", "--check-each-pass")
    named = "machine code" if step == "machine code" else f"pass \\d+, '{step}',"
    assert code == 1 and re.search(f"{named} changed the answer", said), said


@pytest.mark.full
@pytest.mark.parametrize(("name", "given", "columns", "step", "rewrite"), BUGS)
def test_the_rewrite_is_named(name, given, columns, step, rewrite, tmp_path):
    path, small = written(given, columns, tmp_path), tmp_path / "small.mlir"
    (tmp_path / "patch.py").write_text(PATCHES[name])
    code, told, said = forked("bisect", path, "--import", tmp_path / "patch.py", "-o", small)
    assert code == 0 and f"The pass is '{step.replace('machine code', 'lower-kernels')}'" in told, told + said
    assert re.search(rf"The rewrite is number \d+.*: .*{re.escape(rewrite)}", told), told
    command = [word.strip('"') for word in told.splitlines()[-1].split()[1:]]
    code, _, shown = forked(*command)
    assert code == 1, shown


@pytest.mark.parametrize("of", ["a file", pytest.param("a program's first call", marks=pytest.mark.full)])
def test_given_inputs_that_show_nothing(of, tmp_path):
    (tmp_path / "patch.py").write_text(PATCHES["a maximum begins at zero"])
    if of == "a file":
        path = written(highest, 37, tmp_path)
        save_file({"arg0": torch.rand(6, 37)}, tmp_path / "positive.safetensors")
        words = [path, "--inputs", tmp_path / "positive.safetensors"]
    else:
        lines = "@torch.compile\ndef f(x):\n    return (x * 3).amax(-1)\n\nwith torch.no_grad():\n    f(torch.rand(6, 37))\n"
        (tmp_path / "program.py").write_text(f"import torch\n\n{lines}")
        words = [tmp_path / "program.py"]
    options = ["--import", tmp_path / "patch.py", "--no-reduce", "-o", tmp_path / "small.mlir"]
    code, told, said = forked("bisect", *words, *options)
    assert code == 0 and "with negative numbers, drawn:" in said, told + said
    assert "The pass is 'lower-kernels'" in told and "amax" in told, told
    assert ("program.py it is graph 0" in told) == (of != "a file")


def test_a_hidden_key_that_is_not_a_number_is_no_bug(tmp_path):
    """Which keys are read follows from what is known of the mask: no NaN is drawn for attention."""
    (tmp_path / "causal.mlir").write_text(alone("simplify/simplify-attention.mlir", "causal"))
    done = good("run", tmp_path / "causal.mlir", "--check-each-pass")
    assert "simplify-attention: right" in done.stderr and "with special numbers: right" in done.stderr


def test_what_kinds_there_are():
    """Sizes differ in parity, numbers in what they hold; a parameter is finite."""
    with context():
        module = ir.Module.parse(EVEN.replace(f"%y: {ANY}", f"%y: {ANY} {{mlirc.parameter}}"))
        found = dict(other_inputs(module, 0))
        (integers,) = dict(other_inputs(ir.Module.parse(SIGNED), 0))["negative"]
    assert found.keys() == KINDS.keys()
    assert (integers < 0).all()
    x, y = found["negative"]
    assert (x < 0).all() and (y < 0).all() and x.shape[0] % 2 == 0
    x, y = found["special"]
    assert x.isnan().any() and x.isinf().any() and not x.isfinite().all() and y.isfinite().all()
    for value in (x, y):
        zeros = value[value == 0].signbit()
        assert zeros.any() and not zeros.all()

"""The programs in examples/ do what they say, in fewer than 120 lines; an experiment has a page that explains it."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_is_short_and_has_a_test(file):
    assert len(file.read_text().splitlines()) < 120
    assert f"test_{file.stem}" in globals()
    assert "@register" not in file.read_text() or file.with_suffix(".md").is_file()


def test_train_gpt():
    module = load("train_gpt")
    losses = module.main(60)
    assert losses[-1] < 0.7 * losses[0]


def test_serve_resnet():
    assert max(load("serve_resnet").main()) < 1e-5


def test_custom_op():
    """In a process of its own: ops are defined before the first graph is compiled."""
    program = "import custom_op, torch; r = custom_op.main(); torch.testing.assert_close(*r['gradients']); assert not r['aten']"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT / "examples", check=True, timeout=300)


def test_join_matmuls():
    difference, entries = load("join_matmuls").main()
    assert difference < 1e-6
    assert [(entry["subject"], entry["rule"], entry["taken"]) for entry in entries] == [
        ("3 matmuls", "SAME ROWS", True)
    ]


ROWS, WEIGHT = "tensor<8x4xf32>", "tensor<4x4xf32>"
JOINED = {
    "two": ("%p0 = {matmul}(%x, %w)\n%p1 = {matmul}(%x, %v)\n", "%p0, %p1", 1),
    "other rows": ("%p0 = {matmul}(%x, %w)\n%p1 = {matmul}(%y, %v)\n", "%p0, %p1", 2),
    "five": ("".join(f"%p{k} = {{matmul}}(%x, %w)\n" for k in range(5)), "%p0, %p1, %p2, %p3, %p4", 2),
    "computed weight": (
        '%s = "mlirc.exp"(%v) : ({w}) -> {w}\n%p0 = {matmul}(%x, %w)\n%p1 = {matmul}(%x, %s)\n',
        "%p0, %p1",
        2,
    ),
    "written weight": (
        '%p0 = {matmul}(%x, %w)\n%p1 = {matmul}(%x, %v)\n"mlirc.assign"(%v, %w) : ({w}, {w}) -> ()\n',
        "%p0, %p1",
        2,
    ),
}


@pytest.mark.parametrize("returned", [False, True], ids=["read", "returned"])
@pytest.mark.parametrize("case", JOINED)
def test_which_products_join_matmuls_takes(case, returned):
    """What is joined computes the same; a product that the graph returns keeps its strides, and so stays."""
    import torch

    from mlirc.execution.modules import interpret
    from mlirc.ir import context, ir
    from mlirc.passes import run_pipeline

    load("join_matmuls")
    body, results, left = JOINED[case]
    names = results.split(", ")
    lines = body.replace("{w}", WEIGHT)
    lines = "".join(
        line.replace("{matmul}", '"mlirc.matmul"')
        + (f" : ({ROWS}, {WEIGHT}) -> {ROWS}" if "{matmul}" in line else "")
        + "\n"
        for line in lines.splitlines()
    )
    if not returned:
        lines += "".join(f'{name}r = "mlirc.exp"({name}) : ({ROWS}) -> {ROWS}\n' for name in names)
        names = [f"{name}r" for name in names]
    types = ", ".join([ROWS] * len(names))
    groups = ", ".join(f'"g{k}"' for k in range(len(names)))
    text = (
        (
            f"func.func @graph(%x: {ROWS}, %y: {ROWS}, %w: {WEIGHT} {{mlirc.parameter}}, %v: {WEIGHT} {{mlirc.parameter}})\n"
            f"-> ({types}) attributes {{mlirc.results = [{groups}]}} {{\n{lines}return {', '.join(names)} : {types}\n}}"
        )
        .replace("%1r", "%r1")
        .replace("%2r", "%r2")
        .replace("%3r", "%r3")
        .replace("%4r", "%r4")
    )
    torch.manual_seed(0)
    inputs = [torch.randn(8, 4), torch.randn(8, 4), torch.randn(4, 4), torch.randn(4, 4)]
    with context():
        before, after = ir.Module.parse(text), ir.Module.parse(text)
        run_pipeline(after, "join-matmuls,canonicalize")
        assert str(after).count("mlirc.matmul") == (str(before).count("mlirc.matmul") if returned else left)
        for got, expected in zip(interpret(after, inputs).results, interpret(before, inputs).results, strict=True):
            torch.testing.assert_close(got, expected)

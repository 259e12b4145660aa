"""Planted bugs: `mlirc run --check-each-pass` names the pass that changed the answer, and the op where one did it."""

import re
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from tests.commands.command import bad, good
from tests.debugger.planted.patches import PATCHES
from tests.debugger.planted.test_bisected import forked
from tests.forked_programs import COMMANDS, python

ABORT = """
import os
from mlirc.lowering.passes.fuse.to_kernels import ToKernels

ToKernels.run = lambda *given: os.abort()
"""
PASSES = Path(__file__).parent / "passes.py"


def wave(x, y):
    return (x.cos() * 2 - y).exp() - x


def rows(x, y):
    return (x - y).exp().sum(1, keepdim=True) + x.neg()


def sliced(x, y):
    return x.view(-1)[2:34].exp() + y.view(-1)[2:34].sin()


def product(x, y):
    return (x @ y).relu() + y


def update(x, y):
    x.mul_(2)
    return x + y.exp()


def chain(x, y):
    return (x @ y) @ (y @ x)


def transposed(x, y):
    x.copy_(x.t())
    return x + y


def doubled(x, y):
    x.mul_(2)
    return y.exp()


def written(x, y):
    x[1:5].copy_(x[1:5] + y[:4])
    return y.exp()


@dataclass(frozen=True)
class Plant:
    """A wrong pass, after which anchor of which pipeline, on the graph of a function, and the op that is named."""

    name: str
    anchor: str
    function: object
    op: str
    stage: str = "import"


PLANTS = [
    Plant("swap-operands", "decompose", wave, "mlirc.sub"),
    Plant("wrong-fold", "fold-constants#2", wave, "mlirc.mul"),
    Plant("sine-for-cosine", "hoist-gathers", wave, "mlirc.sin"),
    Plant("forget-negation", "simplify", rows, ""),
    Plant("wrong-view", "simplify", sliced, "mlirc.view"),
    Plant("square-product", "simplify", product, "mlirc.matmul"),
    Plant("forget-update", "simplify", update, "mlirc.assign"),
    Plant("forget-update", "hoist-parameters", update, "mlirc.assign"),
    Plant("wrong-fold", "fold-constants#2", doubled, "mlirc.mul"),
    Plant("wrong-epilogue", "to-kernels", written, "mlircx.kernel"),
    Plant("wrong-epilogue", "plan", written, "mlircx.launch"),
    Plant("wrong-map", "lower", written, "mlircx.run"),
    Plant("swap-operands", "simplify", rows, "mlirc.sub"),
    Plant("wrong-map", "to-kernels", wave, "mlircx.kernel"),
    Plant("wrong-map", "fuse-elementwise", wave, "mlircx.kernel"),
    Plant("maximum-for-sum", "fuse-reductions", rows, "mlircx.kernel"),
    Plant("wrong-epilogue", "fuse-reductions", product, "mlircx.kernel"),
    Plant("wrong-epilogue", "eliminate-dead", rows, "mlircx.kernel"),
    Plant("yield-before-last", "to-kernels", wave, "mlircx.kernel"),
    Plant("forget-update", "elide-copies", update, "mlirc.assign"),
    Plant("overlapping-buffers", "plan", chain, ""),
    Plant("lose-copy", "plan", transposed, ""),
    Plant("wrong-output", "plan", product, "mlircx.call"),
    Plant("wrong-epilogue", "plan", product, "mlircx.launch"),
    Plant("wrong-map", "plan", wave, "mlircx.launch"),
    Plant("maximum-for-sum", "plan", rows, "mlircx.launch"),
    Plant("maximum-for-sum", "lower", rows, "mlircx.run"),
    Plant("wrong-map", "lower", wave, "mlircx.run"),
    Plant("wrong-epilogue", "plan", product, "mlircx.launch", stage="plan"),
    Plant("wrong-map", "fuse", wave, "mlircx.kernel", stage="fuse"),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The dump of a function's graph after a stage."""
    made = {}

    def file(function, stage):
        if function not in made:
            made[function] = tmp_path_factory.mktemp(function.__name__)
            options = {"dump": made[function], "fallback": "error", "cache": False}
            with torch.no_grad():
                torch.compile(function, backend="mlirc", options=options)(torch.randn(6, 6), torch.randn(6, 6))
        (path,) = made[function].glob(f"*_{stage}.mlir")
        return path

    return file


@pytest.mark.thinned(15)
@pytest.mark.parametrize("plant", PLANTS, ids=lambda p: f"{p.name} after {p.anchor} in {p.function.__name__}")
def test_the_pass_is_named(plant, files):
    path = files(plant.function, plant.stage)
    arguments = ["run", path, "--pipeline", "cpu", "--import", PASSES, "--check-each-pass", "--target", "interpreter"]
    if plant.stage != "import":
        arguments += ["--start-after", plant.stage] if plant.anchor != plant.stage else []
        if plant.anchor == plant.stage:
            arguments = [*arguments[:2], "-p", plant.name, *arguments[4:]]
    if "-p" not in arguments:
        arguments += ["--passes-after", f"{plant.anchor}={plant.name}"]
    line = told(*arguments)
    assert re.search(rf"pass \d+, '{plant.name}', changed the answer", line), line
    if plant.function in (doubled, written):
        assert ": argument 0 at [" in line, line
    assert re.search(r"(result|argument) \d at \[.*\] is .*: error .* is allowed", line), line
    if plant.op:
        first = plant.function.__code__.co_firstlineno
        assert f", by {plant.op}" in line, line
        where = re.search(r"test_planted\.py:(\d+)", line)
        assert where and first < int(where[1]) <= first + 4, line


def test_strides_are_compared(files):
    """The elements are right."""
    path = files(wave, "import")
    common = ["--pipeline", "cpu", "--import", PASSES, "--check-each-pass", "--target", "interpreter"]
    line = told("run", path, *common, "--passes-after", "decompose=other-strides")
    assert re.search(
        r"pass \d+, 'other-strides', changed the answer: result 0 has strides \[1, 6\], not \[6, 1\]", line
    )


def told(*arguments):
    from tests.commands.command import run

    done = run(*arguments)
    assert done.exit_code == 1 and "Traceback" not in done.stderr, (done.output, done.exception)
    return done.stderr.splitlines()[-1]


def test_wrong_code_of_a_right_body_is_told_from_it(files):
    path = files(rows, "import")
    line = told(
        "run", path, "--pipeline", "cpu", "--import", PASSES, "--check-each-pass", "--passes-after", "lower=wrong-code"
    )
    assert "machine code changed the answer: llvm.func" in line and "not the code that lowering makes" in line, line


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(ABORT, r"pass \d+, 'to-kernels', crashed: SIGABRT", id="a pass"),
        pytest.param(
            PATCHES["crash in machine code"],
            "machine code crashed: SIGSEGV; `mlirc bisect`, given the same, names the kernel",
            id="machine code",
        ),
    ],
)
def test_what_crashes_is_named(content, said, files, tmp_path):
    (tmp_path / "patch.py").write_text(content)
    arguments = ["run", files(rows, "import"), "--pipeline", "cpu", "--import", tmp_path / "patch.py"]
    code, shown, steps = forked(*arguments, "--check-each-pass")
    assert (code, shown) == (1, "") and re.fullmatch(f".*: {said}", steps.splitlines()[-1]), steps
    assert "  decompose: no change" in steps.splitlines(), steps


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    "words", [("run", "--check-each-pass"), ("run",), ("opt", "--pipeline", "cpu"), ("bisect", "--no-reduce")]
)
def test_with_traceback_what_crashes_shows_its_stack(words, files, tmp_path):
    (tmp_path / "patch.py").write_text(ABORT)
    command = [words[0], files(rows, "import"), *words[1:], "--import", tmp_path / "patch.py", "--traceback"]
    done = python("-m", "mlirc", *command, cwd=tmp_path, imported=COMMANDS)
    assert done.stderr.count("Fatal Python error: Aborted") == 1, done.stderr
    assert re.search(r'File ".*patch.py", line 5 in <lambda>\n.*pass_manager.py', done.stderr), done.stderr
    assert (
        done.returncode
        == {"run": 1 if len(words) > 1 else -signal.SIGABRT, "opt": -signal.SIGABRT, "bisect": 0}[words[0]]
    )


@pytest.mark.parametrize("function", [wave, rows, sliced, product, update, chain, transposed], ids=lambda f: f.__name__)
@pytest.mark.parametrize("pipeline", ["cpu", "strict"])
@pytest.mark.thinned(4)
def test_without_a_bug_none_is_named(function, pipeline, files):
    path = files(function, "import")
    done = good("run", path, "--pipeline", pipeline, "--check-each-pass", "--random", "3")
    assert done.stdout == "right after each pass, and so is the machine code\n"
    assert "machine code: right" in done.stderr


def test_a_file_that_cannot_be_executed(tmp_path):
    x = "tensor<4xf32>"
    call = 'op = "aten.mm.default", args = "[{\\22$\\22: 0}, {\\22$\\22: 0}]", aliases = "-1"'
    path = tmp_path / "a.mlir"
    path.write_text(
        f'func.func @graph(%x: {x}) -> {x} {{\n  %0 = "mlircx.aten"(%x) {{{call}}} : ({x}) -> {x}\n  return %0 : {x}\n}}\n'
    )
    assert "no random inputs were found" in bad("run", path)

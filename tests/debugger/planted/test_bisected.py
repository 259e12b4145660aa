"""Planted bugs: `mlirc bisect` names the pass and the rewrite, and writes a small module that shows it."""

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from mlirc.bisection.trial import Trials
from mlirc.execution.isolated import Ended, isolated
from mlirc.lowering.pipeline.rewrites import KEPT, Rewrites
from tests.commands.command import run
from tests.debugger.planted.pass_files import PASSES
from tests.debugger.planted.patches import PATCHES
from tests.triton.matmul.test_matmul_passes import text
from tests.triton.test_wrong_modules import TYPE, on_gpu

FILES = Path(__file__).parents[2] / "filecheck"


def wave(x, y):
    return (x.cos() * 2 - y).exp() - x


def rows(x, y):
    return (x - y).exp().sum(1, keepdim=True) + x.neg()


def soft(x, y):
    return x.softmax(1) - y


def sliced(x, y):
    return x.t()[1:5].reshape(-1)[2:14].exp() + y.view(-1)[2:14].sin()


def chosen(x, y):
    return torch.where(x > y, x, y * 2)


def siblings(x, y):
    return x.exp(), x.sin() + y.sum()


def symmetric(x, y):
    product = x @ y
    return (product + product.t()) @ y


def chain(x, y):
    return (x @ y) @ (y @ x)


X, D = "tensor<24x16xbf16>", "tensor<16x16xbf16>"
MERGED = text(
    f"%x: {X}, %v: {D} {{mlirc.parameter}}, %w: {D} {{mlirc.parameter}}",
    f'%0 = "mlirc.matmul"(%x, %v) : ({X}, {D}) -> {X}\n%1 = "mlirc.matmul"(%x, %w) : ({X}, {D}) -> {X}\n'
    f'%2 = "mlirc.sub"(%0, %1) : ({X}, {X}) -> {X}\nreturn %2 : {X}',
    X,
)
SCALAR = text(
    "%x: tensor<8xf32>, %s: SCALAR",
    '%0 = "mlirc.mul"(%x, %s) : (tensor<8xf32>, SCALAR) -> tensor<8xf32>\nreturn %0 : tensor<8xf32>',
    "tensor<8xf32>",
).replace("SCALAR", "tensor<f32>")
PARTS, ROW = 'tensor<4x8xf32, {device = "cuda:0"}>', 'tensor<8xf32, {device = "cuda:0"}>'
BATCHED = f"""func.func @graph(%x: {PARTS}) -> {ROW} {{
  %0, %1 = "mlircx.kernel"(%x) ({{
  ^bb0(%t: {PARTS}):
    %r = "mlirc.read"(%t) {{map = "d0, d1", masked = false}} : ({PARTS}) -> f32
    %e = "mlirc.exp"(%r) : (f32) -> f32
    "mlircx.yield"(%r, %e) {{maps = ["d0, d1", "d0, d1"]}} : (f32, f32) -> ()
  }}) {{parallel = "4, 8", inner = "", label = "parts"}} : ({PARTS}) -> ({PARTS}, {PARTS})
  %2 = FOLD(%0)
  %3 = FOLD(%1)
  %4 = "mlircx.kernel"(%2, %3) ({{
  ^bb0(%t: {ROW}, %u: {ROW}):
    %r = "mlirc.read"(%t) {{map = "d0", masked = false}} : ({ROW}) -> f32
    %s = "mlirc.read"(%u) {{map = "d0", masked = false}} : ({ROW}) -> f32
    %d = "mlirc.sub"(%r, %s) : (f32, f32) -> f32
    "mlircx.yield"(%d) {{maps = ["d0"]}} : (f32) -> ()
  }}) {{parallel = "8", inner = "", label = "difference"}} : ({ROW}, {ROW}) -> {ROW}
  return %4 : {ROW}
}}"""
FOLD = f"""({{
  ^bb0(%t: {PARTS}):
    %r = "mlirc.read"(%t) {{map = "d1, d0", masked = false}} : ({PARTS}) -> f32
    %s = "mlirc.reduce"(%r) {{kind = "sum"}} : (f32) -> f32
    "mlircx.yield"(%s) {{maps = ["d0"]}} : (f32) -> ()
  }}) {{parallel = "8", inner = "4", label = "fold"}} : ({PARTS}) -> {ROW}"""
BATCHED = re.sub(r"FOLD(\(%\d\))", lambda m: f'"mlircx.kernel"{m[1]} {FOLD}', BATCHED)


T = "tensor<8xf32>"
ASSIGNED = f"""func.func @graph(%x: {T}, %y: {T}) -> {T} attributes {{mlirc.results = ["g0"]}} {{
  %0 = "mlirc.neg"(%y) : ({T}) -> {T}
  "mlirc.assign"(%x, %0) : ({T}, {T}) -> ()
  %1 = "mlirc.exp"(%x) : ({T}) -> {T}
  return %1 : {T}
}}"""


TWICE = f"""func.func @graph(%x: {T}) -> ({T}, {T}) {{
  %0 = "mlirc.exp"(%x) : ({T}) -> {T}
  return %0, %0 : {T}, {T}
}}"""


def alone(file, name):
    """One function of a file, as @graph."""
    (found,) = re.findall(rf"^func.func @{name}\b.*?^}}", (FILES / file).read_text(), re.M | re.S)
    return found.replace(f"@{name}", "@graph", 1)


ASSIGNED_ON_A_GPU = ASSIGNED.replace(T, 'tensor<8xf32, {device = "cuda:0"}>')


@dataclass(frozen=True)
class Bug:
    """A mistake, on what, through which pipeline; the pass and what its rewrite is of. `on_gpu`: a function's tensors are put there."""

    name: str
    given: object
    passes: str
    culprit: str
    rewrite: str
    kind: str = "The answer is wrong"
    on_gpu: bool = False

    @property
    def title(self) -> str:
        return f"{self.name} on a GPU" if self.on_gpu or self.given is ASSIGNED_ON_A_GPU else self.name


CPU, GPU = "--pipeline cpu", "--pipeline gpu"
BUGS = [
    Bug("wrong fold", wave, CPU, "fold-constants", "mlirc.mul"),
    Bug("wrong expansion", soft, CPU, "decompose", "mlirc.softmax"),
    Bug("wrong index map", sliced, CPU, "eliminate-views", "mlirc.view", kind=""),
    Bug("swapped operand in a fused kernel", wave, CPU, "fuse-elementwise", "-> "),
    Bug("maximum for sum in a fused row", rows, CPU, "fuse-elementwise", "-> "),
    Bug("results exchanged", siblings, CPU, "fuse-horizontally", "-> "),
    Bug("bad mask", chosen, CPU, "to-kernels", "mlirc.gt"),
    Bug("doubled product", FILES / "fuse/generate-matmuls.mlir", "-p generate-matmuls", "generate-matmuls", "mlirc.matmul"),
    Bug("crash in a fusion", wave, CPU, "fuse-elementwise", "-> ", kind="It crashes: SIGSEGV"),
    Bug("lost copy", ASSIGNED, CPU, "plan-memory", "the plan", kind=""),
    Bug("lost copy", ASSIGNED_ON_A_GPU, "--pipeline gpu", "plan-memory", "the plan", kind=""),
    Bug("lost norm", alone("simplify/fold-convolutions.mlir", "block"), CPU, "fold-convolutions", "convolution"),
    Bug("lost mask", alone("simplify/simplify-attention.mlir", "causal"), CPU, "simplify-attention", "mlirc.attention"),
    Bug("in place where it is read later", alone("fuse/elide-copies.mlir", "stay"), CPU, "elide-copies", "index_add"),
    Bug("results in one memory", TWICE, CPU, "plan-memory", "the plan"),
    Bug("buffer taken where it is read elsewhere", symmetric, CPU, "plan-memory", "mlircx.kernel", kind=""),
    Bug("overlapping buffers", chain, CPU, "plan-memory", "mlirc.matmul", kind=""),
    Bug("swapped operand in a fused kernel", wave, GPU, "fuse-elementwise", "-> ", on_gpu=True),
    Bug("buffer taken where it is read elsewhere", symmetric, GPU, "plan-memory", "mlircx.kernel", kind="", on_gpu=True),
    Bug("overlapping buffers", chain, GPU, "plan-memory", "mlirc.matmul", kind="", on_gpu=True),
    Bug("wrong epilogue", FILES / "simplify/fuse-matmul-epilogue.mlir", "--pipeline gpu", "fuse-matmul-epilogue", "mlirc.mul"),
    Bug("lost bias of patches", FILES / "simplify/patches-to-matmul.mlir", "--pipeline gpu", "patches-to-matmul", "mlircx.aten"),
    Bug("lost padding", FILES / "simplify/space-to-depth.mlir", "--pipeline gpu", "space-to-depth", "mlircx.aten"),
    Bug("lost bias of a row", FILES / "simplify/generate-dot-products.mlir", "--pipeline gpu", "generate-dot-products", "mlirc.addmm"),
    Bug("maximum of parts", FILES / "fuse/split-reductions.mlir", "--pipeline gpu", "split-reductions", "mlircx.kernel"),
    Bug("maximum of batched sums", BATCHED, "-p batch-kernels", "batch-kernels", "mlircx.kernel"),
    Bug("lost edges", FILES / "lower/split-unaligned.mlir", "--pipeline gpu", "split-unaligned", "mlircx.call"),
    Bug("wrong operand of a run", FILES / "lower/lower-triton.mlir", "--pipeline gpu", "lower-triton", "mlircx.launch"),
    Bug("merged results exchanged", MERGED, "--pipeline gpu-frozen", "merge-matmuls", "mlirc.matmul"),
    Bug("another device's number", SCALAR, "--pipeline gpu", "scalars-to-device", "mlirc.mul"),
]  # fmt: skip
ALWAYS = (
    "wrong fold",
    "results in one memory",
    "crash in a fusion",
    "lost copy",
    "merged results exchanged",
)  # the others take long


@pytest.fixture(scope="module")
def module_file(tmp_path_factory):
    """A function's graph as it is imported, IR, or a file."""

    def file(given, n=6):
        folder = tmp_path_factory.mktemp("given")
        if isinstance(given, Path):
            return given
        if isinstance(given, str):
            (folder / "given.mlir").write_text(given)
            return folder / "given.mlir"
        options = {"dump": folder, "fallback": "error", "cache": False}
        with torch.no_grad():
            torch.compile(given, backend="mlirc", options=options)(torch.randn(n, n), torch.randn(n, n))
        (path,) = folder.glob("*_import.mlir")
        return path

    return file


def moved(path, folder):
    """The module with its tensors on a GPU, which need not be here."""
    text = re.sub(r'mlirc.target = "[^"]*"', 'mlirc.target = "cpu-avx512,gpu-h200"', path.read_text())
    made = folder / "moved.mlir"
    made.write_text(re.sub(TYPE.pattern, on_gpu, text))
    return made


def forked(*arguments):
    """The command's exit code and what it says, in a process of its own: --import changes passes."""

    def work(tell):
        torch.set_num_threads(1)
        done = run(*arguments)
        return done.exit_code, done.stdout, done.stderr

    found = isolated(work, 300)
    assert not isinstance(found, Ended), found
    return found


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    "bug", [pytest.param(b, id=b.title, marks=[] if b.title in ALWAYS else [pytest.mark.full]) for b in BUGS]
)
def test_the_rewrite_is_named(bug, module_file, tmp_path):
    patch, small = tmp_path / "patch.py", tmp_path / "small.mlir"
    patch.write_text(PATCHES[bug.name])
    path = moved(module_file(bug.given), tmp_path) if bug.on_gpu else module_file(bug.given)
    given = [path, *bug.passes.split(), "--import", patch, "--target", "interpreter"]
    reduce = [] if bug.title in ALWAYS else ["--no-reduce"]
    code, told, steps = forked("bisect", *given, "-o", small, *reduce)
    assert code == 0, steps
    assert told.startswith(bug.kind), told
    assert f"The pass is '{bug.culprit}" in told, told + steps
    rewrite = re.search(r"The rewrite is number (\d+)[^:]*: (.*)", told)
    assert rewrite and bug.rewrite in rewrite[2], told + steps
    if callable(bug.given):
        first = bug.given.__code__.co_firstlineno
        where = re.search(r"test_bisected\.py:(\d+)", rewrite[2])
        assert bug.rewrite == "the plan" or (where and first < int(where[1]) <= first + 3), told
    command = told.splitlines()[-1].split()
    assert command[:3] == ["mlirc", "run" if "answer" in told or "crash" in told else "opt", str(small)]
    code, _, shown = forked(*[word.strip('"') for word in command[1:]])
    assert code == 1 and bug.culprit in shown, shown
    if reduce == []:
        assert re.search(r"shows it, [1-8] of \d+ ops", told), told


def in_a_process(*arguments):
    return subprocess.run([sys.executable, "-m", "mlirc", *map(str, arguments)], capture_output=True, text=True)


TRITON_BUGS = (
    "wrong Triton code",
    "bad mask in Triton code",
    "wrong index in Triton code",
    "maximum for sum in Triton code",
    "crash in Triton code",
)


@pytest.mark.parametrize("name", [TRITON_BUGS[0], *(pytest.param(n, marks=pytest.mark.full) for n in TRITON_BUGS[1:])])
def test_the_launch_whose_triton_code_is_wrong(name, module_file, tmp_path):
    """The passes leave bodies that are right; Triton's code of one is not, and Triton interprets it. One launch is left."""
    pytest.importorskip("triton")
    path, patch, small = moved(module_file(rows), tmp_path), tmp_path / "patch.py", tmp_path / "small.mlir"
    patch.write_text(PATCHES[name])
    given = [path, "--pipeline", "gpu", "--import", patch]
    first = rows.__code__.co_firstlineno
    code, told, steps = forked("run", *given, "--check-each-pass")
    crashes = "crash" in name
    by = ": mlircx.run at" if crashes else ", by mlircx.run 'sub_exp_sum_neg_add'"
    assert code == 1 and f"'lower-triton', changed the answer{by}" in steps, told + steps
    assert re.search(rf"test_bisected.py:{first + 1}\b", steps), steps
    code, told, steps = forked("bisect", *given, "-o", small)
    assert code == 0 and "The pass is 'lower-triton'" in told, told + steps
    assert told.startswith("It crashes: mlircx.run at" if crashes else "The answer is wrong"), told
    where = re.search(r"The rewrite is number \d+[^:]*: mlircx.launch '\w*' \(.*test_bisected\.py:(\d+)", told)
    assert where and int(where[1]) == first + 1, told
    assert "--random 0" in told or crashes  # inputs of any kind show it: none are written
    assert re.search(r"shows it, 3 of \d+ ops", told) and small.read_text().count("mlircx.launch") == 1, told
    command = told.splitlines()[-1].split()
    code, _, shown = forked(*[word.strip('"') for word in command[1:]])
    assert code == 1 and "'lower-triton', changed the answer" in shown, shown


def test_kernels_whose_code_was_not_executed_are_named(module_file, tmp_path, monkeypatch):
    """Triton interprets no Gluon. Here all of its kernels are taken for such."""
    pytest.importorskip("triton")
    monkeypatch.setattr("mlirc.execution.triton_code.GLUON", "@triton.jit")
    path = moved(module_file(wave), tmp_path)
    code, _, steps = forked("bisect", path, "--pipeline", "gpu", "-o", tmp_path / "small.mlir")
    assert code == 1 and re.search(r"nothing fails: .*, but of kernel_\w+.* \(Gluon\) the bodies", steps), steps


@pytest.mark.full
@pytest.mark.parametrize(("name", "size"), [("wrong code", 6), ("a row too few", 37)])
def test_the_kernel_whose_code_is_wrong(name, size, module_file, tmp_path):
    """The passes leave what is right; of the kernels one has wrong code."""
    patch = tmp_path / "patch.py"
    patch.write_text(PATCHES[name])
    path = module_file(rows, size)
    done = in_a_process("bisect", path, *CPU.split(), "--import", patch, "-o", tmp_path / "small.mlir", "--no-reduce")
    assert done.returncode == 0, done.stderr
    assert "The pass is 'lower-kernels'" in done.stdout and "its machine code is not" in done.stdout, done.stdout
    assert re.search(
        r"The rewrite is number \d+: mlircx.launch '\w*(sub|sum)\w*' \(.*test_bisected\.py", done.stdout
    ), done.stdout
    assert " 3 of " in done.stdout


@pytest.mark.full
def test_the_kernel_whose_code_crashes(module_file, tmp_path):
    patch = tmp_path / "patch.py"
    patch.write_text(PATCHES["crash in machine code"])
    given = [module_file(rows), *CPU.split(), "--import", patch]
    done = in_a_process("bisect", *given, "-o", tmp_path / "small.mlir", "--no-reduce")
    assert done.returncode == 0, done.stderr
    assert "It crashes: SIGSEGV" in done.stdout and "The pass is 'lower-kernels'" in done.stdout, done.stdout
    assert "The rewrite is number 0: mlircx.launch 'exp' (" in done.stdout, done.stdout


def test_a_pass_that_breaks_the_ir_is_named_with_where_it_comes_from(module_file, tmp_path):
    patch = tmp_path / "my_passes.py"
    patch.write_text(PASSES["break-types"])
    path = module_file(wave)
    given = [path, "--pipeline", "cpu", "--passes-after", "eliminate-dead=break-types", "--import", patch]
    code, told, steps = forked("bisect", *given, "--target", "interpreter", "-o", tmp_path / "small.mlir")
    assert code == 0, steps
    assert told.startswith("A pass fails: pass 'break-types' failed"), told
    assert "The pass is 'break-types', of my_passes.py:" in told and "mlircx.kernel '" in told, told
    code, _, shown = forked(*[word.strip('"') for word in told.splitlines()[-1].split()[1:]])
    assert code == 1 and "'break-types'" in shown and "does not verify" in shown


def scaled(x, y):
    x = x * (x * x).mean(-1, keepdim=True).rsqrt()
    y = torch.nn.functional.dropout(y, 0.5) + torch.nn.functional.dropout(y, 0.5)
    return x.exp(), y


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "told_as", "rewrite"),
    [
        ("hang", "It hangs: no end after", "mlirc.exp"),
        ("narrow-rsqrt", "The answer is wrong: result 0", "mlirc.rsqrt"),
        ("merge-draws", "The answer is wrong: result 1", "mlircx.aten_effect"),
    ],
)
def test_a_pass_that_hangs_rounds_or_draws_once(name, told_as, rewrite, module_file, tmp_path):
    patch = tmp_path / "my_passes.py"
    patch.write_text(PASSES[name])
    given = [module_file(scaled), "-p", f"decompose,{name},cse", "--import", patch, "--target", "interpreter"]
    limit = ["--timeout", "10"] if name == "hang" else []
    code, told, steps = forked("bisect", *given, *limit, "-o", tmp_path / "small.mlir", "--no-reduce")
    assert code == 0 and told.startswith(told_as), told + steps
    assert f"The pass is '{name}', of my_passes.py:" in told
    assert re.search(rf"The rewrite is number \d+( of \d+)?: {rewrite} ", told), told


def test_after_a_trial_that_hung_others_are_not_waited_for_as_long():
    trials = Trials(machine=False)
    trials.took.append(1.0)
    assert trials.limit == 120
    trials.hung.append(120)
    assert trials.limit == 20
    trials.took.append(0.1)
    assert trials.limit == 20 and Trials(machine=False, hung=[120.0]).limit == 120


def is_alive(process):
    try:
        return (Path("/proc") / process / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_work_ends_with_the_process_that_waits_for_it(tmp_path):
    """A trial that hangs, in isolated work that is killed itself: it went on for ever, and filled the memory."""
    noted = tmp_path / "process"

    def hangs(tell):
        noted.write_text(str(os.getpid()))
        time.sleep(60)

    assert isinstance(isolated(lambda tell: isolated(hangs, 100), 1), Ended)
    process, deadline = noted.read_text(), time.monotonic() + 5
    while is_alive(process) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_alive(process)


def test_a_pass_that_asks_without_end_does_not_fill_the_memory():
    rewrites = Rewrites()
    for _ in range(KEPT + 10):
        assert rewrites.allows("mine", "an op")
    assert len(rewrites.asked) == KEPT and rewrites.counts == {"mine": KEPT + 10}


@pytest.mark.full
def test_a_slow_call(module_file, tmp_path):
    patch = tmp_path / "my_passes.py"
    patch.write_text(PASSES["slow-down"])
    path = module_file(rows, 128)
    given = [path, "--pipeline", "cpu", "--passes-after", "decompose=slow-down", "--import", patch]
    done = in_a_process("bisect", *given, "--slower-than", "1500", "-o", tmp_path / "small.mlir", "--no-reduce")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("A call is slow") and "The pass is 'slow-down'" in done.stdout, done.stdout
    assert "machine code is not" not in done.stdout, done.stdout  # right it is
    assert "The rewrite is number 0 of 1: mlirc.neg" in done.stdout, done.stdout


OPERATIONS = """
import re, subprocess, sys

command = [sys.executable, "-m", "mlirc", "opt", sys.argv[1], "-p", "", "--stats", "--emit", "none"]
said = subprocess.run(command, capture_output=True, text=True).stderr
sys.exit(int(re.search(r"flops +(\\d+)", said)[1]) > 10_000)
"""


@pytest.mark.full
def test_a_slow_down_on_a_gpu_that_is_not_here(module_file, tmp_path):
    """By what it costs: the operations of the module."""
    patch, check = tmp_path / "my_passes.py", tmp_path / "operations.py"
    patch.write_text(PASSES["slow-down"])
    check.write_text(OPERATIONS)
    path = moved(module_file(rows), tmp_path)
    given = [path, *GPU.split(), "--passes-after", "decompose=slow-down", "--import", patch]
    code, told, steps = forked(
        "bisect", *given, "--check", f"{sys.executable} {check} {{}}", "-o", tmp_path / "small.mlir", "--no-reduce"
    )
    assert code == 0 and "The pass is 'slow-down', of my_passes.py" in told, told + steps
    assert "The rewrite is number 0 of 1: mlirc.neg (" in told, told


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what is missing where there is no GPU")
def test_calls_on_a_gpu_that_is_not_here_are_not_timed(module_file, tmp_path):
    """It blamed the pass that writes code for one."""
    path = moved(module_file(rows), tmp_path)
    code, told, steps = forked("bisect", path, *GPU.split(), "--slower-than", "10", "-o", tmp_path / "small.mlir")
    assert (code, told) == (2, "") and "are on a GPU, and PyTorch finds none here" in steps, steps


def test_what_fails_before_any_pass(module_file, tmp_path):
    given = [module_file(wave), *CPU.split(), "--check", "false", "-o", tmp_path / "small.mlir"]
    code, told, steps = forked("bisect", *given)
    said = "_import.mlir, as given, fails before any pass runs: exit code 1"
    assert (code, told) == (1, "") and steps.splitlines()[-1].endswith(said), steps


def test_a_check_of_ones_own(module_file, tmp_path):
    """Which pass makes a cosine part of a kernel."""
    path = module_file(wave)
    check = "! grep -q 'cos_mul' {}"
    code, told, steps = forked(
        "bisect", path, "--pipeline", "cpu", "--check", check, "-o", tmp_path / "small.mlir", "--no-reduce"
    )
    assert code == 0 and "The pass is 'fuse-elementwise'" in told and "cos -> mul" in told, told + steps


def test_where_nothing_fails(module_file, tmp_path):
    code, told, steps = forked("bisect", module_file(wave), "--target", "interpreter", "-o", tmp_path / "small.mlir")
    assert (code, told) == (1, "") and "nothing fails" in steps.splitlines()[-1]
    assert "with negative numbers:" in steps
    assert all("nothing fails" in after for line, after in pairwise(steps.splitlines()) if line.endswith("numbers:"))
    assert not (tmp_path / "small.mlir").exists()

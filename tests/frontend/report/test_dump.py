"""options={"dump": DIR}: each stage's file is interpreted, and runs on by `mlirc opt`, to what the compiled graph computes."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file
from torch import nn

from mlirc.cli import opt
from mlirc.codegen.emit.emit import compile_module
from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.dialects.interpreter.interpreter import run
from mlirc.frontend.driver import run as frontend
from mlirc.lowering.pipeline.pass_manager import functions

STAGES = ("import", "simplify", "fuse", "plan", "lower")


class Model(nn.Module):
    """What a parameter alone decides, views, a mutated buffer, a constant, ATen calls, a size among the results."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 48), nn.Linear(48, 16)
        self.gain = nn.Parameter(torch.randn(16))
        self.register_buffer("steps", torch.zeros(3))

    def forward(self, x, scale):
        self.steps[1:].add_(1)
        y = self.second(torch.nn.functional.gelu(self.first(x * self.gain.exp()))).softmax(-1)
        y = y * torch.tensor([2.0, 3.0]).repeat(8)
        inverse = torch.linalg.inv(x.t() @ x + torch.eye(16))
        return (y @ inverse).t(), y[1:, ::2].sum(0) * scale, x.shape[0] + 1


class Recorder:
    """Notes what a graph is called with and what @graph gives: `before` and `after` are copies of its inputs."""

    def __init__(self, monkeypatch):
        self.wrap = frontend.wrap
        monkeypatch.setattr(frontend, "wrap", self.recording)

    def recording(self, compiled, arguments, constants, native):
        made = self.wrap(compiled, arguments, constants, native)

        def run(args):
            used = [args[k] for k in compiled.inputs]
            self.before = copies(used)
            results = made(args)
            self.results = [x for x, (kind, _) in zip(results, compiled.outputs, strict=True) if kind == "result"]
            self.after = copies(used)
            return results

        run._boxed_call = True
        return run


def copies(values):
    return [x.clone() if isinstance(x, torch.Tensor) else x for x in values]


def run_on(path: Path, out: Path) -> ir.Module:
    """The module of a dump after the passes that its first line names."""
    rest = re.search(r'^// mlirc opt \S+ -p "(.*)"$', path.read_text().split("\n")[0])
    assert rest, "the first line says how to run on"
    done = CliRunner().invoke(opt, [str(path), "-p", rest[1], "--locations", "-o", str(out)])
    assert done.exit_code == 0, done.output
    return ir.Module.parse(out.read_text())


def call(module: ir.Module, inputs: list) -> list:
    """What @graph of a lowered module gives for its arguments but those that @prepare makes."""
    return compile_module(module)(with_prepared(module, inputs, lambda _: compile_module(module, entry="prepare")))


def interpret(module: ir.Module, inputs: list) -> list:
    """The same of a module in any form, interpreted."""
    prepared = with_prepared(module, inputs, lambda prepare: partial(run, prepare))
    return run(next(f for f in functions(module) if f.name.value == "graph"), prepared)


def with_prepared(module: ir.Module, inputs: list, callable_of: Callable) -> list:
    """`inputs`, and what @prepare makes of them when `callable_of` has made a callable of it."""
    inputs = list(inputs)
    for function in functions(module):
        if function.name.value == "prepare":
            positions = symbols.parse_list(function.attributes["mlirc.parameters"].value)
            inputs += callable_of(function)([inputs[int(str(k))] for k in positions])
    return inputs


@pytest.fixture
def dumped(tmp_path, monkeypatch):
    """Compiles and calls a function under no_grad; gives the record of its graph and the dumps by stage."""

    def run(fn, *args, **options):
        record = Recorder(monkeypatch)
        compiled = torch.compile(fn, backend="mlirc", options={"dump": tmp_path, "fallback": "error"}, **options)
        with torch.no_grad():
            compiled(*args)
        files = sorted(tmp_path.glob("*.mlir"))
        return record, {path.stem.split("_")[3]: path for path in files}

    return run


def test_every_stage_runs_on_to_the_same_result(dumped, tmp_path):
    record, files = dumped(Model(), torch.randn(5, 16), 0.5, dynamic=True)
    assert tuple(files) == STAGES
    (constants,) = tmp_path.glob("*_constants.safetensors")
    text = files["fuse"].read_text()
    for part in ("@prepare", "mlirc.constant}", "mlirc.view", "mlircx.aten", "mlirc.assign", 'size = "s'):
        assert part in text, part
    for stage, path in files.items():
        inputs = copies(record.before)
        with context():
            interpreted = interpret(ir.Module.parseFile(str(path)), inputs + list(load_file(constants).values()))
        torch.testing.assert_close(interpreted, record.results, check_stride=True, msg=f"interpreted: {stage}")
        torch.testing.assert_close(inputs, record.after, rtol=0, atol=0)
        inputs = copies(record.before)
        with context(), torch.no_grad():
            results = call(run_on(path, tmp_path / "out.mlir"), inputs + list(load_file(constants).values()))
        assert len(results) == len(record.results)
        for got, want in zip(results, record.results, strict=True):
            note = partial("{}: {}".format, stage)
            torch.testing.assert_close(got, want, rtol=0, atol=0, check_stride=True, msg=note)
        torch.testing.assert_close(inputs, record.after, rtol=0, atol=0)
    assert not torch.equal(record.before[position(record, 3)], record.after[position(record, 3)])


def position(record, numel):
    """The one tensor of so many elements among the inputs."""
    (found,) = (k for k, x in enumerate(record.before) if isinstance(x, torch.Tensor) and x.numel() == numel)
    return found


def test_other_sizes_run_through_the_same_dump(dumped, tmp_path):
    def fn(x):
        return (x.softmax(-1) + 1).t(), x[:, 1:].sum()

    _, files = dumped(fn, torch.randn(5, 7), dynamic=True)
    with context():
        module = run_on(files["import"], tmp_path / "out.mlir")
        text = str(module)
        order = re.findall(r'mlirc.symbol = "(s\d+)"', text[: text.index("->")])
        for shape in ((3, 4), (2, 33), (1, 2)):
            x = torch.randn(shape)
            rows = re.search(r'size = "(s\d+), (s\d+)"', text)
            sizes = dict(zip(rows.groups(), shape, strict=True))
            got = call(module, [sizes[name] for name in order] + [x])
            torch.testing.assert_close(got, list(fn(x)))


def test_backward_graphs_are_dumped_too(tmp_path):
    fn = torch.compile(lambda x, w: (x @ w).tanh().sum(), backend="mlirc", options={"dump": str(tmp_path)})
    fn(torch.randn(4, 5), torch.randn(5, 6, requires_grad=True)).backward()
    names = sorted(path.stem for path in tmp_path.glob("*.mlir"))
    assert [name.split("_")[1] for name in names] == ["forward"] * 5 + ["backward"] * 5
    with context():
        for path in tmp_path.glob("*.mlir"):
            run_on(path, tmp_path / "out.txt")


def test_dumps_keep_source_lines(dumped):
    _, files = dumped(lambda x: x.exp() + 1, torch.randn(4))
    line = test_dumps_keep_source_lines.__code__.co_firstlineno + 1
    for stage, path in files.items():
        assert re.search(rf'test_dump.py":{line}:', path.read_text()), stage


def test_a_file_that_needs_objects_says_so(dumped):
    def fn(x):
        return torch.cond(x.sum() > 0, lambda x: x + torch.rand_like(x), lambda x: x - 1, (x,)) * 2

    _, files = dumped(fn, torch.ones(3))
    assert re.search(r"^// object 0, not in this file: a subgraph: .*aten.add", files["fuse"].read_text(), re.MULTILINE)
    done = CliRunner().invoke(opt, [str(files["plan"]), "-p", "lower-kernels"])
    assert done.exit_code == 0, "passes do not need the objects"
    failed = CliRunner().invoke(opt, [str(files["plan"]), "-p", "lower-kernels", "--emit", "asm"])
    line = fn.__code__.co_firstlineno + 1
    assert failed.exit_code == 1
    assert re.search(rf"emit failed at mlircx.aten\S* \(.*test_dump.py:{line}\): .*needs object 0", failed.stderr)

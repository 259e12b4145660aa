"""What goes wrong says so: which pass, which op, which line of the user's, and a file that fails in the same way."""

import importlib.metadata
import logging
import re
import runpy
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import nn

import mlirc
from mlirc.cli import opt
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import IMPORTS, load_ops
from mlirc.frontend import statistics
from mlirc.frontend.driver import verification
from mlirc.lowering.module.errors import UnsupportedByPass
from mlirc.lowering.pipeline import pass_manager
from mlirc.lowering.pipeline.parser import PipelineError
from mlirc.lowering.pipeline.pass_manager import passes, register, to_import


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    statistics.reset()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where the files that reproduce failures go


def operations(function):
    return list(function.regions[0].blocks[0].operations)


class Broken:
    """The passes that the tests register: what each does to the first op of its kind."""

    def run(self, function, ledger):
        for op in operations(function):
            if op.operation.name == self.breaks:
                self.spoil(function, op)


class Raises(Broken):
    """A plain bug."""

    name, breaks = "raises", "mlirc.tanh"

    def spoil(self, function, op):
        {}["no such key"]


class RaisesOnErased(Broken):
    """A bug after the op that it was looking at is gone."""

    name, breaks = "raises-on-erased", "mlirc.tanh"

    def spoil(self, function, op):
        user = next(iter(op.results[0].uses)).owner  # noqa: F841 # what a pass looks at, in its own words
        op.results[0].replace_all_uses_with(op.operands[0])
        op.operation.erase()
        raise IndexError("a bug")


class Refuses(Broken):
    """A construct that the pass does not know."""

    name, breaks = "refuses", "mlirc.tanh"

    def spoil(self, function, op):
        raise UnsupportedByPass(op, "no tanh here")


class BreaksTypes(Broken):
    """Leaves IR that MLIR's verifier rejects: the return is not what the function says."""

    name, breaks = "breaks-types", "func.return"

    def spoil(self, function, op):
        op.operation.operands[0] = function.arguments[0]


class BreaksView(Broken):
    """Leaves IR that MLIR accepts, and the stage's verifier does not."""

    name, breaks = "breaks-view", "mlirc.view"

    def spoil(self, function, op):
        op.operation.attributes["map"] = ir.StringAttr.get("d0")


class BreaksKernel(Broken):
    """Leaves a kernel that yields at an index of no dimension."""

    name, breaks = "breaks-kernel", "mlircx.kernel"

    def spoil(self, function, op):
        body = list(op.regions[0].blocks[0].operations)
        body[-1].operation.attributes["maps"] = ir.ArrayAttr.get([ir.StringAttr.get("d0, d7")])


class BreaksSizes(Broken):
    """Leaves ops whose sizes disagree, of which passes behind it make a kernel that reads past the end of a tensor."""

    name, breaks = "breaks-sizes", "mlirc.tanh"

    def spoil(self, function, op):
        op.operation.operands[0] = function.arguments[1]


class ErasesGraph(Broken):
    """Leaves a module without the function."""

    name, breaks = "erases-graph", "func.return"

    def spoil(self, function, op):
        function.operation.erase()


class LeavesGraphOps(Broken):
    """Promises a form that it does not give."""

    name, breaks, gives = "leaves-graph-ops", "mlirc.tanh", "kernel"

    def spoil(self, function, op):
        pass


class BreaksCall(Broken):
    """Leaves what every verifier accepts, and the code generator does not."""

    name, breaks = "breaks-call", "mlircx.call"

    def spoil(self, function, op):
        op.operation.attributes["callee"] = ir.StringAttr.get("no_such_routine")


BROKEN_PASSES = [dataclass(frozen=True)(cls) for cls in Broken.__subclasses__()]


@pytest.fixture(autouse=True)
def registered():
    for cls in BROKEN_PASSES:
        register(cls)


def program(x, y):
    z = x @ y  # line 1 of program
    z = z.tanh()
    z = z.t()
    return z + 1


LINE = program.__code__.co_firstlineno
X, Y = torch.randn(4, 8), torch.randn(8, 5)

BROKEN = [
    ("raises", r"pass 'raises' failed at mlirc.tanh \(\S*test_errors.py:{2}\): KeyError: 'no such key'"),
    ("raises-on-erased", r"pass 'raises-on-erased' failed at mlirc.view \(\S*test_errors.py:{3}\): IndexError: a bug"),
    ("refuses", r"pass 'refuses' failed at mlirc.tanh \(\S*test_errors.py:{2}\): no tanh here"),
    ("breaks-types", r"pass 'breaks-types' failed \(.*\): func.return: type of return operand 0 .* doesn't match"),
    ("breaks-view", r"pass 'breaks-view' failed: mlirc.view \(\S*test_errors.py:{3}\): a map of 1 indices"),
    ("erases-graph", r"pass 'erases-graph' failed: func.func \(.*\): the pass erased @graph"),
    ("leaves-graph-ops", r"pass 'leaves-graph-ops' failed: mlirc.tanh \(\S*test_errors.py:{2}\): no op of the kernel"),
    ("to-kernels,breaks-kernel", r"pass 'breaks-kernel' failed: mlircx.yield \(\S*test_errors.py:\d+\): d7 is no"),
]


def expected(message):
    return re.sub(r"\{(\d)\}", lambda match: str(LINE + int(match[1])), message)


def compiled(fn, **options):
    return torch.compile(fn, backend="mlirc", options=options)


@pytest.mark.parametrize(("pipeline", "message"), BROKEN)
def test_a_broken_pass_falls_back_to_eager(pipeline, message):
    # a sound pass before and after must not be blamed
    fn = compiled(program, pipeline=f"canonicalize,{pipeline},canonicalize")
    with pytest.warns(UserWarning, match=expected(message)) as caught, torch.no_grad():
        torch.testing.assert_close(fn(X, Y), program(X, Y))
        torch.testing.assert_close(fn(X, Y), program(X, Y))
    assert len(caught) == 1, "one warning for the graph"
    text = str(caught[0].message)
    assert "\n" not in text and "runs in eager" in text
    (reason,) = statistics.fallbacks
    assert statistics.fallbacks[reason] == 1 and re.search(expected(message), reason)
    assert statistics.graphs[-1].fallback == reason


@pytest.mark.parametrize("each_stage", [True, False])
@pytest.mark.parametrize(("pipeline", "message"), BROKEN)
def test_the_error_leaves_a_file_that_fails_in_the_same_way(pipeline, message, each_stage, monkeypatch):
    monkeypatch.setattr(verification, "EACH_STAGE", each_stage)
    with pytest.raises(Exception, match=expected(message)) as raised, torch.no_grad():
        compiled(program, pipeline=pipeline, fallback="error")(X, Y)
    assert "CompilationError" in str(raised.value)
    command = re.search(r"to reproduce: mlirc opt (\S+) -p '(.*)'", str(raised.value))
    assert command[2] == pipeline.split(",")[-1]
    done = CliRunner().invoke(opt, [command[1], "-p", command[2]])
    assert done.exit_code == 1 and done.stdout == ""
    assert re.search(expected(message), done.stderr)
    assert not statistics.fallbacks


@pytest.mark.parametrize("place", ["after simplify", "before decompose", "before to-kernels"])
def test_what_a_pass_of_a_users_own_leaves_is_verified_before_others_hide_it(place, monkeypatch):
    monkeypatch.setattr(verification, "EACH_STAGE", False)
    monkeypatch.setattr(verification, "PROOFS", "none")
    with (
        pytest.raises(Exception, match=expected(r"pass 'breaks-sizes' failed: mlirc.tanh \(\S*test_errors.py:{2}\)")),
        torch.no_grad(),
    ):
        compiled(program, insert={place: "breaks-sizes"}, fallback="error")(X, Y)


def test_the_command_says_where_a_users_pass_came_from(tmp_path, monkeypatch):
    (tmp_path / "of_mine.py").write_text(
        "from dataclasses import dataclass\nfrom mlirc.passes import register\n\n@register\n@dataclass(frozen=True)\nclass OfMine:\n"
        "    name = 'of-mine'\n    def run(self, function, ledger):\n        raise KeyError('mine')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("of_mine")
    try:
        with pytest.raises(Exception, match="KeyError: 'mine'") as raised, torch.no_grad():
            compiled(program, insert={"after simplify": "of-mine"}, fallback="error")(X, Y)
    finally:
        del passes()["of-mine"], sys.modules["of_mine"]
    command = re.search(r"mlirc opt (\S+) -p 'of-mine' --import (\S+)", str(raised.value))
    done = CliRunner().invoke(opt, [command[1], "-p", "of-mine", "--import", command[2]])
    assert done.exit_code == 1 and "KeyError: 'mine'" in done.stderr
    assert f"-p 'of-mine' --import {tmp_path / 'of_mine.py'}" in Path(command[1]).read_text()
    assert [to_import(name) for name in ("cse", "to-kernels", "raises")] == [None, None, __name__]


def test_a_call_of_no_routine_leaves_a_file():
    pipeline = "to-kernels,plan-memory,breaks-call"
    with pytest.warns(UserWarning, match="no routine 'no_such_routine'") as caught, torch.no_grad():
        torch.testing.assert_close(compiled(program, pipeline=pipeline)(X, Y), program(X, Y))
    assert len(caught) == 1 and sum(statistics.fallbacks.values()) == 1
    assert re.search(
        rf"pass 'breaks-call' failed: mlircx.call \(\S*test_errors.py:{LINE + 1}\)", str(caught[0].message)
    )


def test_the_importer_leaves_a_program(monkeypatch):
    def rule(g, x):
        return x + None

    def fn(x, flag, scale, n):
        y = torch.cond(flag, lambda x: x + 1, lambda x: x - 1, (x,)) * torch.tensor([1.0, 2.0]) * scale
        return (y[: x.shape[0] // 2] + n).tanh()

    load_ops()
    monkeypatch.setitem(IMPORTS, torch.ops.aten.tanh.default, rule)
    x, flag = torch.randn(6, 2), torch.tensor(True)
    with pytest.warns(UserWarning, match="import failed") as caught, torch.no_grad():
        result = torch.compile(fn, backend="mlirc", dynamic=True)(x, flag, 0.5, -2)
    torch.testing.assert_close(result, fn(x, flag, 0.5, -2))
    assert len(caught) == 1 and sum(statistics.fallbacks.values()) == 1
    text = str(caught[0].message)
    line = fn.__code__.co_firstlineno + 2
    assert re.search(
        rf"import failed at aten.tanh.default \(\S*test_errors.py:{line}\): TypeError: unsupported op", text
    )
    path = re.search(r"to reproduce: python (\S+)", text)[1]
    with pytest.raises(TypeError, match="unsupported operand"):
        runpy.run_path(path)
    monkeypatch.undo()
    runpy.run_path(path)  # and is a whole program: without the bug it imports the graph


def test_training_falls_back_graph_by_graph():
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh())
    x = torch.randn(2, 4)
    expected_grads = torch.autograd.grad(model(x).sum(), list(model.parameters()))
    with pytest.warns(UserWarning, match="runs in eager") as caught:
        loss = compiled(model, pipeline="raises,decompose")(x).sum()
        grads = torch.autograd.grad(loss, list(model.parameters()))
    torch.testing.assert_close(grads, expected_grads)
    kinds = {graph.kind: bool(graph.fallback) for graph in statistics.graphs}
    assert kinds == {"forward": True, "backward": False}, "tanh is in the forward graph only"
    assert len(caught) == 1


def test_explain_tells_of_fallbacks():
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        told = mlirc.explain(program, options={"pipeline": "raises"})(X, Y)
    (graph,) = told.data["graphs"]
    assert "pass 'raises' failed" in graph["fallback"]
    assert "runs in eager: pass 'raises' failed" in " ".join(str(told).split())


@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_a_dtype_without_a_type(caplog):
    def fn(x):
        y = x.sin()
        return torch.quantize_per_tensor(y, 0.1, 0, torch.qint8).dequantize()

    x = torch.ones(8)
    with torch.no_grad():
        with caplog.at_level(logging.INFO, "mlirc"), warnings.catch_warnings():
            warnings.filterwarnings("error", message="mlirc")
            torch.testing.assert_close(compiled(fn)(x), fn(x))
        line = fn.__code__.co_firstlineno + 2
        why = rf"a tensor of torch.qint8, which the dialect has no type for .* \(\S*test_errors.py:{line}\)"
        (reason,) = statistics.fallbacks
        assert statistics.fallbacks[reason] == 1 and re.search(why, reason)
        assert [record for record in caplog.records if record.name == "mlirc" and re.search(why, record.message)]
        torch._dynamo.reset()
        with pytest.raises(Exception, match=why) as raised:
            compiled(fn, fallback="error")(x)
        assert "UnsupportedGraph" in str(raised.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"falback": "error"},
            r"no option 'falback'; did you mean 'fallback'\? its options are fallback, pipeline, dump, cache, mode",
        ),
        ({"mode": "reduce-overheads"}, r"'reduce-overheads'; did you mean 'reduce-overhead'\? it can be 'default', "),
        ({3: "error"}, "no option '3'"),
        ({"fallback": "always"}, "option 'fallback' is 'always'; it can be 'eager', 'error'"),
        ({"fallback": True}, r"option 'fallback' takes text, not True \(bool\)"),
        (["fallback"], r"takes options=\{'name': value\}, not \['fallback'\] \(list\)"),
        (
            {"pipeline": "gpux"},
            "'gpux'; it can be 'auto', 'cpu', 'gpu', 'gpu-frozen', 'strict', or passes .*: no pass 'gpux'.*ours: .*decompose",
        ),
        ({"pipeline": "cse,decompose{x=1}"}, "pass 'decompose' has no option 'x'; its options: none"),
        ({"pipeline": "cse{"}, "'{' is not closed"),
        ({"pipeline": "plan-memory"}, "pass 'plan-memory' takes the kernel form, .*run to-kernels first"),
        ({"dump": 3}, r"option 'dump' takes text, not 3 \(int\)"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(Exception, match=message), torch.no_grad():
        torch.compile(program, backend="mlirc", options=options)(X, Y)
    assert not statistics.fallbacks


def test_a_wrong_mode():
    with pytest.raises(Exception, match=r"'fastest'.*'default'|Unrecognized mode"):
        torch.compile(program, backend="mlirc", mode="fastest")(X, Y)


@pytest.mark.parametrize("pipeline", ["", "cse", "decompose,to-kernels", "to-kernels,plan-memory{reuse=false}"])
def test_passes_that_stop_early_are_completed(pipeline):
    with torch.no_grad():
        torch.testing.assert_close(compiled(program, pipeline=pipeline, fallback="error")(X, Y), program(X, Y))


def test_a_dump_that_cannot_be_written_is_done_without():
    message = "option 'dump' is .*test_errors.py', and no file can be written there: File exists"
    with pytest.warns(UserWarning, match=message) as caught, torch.no_grad():
        torch.testing.assert_close(compiled(program, dump=__file__)(X, Y), program(X, Y))
    assert len(caught) == 1 and not statistics.fallbacks


def test_warnings_that_are_errors_stay_within():
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error", UserWarning)
        torch.testing.assert_close(compiled(program, pipeline="raises", dump=__file__)(X, Y), program(X, Y))
    assert sum(statistics.fallbacks.values()) == 1


def test_devices():
    with pytest.raises(Exception, match=r"DeviceError: input .* is on meta; mlirc compiles for: cpu"):
        compiled(lambda x: x + 1, fallback="error")(torch.ones(2, device="meta"))
    torch._dynamo.reset()
    assert compiled(lambda x: x + 1)(torch.ones(2, device="meta")).device.type == "meta"
    torch._dynamo.reset()

    def fn(x):
        return x.to("meta") + 1

    line = fn.__code__.co_firstlineno + 1
    message = rf"the result of aten\S+ \(\S*test_errors.py:{line}\) is on meta; mlirc compiles for: cpu"
    with pytest.raises(Exception, match=message), torch.no_grad():
        compiled(fn, fallback="error")(torch.ones(2))
    torch._dynamo.reset()
    with torch.no_grad():
        assert compiled(fn)(torch.ones(2)).device.type == "meta"
    assert sum(statistics.fallbacks.values()) == 2


WRONG_ENTRIES = {
    "no_such_module:P": "ModuleNotFoundError: No module named 'no_such_module'",
    "mlirc.passes:NoPass": "AttributeError: .*NoPass",
    "collections:OrderedDict": "TypeError: OrderedDict is no pass",
    f"{__name__}:TakesNoForm": "TypeError: TakesNoForm.takes: .*'kernels'",
}


@dataclass(frozen=True)
class TakesNoForm:
    name = "takes-no-form"
    takes = "kernels"

    def run(self, function, ledger):
        pass


@pytest.mark.parametrize("value", WRONG_ENTRIES)
def test_an_entry_point_that_gives_no_pass_is_named(value, monkeypatch):
    entry = importlib.metadata.EntryPoint("mine", value, "mlirc.passes")
    monkeypatch.setattr(pass_manager, "_others", lambda: [entry])
    wrong = f"entry point 'mine = {re.escape(value)}' of mlirc.passes gives no pass: {WRONG_ENTRIES[value]}"
    with pytest.raises(PipelineError, match=wrong):
        passes.__wrapped__()  # those of the other tests stay registered

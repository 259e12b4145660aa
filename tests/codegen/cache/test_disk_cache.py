"""The disk cache: what is found again gives the same results and compiles nothing; what is damaged, foreign or changed does not count."""

import importlib
import json
import os
import runpy
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

import mlirc
from mlirc.codegen.cache import environment
from mlirc.frontend import statistics
from mlirc.frontend.cache.foreign_sources import foreign_sources
from tests.forked_programs import python

STRICT = {"fallback": "error"}


def states():
    """What came of the lookups since the last call."""
    found = [graph.cache for graph in statistics.graphs]
    statistics.reset()
    return found


def run(fn, *args, grad=False, **options):
    torch._dynamo.reset()
    with torch.set_grad_enabled(grad):
        return torch.compile(fn, backend="mlirc", options=STRICT | options)(*args)


def files(folder, kind="graph"):
    return sorted(folder.path.glob(f"*.{kind}"))


def pointwise(x):
    return (x * 2 + 1).relu()


# ---- found again


def test_a_hit_runs_no_pass_and_gives_the_same(folder):
    x = torch.randn(37)
    first = run(pointwise, x)
    (miss,) = statistics.graphs
    second = run(pointwise, x)
    hit = statistics.graphs[-1]
    assert (miss.cache, hit.cache) == ("miss", "hit")
    assert tuple(hit.seconds) == ("cache",) and "lower" in miss.seconds
    assert torch.equal(first, second) and torch.equal(second, pointwise(x))
    names = ("kernels", "aten", "through_python", "library", "arena", "buffers", "fusions", "ledger")
    assert all(getattr(hit, name) == getattr(miss, name) for name in names) and hit.kernels and hit.ledger


def test_training_hits_forward_and_backward(folder):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))
    x = torch.randn(5, 8, requires_grad=True)
    gradients = []
    for _ in range(2):
        run(model, x, grad=True).square().sum().backward()
        gradients.append([x.grad, *(p.grad for p in model.parameters())])
        x.grad = None
        model.zero_grad()
    assert states() == ["miss", "miss", "hit", "hit"]
    model(x).square().sum().backward()
    for a, b, eager in zip(*gradients, [x.grad, *(p.grad for p in model.parameters())], strict=True):
        assert torch.equal(a, b)
        torch.testing.assert_close(a, eager)


def test_dynamic_sizes(folder):
    def fn(x):
        return (x + 1).sum(0) * x.shape[0], x.shape[1] * 2

    for _ in range(2):
        torch._dynamo.reset()
        compiled = torch.compile(fn, backend="mlirc", options=STRICT, dynamic=True)
        for shape in ((3, 4), (7, 9)):
            x = torch.randn(shape)
            with torch.no_grad():
                torch.testing.assert_close(compiled(x), fn(x))
    assert states() == ["miss", "hit"]


def test_packed_parameters_follow_the_module(folder):
    models = [nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)) for _ in range(2)]
    x = torch.randn(32, 64)
    for model in models:  # of equal structure: the second is found, and has weights of its own
        compiled = run(model, x)
        torch.testing.assert_close(compiled, model(x), rtol=1e-4, atol=1e-5)
    assert states() == ["miss", "hit"]
    with torch.no_grad():
        models[1][0].weight.mul_(2)
        torch.testing.assert_close(run(models[1], x), models[1](x), rtol=1e-4, atol=1e-5)


def test_aten_calls_constants_and_outputs_that_are_no_tensors(folder):
    def fn(x):
        values, order = torch.sort(x, descending=True)
        return (
            values * torch.tensor([1.0, 2.0, 3.0]),
            order,
            None,
            x.shape[0],
            torch.linalg.inv(x.diag() + torch.eye(3)),
        )

    x = torch.rand(3)
    for _ in range(2):
        torch.testing.assert_close(run(fn, x), fn(x))
    assert states() == ["miss", "hit"]


def test_errors_name_the_source_line_after_a_hit(folder):
    def fn(x, index):
        return x[index] + 1

    def solve(x):
        return torch.linalg.cholesky(x) + 1

    texts = []
    for _ in range(2):
        with pytest.raises(IndexError) as bounds:
            run(fn, torch.randn(4), torch.tensor([9]))
        with pytest.raises(RuntimeError) as solved:
            run(solve, -torch.eye(3))
        texts.append((str(bounds.value), [str(solved.value), *getattr(solved.value, "__notes__", [])]))
    assert texts[0] == texts[1]
    line = solve.__code__.co_firstlineno + 1
    assert "9" in texts[1][0] and any(f"{Path(__file__).name}:{line}" in text for text in texts[1][1])
    assert states() == ["miss", "miss", "hit", "hit"]


def test_a_changed_graph_finds_the_kernels_that_it_shares(folder):
    run(lambda x: x.softmax(-1), torch.randn(6, 50))
    written = folder.counts["kernels", "written"]
    from mlirc.codegen.runtime import shared_kernels

    shared_kernels._loaded.clear()  # as in another process
    # the same kernel from another source line: another graph
    run(lambda x: x.softmax(-1), torch.randn(6, 50))
    assert states() == ["miss", "miss"]
    assert written == folder.counts["kernels", "written"] == 1 and folder.counts["kernels", "found"] == 1


def test_explain_says_what_came_of_it(folder):
    with torch.no_grad():
        for expected in ("miss", "hit"):
            explanation = mlirc.explain(pointwise)(torch.randn(8))
            assert explanation.data["graphs"][0]["cache"] == expected and f"cache: {expected}" in str(explanation)


# ---- not found


def test_what_is_in_the_key(folder, monkeypatch):
    x = torch.randn(16)
    run(pointwise, x)
    run(pointwise, x, pipeline="strict")
    run(pointwise, x.double())
    run(pointwise, x[::2])
    monkeypatch.setenv("MLIRC_VECTOR_BYTES", "16")
    run(pointwise, x)
    monkeypatch.delenv("MLIRC_VECTOR_BYTES")
    assert states() == ["miss"] * 5
    run(pointwise, x)
    assert states() == ["hit"]
    monkeypatch.setattr(environment, "_build_identity", lambda: ["another version"])
    run(pointwise, x)
    assert states() == ["miss"]


def test_graphs_that_are_not_kept_say_why(folder, tmp_path):
    x = torch.randn(8)
    run(pointwise, x, cache=False)
    run(pointwise, x, dump=str(tmp_path / "dump"))
    run(lambda x: torch.cond(x.sum() > 0, lambda x: x + torch.rand(8), lambda x: x - 1, (x,)), x)
    off = states()
    assert (
        off[0] == "off: the option 'cache' is False"
        and "'dump'" in off[1]
        and off[-1].startswith("off: the graph needs an object that has no text")
    )
    assert not files(folder)


PASS = """
from dataclasses import dataclass
from mlirc.lowering.pipeline.pass_manager import register

@register
@dataclass(frozen=True)
class Nothing:
    '''Does nothing.'''

    name = "do-nothing"

    def run(self, function, ledger):
        pass
"""


def test_a_changed_pass_of_somebody_else_is_another_pass(folder, tmp_path):
    path = tmp_path / "their_pass.py"
    pipeline = "do-nothing,to-kernels"
    x = torch.randn(8)
    for text, expected in ((PASS, "miss"), (PASS, "hit"), (PASS + "# changed\n", "miss"), (PASS, "hit")):
        path.write_text(text)
        os.utime(path, (0, mlirc.IMPORTED_AT - 10))  # as it was when this process started
        runpy.run_path(str(path), run_name="their_pass")
        run(pointwise, x, pipeline=pipeline)
        assert states() == [expected]
    os.utime(path, (0, time.time() + 10))
    run(pointwise, x, pipeline=pipeline)
    assert states() == [f"off: {path} was changed after this process started"]


def test_a_changed_module_that_their_pass_uses_is_another_pass(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    texts = {
        "their_helped_pass": "import their_helper\n" + PASS,
        "their_helper": "from their_numbers import number\n",
        "their_numbers": "def number():\n    return 1\n",
        "their_other": "",
    }
    digests = []
    try:
        for changed in ("", "their_numbers", "their_helper", "their_other", ""):
            for name, text in texts.items():
                path = tmp_path / f"{name}.py"
                path.write_text(text + "# changed\n" * (name == changed))
                os.utime(path, (0, mlirc.IMPORTED_AT - 10))
            importlib.import_module("their_helped_pass")
            digests.append(foreign_sources({"simplify": "do-nothing"}))
    finally:
        for name in texts:
            sys.modules.pop(name, None)
    assert digests[0] == digests[3] == digests[4] and len(set(digests)) == 3


# ---- processes

SCRIPT = """
import json, torch
from torch import nn
from mlirc.frontend import statistics
from mlirc.frontend.cache.foreign_sources import foreign_sources
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8))
x = torch.randn(4, 32)
compiled = torch.compile(model, backend="mlirc", options={"fallback": "error"})
with torch.no_grad():
    inferred = compiled(x)
loss = compiled(x).square().mean()
loss.backward()
gradients = [p.grad.double().sum().item() for p in model.parameters()]
states = [(g.kind, g.cache, g.tracing, "lower" in g.seconds) for g in statistics.graphs]
print(json.dumps([inferred.tolist(), loss.item(), gradients, states]))
"""


def test_processes_share_it_and_may_start_at_once(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    environment_ = os.environ | {
        "MLIRC_CACHE_DIR": str(tmp_path),
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "error::UserWarning:mlirc",
    }
    command = [sys.executable, str(tmp_path / "script.py")]

    def finished(process):
        out, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        assert "disk cache" not in errors
        return json.loads(out.splitlines()[-1])

    start = lambda: subprocess.Popen(
        command, env=environment_, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    cold = [finished(process) for process in [start(), start()]]
    warm = finished(start())
    kinds = {"inference": "hit", "forward": "hit", "backward": ""}  # a backward graph is traced with the forward one
    if torch.__version__.startswith(("2.13.", "2.14.")):
        assert warm[3] == [[kind, "hit", tracing, False] for kind, tracing in kinds.items()]
    else:
        assert {cache for _, cache, _, _ in warm[3]} == {"hit"}
    assert warm[:3] == cold[0][:3] == cold[1][:3]
    assert not list(tmp_path.glob("*/.*.part"))


def test_the_command_line_has_a_cache_without_the_front_end(tmp_path):
    code = "from mlirc.codegen.cache.environment import environment; print(len(environment()))"
    done = python("-c", code)
    assert (done.returncode, done.stdout.strip()) == (0, "64"), done.stderr

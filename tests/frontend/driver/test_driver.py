"""A graph goes its way in order; observers hear of each step, and are attached in one file."""

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from mlirc.codegen.tuning import autotune, matmul_tuning
from mlirc.frontend import statistics
from mlirc.frontend.cache.compiled import Compiled
from mlirc.frontend.driver import observers, steps
from mlirc.frontend.driver.pending import Pending
from mlirc.frontend.fallback import in_eager
from mlirc.frontend.graph.observer import Observer, Watch

FRONTEND = Path(__file__).parents[3] / "frontend"
WAY = ["import", "simplify", "fuse", "plan", "lower", "emit", "link"]


class Hears(Observer):
    def __init__(self):
        self.heard, self.threads = [], {}

    def on_step(self, step, made, seconds):
        assert seconds >= 0
        self.heard.append((step, type(made)))
        self.threads[step] = threading.current_thread().ident


@pytest.fixture
def hears(monkeypatch):
    found, attached = Hears(), observers.watch
    monkeypatch.setattr(observers, "watch", lambda graph, cache: Watch([found, *attached(graph, cache).observers]))
    statistics.reset()
    return found


def run(**options):
    torch._dynamo.reset()
    x = torch.randn(3, 8)
    fn = lambda x: x.softmax(-1) + 1
    options = {"fallback": "error", "cache": False} | options
    mode = options.pop("mode", None)
    with torch.no_grad():
        given = {"mode": mode} if mode else {"options": options}
        torch.testing.assert_close(torch.compile(fn, backend="mlirc", **given)(x), fn(x))


def test_the_steps_come_in_order_each_with_its_type(hears):
    run()
    types = [steps.Lowering] * 5 + [steps.Emitted, Compiled]
    assert hears.heard == list(zip(WAY, types, strict=True))
    here = threading.current_thread().ident
    assert {step for step, thread in hears.threads.items() if thread != here} == {"link"}
    assert list(statistics.graphs[0].seconds) == [*WAY[:-1], "wait"]


def test_passes_of_a_users_go_the_same_way(hears):
    run(pipeline="canonicalize,decompose,to-kernels")
    assert [step for step, _ in hears.heard] == ["import", "simplify", "fuse", "plan", "lower", "emit", "link"]


def test_a_step_that_fails_is_the_last_one(hears, monkeypatch):
    def broken(*args, **kwargs):
        raise ValueError("a bug")

    monkeypatch.setattr(steps, "begin_module", broken)
    with pytest.raises(Exception, match=r"emit failed.*a bug"):
        run()
    assert [step for step, _ in hears.heard] == WAY[:-2] and not statistics.graphs


def test_kernels_are_measured_once_when_all_are_lowered(hears, monkeypatch):
    """As on a GPU: a pass asks, and what is measured after the last stage goes into the report."""
    calls = []

    def tune(module, device, hints, left, folder):
        calls.append((len(hears.heard), str(module), left))
        return [autotune.Tuned("kernel_0", "first", {"first": 2.0}, "measured")]

    products = lambda seconds, folder: SimpleNamespace(seconds=seconds, spent=1.0, found=[])
    monkeypatch.setattr(autotune, "on_gpu", lambda module: True)
    monkeypatch.setattr(autotune, "tune", tune)
    monkeypatch.setattr(matmul_tuning, "MatmulTuning", products)
    run(mode="max-autotune-no-cudagraphs")
    ((heard, text, left),) = calls
    assert heard == 5 and "mlircx.run" in text and left == 59.0
    report = statistics.graphs[0]
    assert report.seconds["tune"] >= 1.0 and report.tuned[0]["chosen"] == "first"


def test_observers_are_attached_in_one_file():
    attach = [file.name for file in FRONTEND.rglob("*.py") if "Watch(" in file.read_text()]
    assert attach == ["observers.py"] or sorted(attach) == ["observer.py", "observers.py"]


def test_the_way_is_a_page():
    assert len((FRONTEND / "driver" / "driver.py").read_text().splitlines()) <= 100


def test_a_graph_is_copied_for_later_before_its_machine_code_is_awaited(monkeypatch):
    order, later, result = [], in_eager.later, Pending.result
    monkeypatch.setattr(in_eager, "later", lambda graph: (order.append("copied"), later(graph))[1])
    monkeypatch.setattr(Pending, "result", lambda pending: (order.append("awaited"), result(pending))[1])
    run()
    assert order == ["copied", "awaited"]

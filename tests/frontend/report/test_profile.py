"""The option `profile` and mlirc.explain(fn, profile=True): each op is timed and labelled; without it nothing is emitted."""

import contextlib
import json
import threading
import types

import pytest
import torch

import mlirc
from mlirc.codegen.cache.folder import VARIABLE
from mlirc.codegen.emit.emit import compile_module
from mlirc.codegen.host import program
from mlirc.codegen.host.host_program import host_program
from mlirc.codegen.host.parts import HostRange
from mlirc.codegen.host.range_profile import RangeProfile
from mlirc.codegen.host.ranges import BEGIN, CLOCK, END, ENDED, STARTED
from mlirc.codegen.llvm.ir_text import LlvmFunctionText
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.frontend import statistics
from mlirc.frontend.report import machine_rates
from mlirc.frontend.report.machine_rates import copy_rate, matmul_rate
from mlirc.frontend.report.profile import profile_rows
from mlirc.lowering.module.target_attribute import ensure_target
from mlirc.lowering.pipeline.pass_manager import functions, run_pipeline
from mlirc.lowering.pipeline.pipelines import pipeline

PROFILED = {"profile": True, "fallback": "error"}
GRAPH = """
func.func @graph(%x: tensor<8x16xf32>, %w: tensor<16x8xf32>) -> tensor<8x8xf32> attributes {mlirc.results = ["g0"]} {
  %0 = "mlirc.matmul"(%x, %w) : (tensor<8x16xf32>, tensor<16x8xf32>) -> tensor<8x8xf32>
  %1 = "mlirc.exp"(%0) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}
"""


def model(x, w):
    h = (x @ w).relu()
    return h.cumsum(0).sort(-1)[0] + 1


def tensors():
    return torch.randn(64, 32), torch.randn(32, 48)


def test_rows_say_what_took_how_long():
    explained = mlirc.explain(model, profile=True, options={"fallback": "error"})(*tensors())
    (graph,) = explained.data["graphs"]
    rows = graph["profile"]
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    assert rows == sorted(rows, key=lambda row: -row["seconds"]) and rows[-1]["seconds"] > 0
    sort = next(row for row in rows if row["label"] == "aten.sort.default")
    assert (sort["kind"], sort["times"], sort["flops"]) == ("ATen", 1, 0)
    line = model.__code__.co_firstlineno + 1
    product = next(row for row in rows if f"{__file__}:{line}" in row["lines"])
    assert product["flops"] >= 2 * 64 * 32 * 48 and product["read"] == 4 * (64 * 32 + 32 * 48)
    assert product["written"] == 4 * 64 * 48
    for row in rows:
        if row["kind"] != "allocation":
            assert row["floor"] > 0 and row["of_floor"] == pytest.approx(row["floor"] / row["seconds"])
    assert json.loads(json.dumps(explained.data)) and "of floor" in str(explained)
    assert "of floor" not in str(mlirc.explain(model)(*tensors()))


def test_a_floor_is_bytes_or_operations_at_the_measured_rate():
    timed = HostRange(
        "kernel", "copy", [], "float32", "4000000", "4000000", "1000000", work=[4000000, 4000000, 1000000]
    )
    timed.seconds.append(1.0)
    (row,) = profile_rows([timed])
    assert row["floor"] == pytest.approx(8e6 / copy_rate(8000000)) and row["bound"] == "memory"
    timed = HostRange("library", "matmul", [], "float64", "4", "4", "1000000000", work=[4, 4, 1000000000])
    timed.seconds.extend([1.0, 3.0, 2.0])
    (row,) = profile_rows([timed])
    assert (
        row["floor"] == pytest.approx(1 / matmul_rate(torch.float64, device="cpu"))
        and row["bound"] == "arithmetic"
        and (row["seconds"], row["shortest"]) == (2.0, 1.0)
    )
    timed = HostRange("library", "matmul", [], "float32", "4", "4", "1000000000", work=[4, 4, 1000000000])
    timed.seconds.append(1.0)
    (row,) = profile_rows([timed])  # also where there is a GPU
    assert row["floor"] == pytest.approx(1 / matmul_rate(torch.float32, device="cpu"))
    timed = HostRange("kernel", "exp", [], "float32", "4*s0", "4", "1")
    timed.seconds.append(1.0)
    assert profile_rows([timed])[0]["floor"] is None


def test_a_range_has_the_device_of_what_it_writes():
    from mlirc.codegen.host.ranges import range_of
    from mlirc.dialects.core.context import context, ir
    from mlirc.lowering.analysis.work import Work

    text = """func.func @graph(%0: tensor<4xf32, {device = "cuda:1"}>) -> tensor<4xf32, {device = "cuda:1"}> {
      %1 = "mlirc.exp"(%0) : (tensor<4xf32, {device = "cuda:1"}>) -> tensor<4xf32, {device = "cuda:1"}>
      return %1 : tensor<4xf32, {device = "cuda:1"}>
    }"""
    with context():
        module = ir.Module.parse(text)
        op = module.body.operations[0].regions[0].blocks[0].operations[0]
        made = range_of(op, "kernel", Work())
    assert (made.device, made.gpu) == ("cuda", 1)


def test_a_range_is_timed_by_its_gpu(monkeypatch):
    """Whichever is current: events of two GPUs have no time between them."""
    current, recorded = [0], []

    class Event:
        def __init__(self, enable_timing):
            self.place = current[0]

        def record(self):
            recorded.append((self.place, current[0]))

        synchronize = lambda self: None
        elapsed_time = lambda self, other: 1.0

    @contextlib.contextmanager
    def device(index):
        before, current[0] = current[0], index
        yield
        current[0] = before

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", lambda name: None)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: None)
    ranges = [HostRange("kernel", "exp", [], "float32", "4", "4", "1", "cuda", gpu) for gpu in (1, 0)]
    profile = RangeProfile(ranges, on_gpu=True)

    def call(inputs):
        for number in (0, 1):
            profile._begun(number)
            profile._ended(number, None, None, 4, 4, 1)
        return inputs

    profile.around(call)([])
    assert recorded == [(1, 1), (1, 1), (0, 0), (0, 0)]
    assert [list(x.seconds) for x in ranges] == [[1e-3], [1e-3]]


def test_bad_indices_of_every_gpu_are_waited_for_at_the_end(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: waited.append(device))
    slots = torch.zeros(3, dtype=torch.int64)
    monkeypatch.setattr(program, "_noted", [(slots, [], {1}), (slots, [], {0, 1})])
    program.tell_unread()
    assert waited == [0, 1]


def test_the_machine_s_rates_are_of_as_many_threads_as_compute():
    before = torch.get_num_threads()
    try:
        rates = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            rates.append(matmul_rate(torch.float64, size=64))
        assert rates[0] != rates[1]
    finally:
        torch.set_num_threads(before)


def test_of_a_table_of_embeddings_the_rows_that_are_read_count():
    def embedded(i, w):
        return torch.nn.functional.embedding(i, w) + 1

    explained = mlirc.explain(embedded, profile=True, dynamic=True, options={"fallback": "error"})
    (graph,) = explained(torch.tensor([2, 5, 2]), torch.randn(3000, 17)).data["graphs"]
    (row,) = [row for row in graph["profile"] if row["kind"] == "kernel"]
    assert (row["read"], row["written"]) == (3 * 8 + 3 * 17 * 4, 3 * 17 * 4)


def test_symbolic_sizes_are_those_of_the_last_call():
    def scaled(x, w):
        return torch.softmax(x @ w, -1) * x.sum(-1, keepdim=True)

    explained = mlirc.explain(scaled, profile=True, dynamic=True, options={"fallback": "error"})
    (graph,) = explained(torch.randn(31, 24), torch.randn(24, 40)).data["graphs"]
    rows = [row for row in graph["profile"] if row["kind"] != "allocation"]
    assert all(row["floor"] > 0 for row in rows)
    (matmul,) = [row for row in rows if row["kind"] == "library"]
    assert (matmul["flops"], matmul["written"]) == (2 * 31 * 24 * 40, 4 * 31 * 40)


def test_backward_graphs_have_rows():
    layer = torch.nn.Linear(8, 4)
    explained = mlirc.explain(lambda x: layer(x).tanh().sum(), profile=True, options={"fallback": "error"})(
        torch.randn(3, 8)
    )
    forward, backward = explained.data["graphs"]
    assert (forward["kind"], backward["kind"]) == ("forward", "backward")
    assert forward["profile"] and backward["profile"]
    assert layer.weight.grad is None


def test_kernels_have_their_labels_in_traces():
    compiled = torch.compile(model, backend="mlirc", options=PROFILED)
    with torch.no_grad():
        compiled(*tensors())
        with torch.profiler.profile() as trace:
            compiled(*tensors())
    labels = [f"mlirc: {timed.label}" for timed in statistics.graphs[-1].profile]
    events = [event for event in trace.events() if event.name.startswith("mlirc: ")]
    assert [event.name for event in events] == labels and "mlirc: aten.sort.default" in labels
    sort = next(event for event in events if event.name == "mlirc: aten.sort.default")
    assert "aten::sort" in {child.name for child in sort.cpu_children}


def test_an_op_that_fails_closes_its_range():
    def look_up(table, index):
        return table.exp()[index] + 1

    table = torch.randn(4, 3)
    compiled = torch.compile(look_up, backend="mlirc", options=PROFILED)
    with torch.no_grad(), torch.profiler.profile() as trace:
        compiled(table, torch.tensor([1, 2]))
        with pytest.raises(IndexError):
            compiled(table, torch.tensor([1, 9]))
        torch.profiler.record_function("after").__enter__().__exit__(None, None, None)
        torch.testing.assert_close(compiled(table, torch.tensor([1, 2])), look_up(table, torch.tensor([1, 2])))
    (after,) = [event for event in trace.events() if event.name == "after"]
    assert after.cpu_parent is None or not after.cpu_parent.name.startswith("mlirc: ")


def test_threads_may_call_at_once():
    compiled = torch.compile(model, backend="mlirc", options=PROFILED)
    given, results = tensors(), []

    def call():
        with torch.no_grad():
            results.extend(compiled(*given) for _ in range(10))

    call()
    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 50 and all(torch.equal(result, results[0]) for result in results)
    assert {len(timed.seconds) for timed in statistics.graphs[-1].profile} == {50}


@pytest.fixture
def lowered(tmp_path):
    """The function of a graph, with what keeps it."""
    with torch.no_grad():
        torch.compile(model, backend="mlirc", options={"dump": str(tmp_path)})(*tensors())
    (file,) = tmp_path.glob("*_lower.mlir")
    with context():
        module = ir.Module.parse(file.read_text())
        yield next(f for f in functions(module) if f.name.value == "graph"), module


def test_the_host_program_is_the_same_without_it(lowered, monkeypatch):
    """Less the lines of the marks, which are calls of three links, the profiled program is the other one, byte for byte."""
    off, on = host_program(lowered[0]), host_program(lowered[0], profile=True)
    assert not off.ranges and not [name for name in off.links if name.startswith("profile")]
    assert on.text.count("alloca") == off.text.count("alloca") + 2
    assert set(on.links) - set(off.links) == {BEGIN, END, CLOCK}
    labels = [timed.label for timed in on.ranges if timed.kind != "allocation"]
    assert "aten.sort.default" in labels and "relu_cumsum" in labels
    call_link = LlvmFunctionText.call_link

    def without_marks(self, name, signature, *arguments):
        return "" if name in (BEGIN, END, CLOCK) else call_link(self, name, signature, *arguments)

    monkeypatch.setattr(LlvmFunctionText, "call_link", without_marks)
    lines = host_program(lowered[0], profile=True).text.splitlines()
    places = [line for line in lines if line.strip().startswith((f"{STARTED} =", f"{ENDED} ="))]
    assert len(places) == 2 and [line for line in lines if line not in places] == off.text.splitlines()


def test_a_program_without_it_is_called_as_before(monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    compiled = torch.compile(model, backend="mlirc", options={"fallback": "error"})
    profiled = torch.compile(model, backend="mlirc", options=PROFILED)
    made = []
    for call in (compiled, profiled, compiled, profiled):
        torch.compiler.reset()
        with torch.no_grad():
            made.append(call(*tensors()).shape)
        assert bool(statistics.graphs[-1].profile) == (call is profiled)
        assert statistics.graphs[-1].cache.startswith("off: the option 'profile'") == (call is profiled)
    with context():
        module = ir.Module.parse(GRAPH)
        ensure_target(module)
        run_pipeline(module, pipeline("cpu"))
        assert isinstance(compile_module(module).native, types.BuiltinFunctionType)
        assert not isinstance(compile_module(module, profile=True).native, types.BuiltinFunctionType)


def test_the_rate_of_copies_where_threads_wait(monkeypatch):
    """A thread whose processor another process has holds up each copy that is shared: one thread's copies tell the rate then."""
    times = iter((1.0, 1e-4))
    monkeypatch.setattr(machine_rates, "shortest", lambda work, device: (work(), next(times))[1])
    machine_rates._copy_rate.cache_clear()
    try:
        assert machine_rates.copy_rate(1 << 20) == (1 << 20) / 1e-4
    finally:
        machine_rates._copy_rate.cache_clear()

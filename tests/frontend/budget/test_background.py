"""The background of the option compile_seconds: failures, threads, forks, exits, interrupts, and what is kept and freed."""

import gc
import os
import signal
import threading
import time
import warnings
import weakref

import pytest
import torch
from torch import nn

import mlirc
from mlirc.codegen.cache import folder as cache_folder
from mlirc.codegen.process import background
from mlirc.frontend import statistics
from mlirc.frontend.budget import jobs, quick_run
from mlirc.frontend.driver import steps
from mlirc.frontend.graph.aten_graph import AtenGraph
from mlirc.frontend.options import Options
from tests.forked_programs import python

QUICK = {"compile_seconds": 0}


def model():
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))


def compiled(fn, **options):
    return torch.compile(fn, backend="mlirc", options=QUICK | options)


@pytest.fixture(params=["import_aten"])
def held(monkeypatch, request):
    """The background waits at a step until this event is set; `reached` is set once it does. Nothing is left of other tests."""
    mlirc.finish_compiling()
    event, step = threading.Event(), getattr(steps, request.param)
    event.reached = threading.Event()

    def wait(*given):
        event.reached.set()
        return event.wait(30) and step(*given)

    monkeypatch.setattr(steps, request.param, wait)
    yield event
    event.set()
    mlirc.finish_compiling()


def test_a_first_call_has_its_best_code_if_that_is_there_in_time():
    net, x = model().eval(), torch.randn(5, 8)
    statistics.reset()
    with torch.no_grad():
        run = torch.compile(net, backend="mlirc", options={"compile_seconds": 60})
        torch.testing.assert_close(run(x), net(x))
    (graph,) = statistics.graphs
    assert not graph.quick and not graph.quick_calls and graph.kernels


def test_without_the_option_there_is_no_thread_and_nothing_is_imported(tmp_path):
    program = "import sys, torch\nprint(torch.compile(lambda x: x + 1, backend='mlirc')(torch.ones(2)))\n"
    done = python("-c", program + "assert 'mlirc.frontend.budget.jobs' not in sys.modules")
    assert done.returncode == 0, done.stderr


def test_explain_says_what_is_still_to_come(held):
    explained = mlirc.explain(model(), options=QUICK)(torch.randn(5, 8))
    assert [graph["quick_calls"] for graph in explained.data["graphs"]] == [1, 1]
    assert all(graph["quick"] for graph in explained.data["graphs"])
    assert "quick code, 1 call; its best code is still to come" in str(explained)


@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
def test_a_failure_keeps_the_quick_code_and_is_counted(monkeypatch, train):
    def fail(*given):
        raise RuntimeError("planted")

    monkeypatch.setattr(steps, "import_aten", fail)
    net, x = model(), torch.randn(5, 8)
    statistics.reset()
    with warnings.catch_warnings(record=True) as told, torch.set_grad_enabled(train):
        warnings.simplefilter("always")
        run = compiled(net)
        for _ in range(3):
            result = run(x)
            torch.testing.assert_close(result, net(x))
            if train:
                result.sum().backward()
            mlirc.finish_compiling()
    graphs = 2 if train else 1
    assert sum(statistics.fallbacks.values()) == graphs
    assert [graph.fallback for graph in statistics.graphs] == list(statistics.fallbacks.elements())
    assert all("RuntimeError: planted" in graph.fallback for graph in statistics.graphs)
    assert sum("planted" in str(one.message) for one in told) == graphs
    assert not any(graph.quick for graph in statistics.graphs)


def test_a_failure_is_raised_at_the_next_call_where_nothing_may_run_instead(monkeypatch):
    def fail(*given):
        raise RuntimeError("planted")

    monkeypatch.setattr(steps, "import_aten", fail)
    run, x = compiled(torch.sin, fallback="error"), torch.randn(5, 8)
    torch.testing.assert_close(run(x), x.sin())
    mlirc.finish_compiling()
    with pytest.raises(RuntimeError, match="planted"):
        run(x)


def test_a_model_compiled_ahead_has_its_best_code():
    net, x = model().eval(), torch.randn(5, 8)
    statistics.reset()
    for ahead in (net, lambda x: x[x > 0] + net(x).sum()):
        run = mlirc.compile(ahead, (x,), options=QUICK)
        torch.testing.assert_close(run(x), ahead(x))
    assert statistics.graphs and not any(graph.quick or graph.quick_calls for graph in statistics.graphs)


def test_an_error_of_the_users_passes_through_quick_code():
    run = compiled(lambda table, k: table[k] + 1)
    with pytest.raises(IndexError):
        run(torch.randn(3), torch.tensor([5]))
    torch.testing.assert_close(run(torch.arange(3.0), torch.tensor([1])), torch.tensor([2.0]))


def test_quick_code_and_the_graph_are_freed_after_the_swap(monkeypatch):
    made = []
    quick_code = quick_run.quick_code

    def noted(graph):
        run = quick_code(graph)
        made.extend([weakref.ref(run), weakref.ref(graph.gm)])
        return run

    monkeypatch.setattr(quick_run, "quick_code", noted)
    run, x = compiled(lambda x: (x.sin() @ x).cos()), torch.randn(4, 4)
    run(x)
    mlirc.finish_compiling()
    run(x)
    gc.collect()
    assert len(made) == 2 and [ref() for ref in made] == [None, None]


def test_a_graph_that_nobody_calls_any_more_is_not_compiled(held):
    statistics.reset()
    run, x = compiled(lambda x: x.sin().cos()), torch.randn(5)
    run(x)
    del run
    torch._dynamo.reset()
    gc.collect()
    held.set()
    mlirc.finish_compiling()
    end = time.monotonic() + 20
    while (jobs._queue.running or jobs._queue.queue) and time.monotonic() < end:
        time.sleep(0.01)
    (graph,) = statistics.graphs
    assert not graph.kernels and not jobs._queue.running


def test_threads_that_call_while_the_best_code_is_swapped_in():
    net, xs = model().eval(), torch.randn(6, 5, 8)
    expected = [net(x).detach() for x in xs]
    run, wrong, ended = compiled(net), [], threading.Event()

    def call(k):
        with torch.no_grad():
            while not ended.is_set():
                result = run(xs[k])
                if not torch.allclose(result, expected[k], atol=1e-5):
                    wrong.append(k)

    with torch.no_grad():
        run(xs[0])
        threads = [threading.Thread(target=call, args=(k,)) for k in range(6)]
        for thread in threads:
            thread.start()
        mlirc.finish_compiling()
        run(xs[0])
        ended.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_best_code_is_kept_on_disk_and_a_warm_start_runs_it_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv(cache_folder.VARIABLE, str(tmp_path))
    x, seen = torch.randn(5, 8), []
    for _ in range(2):
        torch._dynamo.reset()
        statistics.reset()
        torch.manual_seed(0)
        result = compiled(model())(x)
        result.sum().backward()
        seen.append([(graph.kind, graph.cache, graph.quick_calls, graph.tracing) for graph in statistics.graphs])
        mlirc.finish_compiling()
    assert seen[0] == [("forward", "miss", 1, "miss"), ("backward", "miss", 1, "")]
    assert seen[1] == [("forward", "hit", 0, "hit"), ("backward", "hit", 0, "")]


def test_a_fork_while_the_background_works():
    net, x = model().eval(), torch.randn(5, 8)
    with torch.no_grad():
        expected = net(x)
        for wait in (0.0, 0.05, 0.2):
            torch._dynamo.reset()
            run = compiled(net)
            run(x)
            time.sleep(wait)
            child = os.fork()
            if child == 0:
                same = torch.allclose(run(x), expected, atol=1e-5)
                mlirc.finish_compiling()
                same = same and torch.allclose(run(x), expected, atol=1e-5) and not statistics.graphs[-1].quick
                os._exit(0 if same else 1)
            assert ended(child) == 0
            mlirc.finish_compiling()
            assert not statistics.graphs[-1].quick
            torch.testing.assert_close(run(x), expected)


def ended(child):
    """The exit code of a process that ends within a minute."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        number, status = os.waitpid(child, os.WNOHANG)
        if number:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "it does not end"


PROGRAM = """
import sys, time, torch
net = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()) for _ in range(20)])
run = torch.compile(net, backend="mlirc", options={{"compile_seconds": 0}})
run(torch.randn(5, 8)).sum().backward()
time.sleep({wait})
{end}
"""
ENDS = {"return": "", "exit": "sys.exit(3)", "error": "raise SystemExit(4)"}


@pytest.mark.thinned
@pytest.mark.parametrize("wait", [0, 0.3])
@pytest.mark.parametrize("end", ENDS)
def test_the_process_ends_while_the_background_works(end, wait):
    start = time.monotonic()
    done = python("-c", PROGRAM.format(wait=wait, end=ENDS[end]))
    assert done.returncode == {"return": 0, "exit": 3, "error": 4}[end]
    assert not done.stderr and not done.stdout
    assert time.monotonic() - start < 60


def test_an_interrupt_while_somebody_waits(held):
    run, x = compiled(lambda x: x.sin().cos()), torch.randn(5)
    run(x)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            mlirc.finish_compiling()
    finally:
        signal.signal(signal.SIGALRM, before)
    torch.testing.assert_close(run(x), x.sin().cos())
    held.set()
    mlirc.finish_compiling()
    assert not statistics.graphs[-1].quick
    torch.testing.assert_close(run(x), x.sin().cos())


def test_without_a_thread_who_waits_does_the_work(monkeypatch):
    monkeypatch.setattr(background, "_new_thread", lambda *given: False)
    monkeypatch.setattr(jobs, "_queue", background.WorkQueue(lambda: 1))
    run, x = compiled(lambda x: x.sin().cos()), torch.randn(5)
    torch.testing.assert_close(run(x), x.sin().cos())
    assert statistics.graphs[-1].quick
    mlirc.finish_compiling()
    assert not statistics.graphs[-1].quick
    torch.testing.assert_close(run(x), x.sin().cos())


@pytest.mark.parametrize("held", ["import_aten", "emit"], indirect=True)
def test_an_operator_that_is_overridden_before_the_swap(held):
    run, x = compiled(lambda x: torch.nn.functional.silu(x) * 2), torch.randn(5)
    run(x)
    library = torch.library.Library("aten", "IMPL")
    try:
        assert held.reached.wait(30)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            library.impl("silu", lambda x: x + 100, "CPU")
        held.set()
        mlirc.finish_compiling()
        torch.testing.assert_close(run(x), (x + 100) * 2)
    finally:
        library._destroy()
    torch.testing.assert_close(run(x), torch.nn.functional.silu(x) * 2)


def test_work_ends_between_two_steps_once_the_process_ends(monkeypatch):
    steps_done = []

    def do():
        for k in range(3):
            job.between_steps()
            steps_done.append(k)
            queue.closed = True

    monkeypatch.setattr(jobs, "_queue", queue := background.WorkQueue(lambda: 1))
    job = jobs.Job(do, lambda: True)
    job.submit()
    job.wait()
    assert steps_done == [0] and not job.done


@torch.library.custom_op("budget::columns", mutates_args=())
def columns(x: torch.Tensor) -> torch.Tensor:
    return x.t().exp().contiguous().t()


columns.register_fake(lambda x: torch.empty(x.shape))  # not the strides that it gives
columns.register_autograd(
    lambda ctx, grad: grad * ctx.saved_tensors[0],
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output),
)


def test_what_is_saved_lies_as_the_backward_graph_was_compiled_for():
    x = torch.randn(5, 8, requires_grad=True)
    result = compiled(lambda x: columns(x).sin())(x)
    mlirc.finish_compiling()
    (found,) = torch.autograd.grad(result.sum(), x)
    torch.testing.assert_close(found, x.exp().cos() * x.exp())
    (saved,) = quick_run.quick_code(forward_graph(x))([x.detach()])
    assert saved.stride() == (8, 1)
    torch.testing.assert_close(saved, x.detach().exp())


def forward_graph(x):
    """A forward graph that promises rows where the operator gives columns."""
    graph = torch.fx.Graph()
    given = graph.placeholder("x")
    made = graph.call_function(torch.ops.budget.columns.default, (given,))
    graph.output((made,))
    for node in (given, made):
        node.meta["val"] = x.detach()
    gm = torch.fx.GraphModule({}, graph)
    return AtenGraph(gm, "forward", Options(dump=None), statistics.GraphReport("forward"))


class Deep(nn.Module):
    """Layers of a transformer, as a user writes them."""

    def __init__(self, layers=24, d=64):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleList([nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d), nn.LayerNorm(d), nn.Linear(d, d)])
            for _ in range(layers)
        )

    def forward(self, x):
        for first, qkv, out, second, last in self.layers:
            b, t, d = x.shape
            q, k, v = (y.view(b, t, 4, d // 4).transpose(1, 2) for y in qkv(first(x)).chunk(3, -1))
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v)
            x = x + out(y.transpose(1, 2).reshape(b, t, d))
            x = x + torch.nn.functional.gelu(last(second(x)))
        return x


@pytest.mark.parametrize("train", [False, pytest.param(True, marks=pytest.mark.full)], ids=["inference", "training"])
def test_the_first_call_of_a_large_graph_keeps_to_its_budget(train, held):
    """CPU seconds of the calling thread beyond tracing: at most the budget and as much again. Of it is counted what mlirc does
    from AOTAutograd's graph to the end of the first call."""
    from mlirc.frontend.driver import driver

    net, x, spent = Deep(24 if train else 8), torch.randn(2, 16, 64), []

    def timed(work):
        def run(*given):
            start = time.thread_time()
            try:
                return work(*given)
            finally:
                spent.append(time.thread_time() - start)

        return run

    patch = pytest.MonkeyPatch()
    try:
        patch.setattr(driver, "compile_part", timed(driver.compile_part))
        run = torch.compile(net, backend="mlirc", options={"compile_seconds": 0.1})
        with torch.set_grad_enabled(train):
            result = run(x)
            if train:
                result.sum().backward()
    finally:
        patch.undo()
    assert len(spent) == (2 if train else 1)
    assert max(spent) < 0.2, spent
    assert all(graph.quick_calls == 1 for graph in statistics.graphs[-len(spent) :])
    del run, result
    torch._dynamo.reset()
    gc.collect()  # nobody wants the best code any more

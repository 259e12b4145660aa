"""cond, while_loop, scan, map and nested_compile_region on a GPU: eager's answers, without a function that runs in eager."""

import time

import pytest
import torch
import torch.nn.functional as F
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops.map import map as each
from torch.utils._pytree import tree_leaves

from mlirc.frontend import statistics
from tests.frontend.capture import test_nested_regions as nested
from tests.frontend.capture import test_regions as regions

OPTIONS = {"fallback": "error"}


@pytest.fixture(autouse=True)
def forget():
    torch._dynamo.reset()
    statistics.reset()
    torch.manual_seed(0)


def check(fn, *inputs, gradients=False, dynamic=None, options=OPTIONS, limit=2e-5):
    """Compares two calls with eager, of inputs and of their negatives, up to `limit`; nothing of a function runs in eager."""
    compiled = torch.compile(fn, backend="mlirc", fullgraph=True, dynamic=dynamic, options=options)
    for sign in (1, -1):
        found = []
        for run in (fn, compiled):
            given = [(x * sign if x.is_floating_point() else x).detach() for x in inputs]
            given = [x.requires_grad_(gradients and x.is_floating_point()) for x in given]
            made = tree_leaves(run(*given))
            if gradients:
                wanted = [x for x in given if x.requires_grad]
                ends = [(z * z).sum() for z in made if z.requires_grad]
                made += torch.autograd.grad(torch.stack(ends).sum(), wanted, allow_unused=True)
            found.append(made)
        for have, want in zip(found[1], found[0], strict=True):
            assert (have is None) == (want is None)
            if have is not None:
                assert (have.device, have.dtype, have.stride()) == (want.device, want.dtype, want.stride())
                torch.testing.assert_close(have, want, rtol=limit, atol=limit, equal_nan=True)
    assert not [name for graph in statistics.graphs for name in graph.aten if "higher_order" in name]
    return compiled


def cuda(*shape, dtype=torch.float32):
    return torch.randn(shape, device="cuda").to(dtype)


def on_the_gpu(x, y):
    """Its counter is, and tensors that it makes."""
    start = torch.zeros((), dtype=torch.int64, device="cuda")
    scale = lambda: torch.arange(4, device="cuda", dtype=torch.float32)
    body = lambda n, a: (n + 1, torch.where(scale()[:, None] == n, 7.0, a * scale()) + a.index_select(0, n.reshape(1)))
    return while_loop(lambda n, a: n < 3, body, (start, x))


ON_A_CPU = (regions.own_tensors, regions.rows)  # what they make is on the CPU
FUNCTIONS = [on_the_gpu, *(fn for fn in regions.ALL if fn not in ON_A_CPU)]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_the_functions_that_a_cpu_is_tested_with(fn, dynamic):
    """Most counters are on the CPU."""
    with torch.no_grad():
        check(fn, cuda(4, 4), cuda(4, 4), dynamic=dynamic)


@pytest.mark.parametrize("fn", [lambda x: torch.tensor(0) + x.sum(), lambda x: times_of_one(x)], ids=["plain", "loop"])
def test_tensors_are_on_the_default_device_where_dynamo_puts_them(fn):
    """Wherever that is in this version: with another backend it is the same."""
    x, devices = cuda(4), []
    torch.set_default_device("cuda")
    try:
        for backend in ("aot_eager", "mlirc"):
            torch._dynamo.reset()
            devices.append([y.device for y in tree_leaves(torch.compile(fn, backend=backend)(x))])
    finally:
        torch.set_default_device(None)
    assert devices[0] == devices[1]


def times_of_one(x):
    return regions.times(1, lambda n, a: (a.sin(),), x)


@pytest.mark.parametrize("name", ["layers", "within", "written", "Layers"])
def test_regions_that_are_compiled_once(name):
    fn, x, w = getattr(nested, name), cuda(4, 4), cuda(4, 4).requires_grad_()
    fn = fn().cuda() if isinstance(fn, type) else fn
    expected = nested.called(fn, x, w)
    compiled = torch.compile(fn, backend="mlirc", fullgraph=True, options=OPTIONS)
    for _ in range(2):
        torch.testing.assert_close(nested.called(compiled, x, w), expected)
    assert not [name for graph in statistics.graphs for name in graph.aten if "higher_order" in name]


def counted(x):
    """The counter is on the CPU: the loop waits for nothing."""
    return while_loop(lambda n, x: n < 20, lambda n, x: (n + 1, (x * 1.01).sin() + n), (torch.tensor(0), x))


def until(x):
    return while_loop(lambda x, n: x.abs().sum() > 100, lambda x, n: (x * 0.7, n + 1), (x, x[0, 0] * 0))


def chosen_on_the_cpu(x, flag):
    return torch.cond(flag.any(), lambda x: x.softmax(-1), lambda x: x.sin() * x, (x,))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_loops(dtype, dynamic):
    with torch.no_grad():
        limit = 5e-2 if dtype == torch.bfloat16 else 2e-5
        check(counted, cuda(33, 65).to(dtype), dynamic=dynamic, limit=limit)
        torch._dynamo.reset()
        check(until, cuda(64, 300).to(dtype), dynamic=dynamic, limit=limit)
        for flag in (True, False):
            torch._dynamo.reset()
            check(chosen_on_the_cpu, cuda(33, 65).to(dtype), torch.tensor([flag]), dynamic=dynamic, limit=limit)


def recurrent(x, h, w, u, b):
    """Library calls, row kernels, and a reduction in each step."""
    step = lambda h, x: (F.layer_norm(torch.tanh(x @ w + h @ u + b), (h.shape[-1],)), (h * x).mean(-1))
    return scan(step, h, x)


def rows(x, h, w, u, b):
    return each(lambda x, w: (x @ w).softmax(-1), x, w)


def branch(x, h, w, u, b):
    return torch.cond(x.sum() > 0, lambda x, w: F.gelu(x[0] @ w), lambda x, w: (x[1] @ w).cumsum(0), (x, w))


def within(x, h, w, u, b):
    turn = lambda h, x: torch.cond(h.sum() > 0, lambda h, x: (h @ u).sin() + x, lambda h, x: h * x + b, (h, x))
    return scan(lambda h, x: (turn(h, x), h + x), h, x)


@pytest.mark.parametrize("sizes", [(7, 16, 64), (3, 5, 33)])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("fn", [recurrent, rows, branch, within], ids=lambda fn: fn.__name__)
def test_gradients(fn, dynamic, sizes):
    """Of rows of 64 floats, and of 33, which do not begin at multiples of 16 bytes."""
    steps, batch, width = sizes
    weights = cuda(width, width) / width**0.5, cuda(width, width) / width**0.5, cuda(width)
    check(fn, cuda(steps, batch, width), cuda(batch, width), *weights, gradients=True, dynamic=dynamic, limit=2e-4)


@pytest.mark.parametrize("mode", ["pointwise", "generic"])
def test_associative_scan(mode):
    """In the mode "pointwise" a gradient is PyTorch's formula, and the operator runs in eager."""
    x, fn = cuda(100, 7) / 2, lambda x: associative_scan(torch.add, x, 0, combine_mode=mode)
    check(fn, x, gradients=mode == "generic", dynamic=False)


def test_attention_and_convolutions_within_a_loop():
    """Calls of ATen's and of cuDNN's in functions."""
    q, image, w = cuda(2, 4, 32, 16, dtype=torch.float16), cuda(2, 8, 14, 14, dtype=torch.float16), cuda(8, 8, 3, 3)

    def fn(q, image, w):
        _, q = while_loop(
            lambda n, q: n < 3, lambda n, q: (n + 1, F.scaled_dot_product_attention(q, q, q)), (torch.tensor(0), q)
        )
        body = lambda n, x: (n + 1, torch.relu(F.conv2d(x, w.half() / 8, padding=1)))
        return q, while_loop(lambda n, x: n < 3, body, (torch.tensor(0), image))[1]

    with torch.no_grad():
        found, want = torch.compile(fn, backend="mlirc", options=OPTIONS)(q, image, w), fn(q, image, w)
    torch.testing.assert_close(found, want, rtol=2e-2, atol=2e-2)


def test_inputs_that_begin_anywhere():
    x = cuda(1 + 5 * 7)[1:].view(5, 7)
    with torch.no_grad():
        check(lambda x: scan(lambda c, r: ((c + r).sin(), c * x.sum(0)), x[0] * 1, x), x)
        check(lambda x: regions.times(3, lambda n, a: ((a * x).sin(),), x * 1), x)


def test_large_tensors_are_not_kept_between_turns():
    """Those of 16 MiB and more are allocated and freed in each turn."""
    x = cuda(2048, 4096)
    fn = lambda x: while_loop(
        lambda n, x: n < 40, lambda n, x: (n + 1, (x.t().contiguous() @ x)[:, :1].t() * 1e-6 + x), (torch.tensor(0), x)
    )
    with torch.no_grad():
        run = torch.compile(fn, backend="mlirc", fullgraph=True, options=OPTIONS)
        torch.testing.assert_close(run(x), fn(x), rtol=1e-4, atol=1e-4)
        run(x)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run(x)
        assert torch.cuda.max_memory_allocated() - before < 8 * x.nbytes


def test_a_bad_index_within_a_loop_is_an_error():
    """Found when the loop asks for its condition; the process's context is lost, so it is one of its own."""
    import subprocess
    import sys

    code = """
import torch
from torch._higher_order_ops import while_loop
x, k = torch.randn(8, device="cuda"), torch.tensor([5, 99], device="cuda")
fn = lambda x, k: while_loop(lambda n, x: n < 3, lambda n, x: (n + 1, x + x[k].sum()), (torch.tensor(0, device="cuda"), x))
try:
    torch.compile(fn, backend="mlirc", options={"fallback": "error"})(x, k)
    torch.cuda.synchronize()
except RuntimeError as error:
    print("raised", "CUDA" in str(error))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert "raised True" in done.stdout, done.stdout + done.stderr[-2000:]


@pytest.mark.parametrize("device", [0, 1])
def test_several_gpus(device, second_gpu):
    """Each turn works on both, from the second one too."""

    def fn(x, y):
        body = lambda n, x, y: (n + 1, (x * 0.5).sin() + y.to(x.device), y.cos() + x.to(y.device))
        return while_loop(lambda n, x, y: (n < 4) & (x.sum() < 1e9).cpu(), body, (torch.tensor(0), x, y))

    x, y = cuda(33), torch.randn(33, device=second_gpu)
    with torch.no_grad(), torch.cuda.device(device):
        run = torch.compile(fn, backend="mlirc", options=OPTIONS)
        for have, want in zip(run(x, y), fn(x, y), strict=True):
            assert have.device == want.device
            torch.testing.assert_close(have, want)
        assert torch.cuda.current_device() == device


def test_the_modes_of_cuda_graphs_and_tuning():
    """A graph with a branch is not recorded; its kernels are tuned."""
    x, y = cuda(64, 64), cuda(64, 64)
    fn = lambda x, y: regions.branches_within(x, y)
    for mode in ("reduce-overhead", "max-autotune-no-cudagraphs"):
        torch._dynamo.reset()
        statistics.reset()
        options = OPTIONS | {"mode": mode, "tune_seconds": 5}
        with torch.no_grad():
            run = torch.compile(fn, backend="mlirc", options=options)
            for _ in range(5):
                torch.testing.assert_close(run(x, y), fn(x, y))
        assert (mode != "reduce-overhead") == ("not recorded" not in statistics.graphs[0].cuda_graph)


@pytest.mark.parametrize("fn", [regions.scanned, nested.layers], ids=lambda fn: fn.__name__)
def test_what_waits_for_nothing_is_recorded(fn):
    x, y = cuda(64, 64), cuda(64, 64)
    run = torch.compile(fn, backend="mlirc", options=OPTIONS | {"mode": "reduce-overhead"})
    with torch.no_grad():
        for _ in range(6):
            torch.testing.assert_close(run(x, y), fn(x, y))
            x = x + 0.25
    assert "not recorded" not in statistics.graphs[0].cuda_graph


def test_a_thousand_small_steps_are_faster_than_eager():
    x = cuda(64, 64)
    fn = lambda x: while_loop(
        lambda n, x: n < 1000, lambda n, x: (n + 1, (x * 0.99 + n).sin().cos()), (torch.tensor(0), x)
    )
    with torch.no_grad():
        run = torch.compile(fn, backend="mlirc", fullgraph=True, options=OPTIONS)
        torch.testing.assert_close(run(x), fn(x))
        took = []
        for call in (run, fn):
            torch.cuda.synchronize()
            start = time.perf_counter()
            call(x)
            torch.cuda.synchronize()
            took.append(time.perf_counter() - start)
    assert 3 * took[0] < took[1], took

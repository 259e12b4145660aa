"""What is kept for each GPU is the second one's where a graph is: streams, recordings, random numbers, kept parameters, libraries, profiles."""

import copy
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops import scan, while_loop

import mlirc
from mlirc.frontend import statistics

OPTIONS = {"fallback": "error"}
pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="this machine has one GPU")


@pytest.fixture(autouse=True)
def forget():
    torch._dynamo.reset()
    statistics.reset()
    torch.manual_seed(0)
    torch.cuda.set_device(0)


def compiled(fn, **options):
    return torch.compile(fn, backend="mlirc", options=OPTIONS | options)


def loop(x):
    return while_loop(
        lambda n, x: (n < 50) & (x.sum() < 1e9).cpu(), lambda n, x: (n + 1, (x * 0.9 + n).sin()), (torch.tensor(0), x)
    )[1]


def branch(x):
    return torch.cond(x.sum() > 0, lambda x: (x @ x).relu(), lambda x: x.cos() - 1, (x,))


def scanned(x):
    return scan(lambda c, x: ((c + x).sin(), c * x), x[0], x)[1]


def drawn(x):
    return F.dropout(x * 2, 0.5) + torch.rand_like(x) + torch.randn(x.shape, device=x.device)


def library(x):
    image = x.view(1, 1, *x.shape).expand(2, 8, -1, -1).to(torch.bfloat16)
    weight = torch.ones(8, 8, 3, 3, device=x.device, dtype=torch.bfloat16)
    return F.gelu(x @ x.t() + x[0]), F.conv2d(image, weight, padding=1).relu()


FUNCTIONS = (loop, branch, scanned, drawn, library)


def check(run, fn, x):
    """Eager's results on x's GPU, whose random numbers move on as eager's; the current GPU stays what it is."""
    current, found = torch.cuda.current_device(), []
    for call in (fn, run):
        torch.cuda.manual_seed_all(7)
        made = call(x)
        states = [torch.cuda.get_rng_state(k) for k in range(2)]
        found.append((made if isinstance(made, tuple) else (made,), states))
    (want, eager_states), (have, states) = found
    assert torch.cuda.current_device() == current
    for a, b in zip(have, want, strict=True):
        assert a.device == b.device == x.device
        torch.testing.assert_close(a, b, rtol=2e-2 if a.dtype == torch.bfloat16 else 1e-4, atol=1e-2)
    for a, b in zip(states, eager_states, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune-no-cudagraphs"])
@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_in_turn(fn, mode):
    """One compiled function, first on the second GPU; the other one is current, or the same."""
    run = compiled(fn, **({} if mode == "default" else {"mode": mode, "tune_seconds": 3}))
    with torch.no_grad():
        for step in range(5):
            for device in (1, 0):
                with torch.cuda.device((device + step) % 2):
                    check(run, fn, torch.randn(64, 64, device=f"cuda:{device}"))


def test_nothing_is_taken_from_the_first_gpu():
    x = torch.randn(256, 256, device="cuda:1")
    torch.cuda.synchronize(0)
    before = torch.cuda.memory_allocated(0), torch.cuda.memory_reserved(0)
    with torch.no_grad():
        for fn in FUNCTIONS:
            check(compiled(fn, mode="reduce-overhead"), fn, x)
    assert (torch.cuda.memory_allocated(0), torch.cuda.memory_reserved(0)) == before


def test_streams_of_their_own():
    """What each stream computes late is waited for; the other GPU's default stream is not."""
    for fn in (loop, branch):
        run = compiled(fn)
        for device in (1, 0):
            with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream(device)):
                late = torch.randn(4096, 4096, device=f"cuda:{device}")
                for _ in range(10):
                    late = torch.tanh(late @ late)
                check(run, fn, late[:64, :64].contiguous())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(64, 256), nn.BatchNorm1d(256), nn.Linear(256, 8)

    def forward(self, x):
        return self.last(F.dropout(F.gelu(self.norm(self.first(x))), 0.25, self.training))


def train(model, call, device, steps=5):
    torch.cuda.manual_seed_all(3)
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(steps):
        x = torch.randn(32, 64, generator=generator).to(device)
        optimizer.zero_grad()
        call(x).square().mean().backward()
        optimizer.step()
    return [*model.parameters(), *model.buffers()]


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_training_while_the_first_is_current(mode):
    for device in ("cuda:1", "cuda:0"):
        torch.manual_seed(5)
        model = Net().to(device)
        twin = copy.deepcopy(model)
        call = torch.compile(model, backend="mlirc", options=OPTIONS | ({} if mode == "default" else {"mode": mode}))
        for have, want in zip(train(model, call, device), train(twin, twin, device), strict=True):
            torch.testing.assert_close(have, want, rtol=1e-3, atol=1e-3)
        assert torch.cuda.current_device() == 0


def test_kept_parameters_are_those_of_each_gpu():
    """A write to a frozen weight shows, and the other GPU's stays."""
    models = [Net().eval().to(f"cuda:{k}") for k in range(2)]
    runs = [compiled(model, freeze=True) for model in models]
    with torch.no_grad():
        for step in range(4):
            for k, (model, run) in enumerate(zip(models, runs, strict=True)):
                x = torch.randn(4, 64, device=f"cuda:{k}")
                torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-4)
            models[step % 2].first.weight.mul_(1.5)
            models[1].norm.running_mean.add_(0.25)


def test_two_threads():
    """Each on its GPU and stream, with recordings and waits of a loop, while the first GPU is current in the process's first thread."""
    failures, runs = [], {}
    with torch.no_grad():  # while a thread traces, PyTorch lets no other one call what is compiled
        for k in range(2):
            x = torch.randn(64, 64, device=f"cuda:{k}")
            runs[k] = [(fn, compiled(fn, mode="reduce-overhead")) for fn in (loop, branch, scanned, library)]
            for fn, run in runs[k]:
                check(run, fn, x)

    def work(k):
        try:
            with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream(k)):
                for step in range(30):
                    x = torch.randn(64, 64, device=f"cuda:{k}") + step / 8
                    for fn, run in runs[k]:
                        made, want = run(x), fn(x)
                        torch.testing.assert_close(made, want, rtol=2e-2, atol=2e-2)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


@pytest.mark.parametrize(
    "fn",
    [lambda x, y: x + y, lambda x, y: x @ y, lambda x, y: torch.cat([x, y]), lambda x, y: torch.where(x > 0, x, y)],
)
def test_inputs_of_two_gpus_are_eagers_error(fn):
    x, y = (torch.randn(8, 8, device=f"cuda:{k}") for k in range(2))
    for call in (fn, torch.compile(fn, backend="mlirc")):
        with pytest.raises(RuntimeError, match="device"):
            call(x, y)


def test_what_may_be_of_two_gpus():
    """Copies between GPUs, a 0-d tensor of the CPU, indices of the CPU."""
    fn = lambda x, y, s: (x.to(y.device) * 2 + y, x + s, y[torch.tensor([1, 0])] - s, (x.sum() + 1).to(y.device) * 1.0)
    x, y = (torch.randn(8, 8, device=f"cuda:{k}") for k in range(2))
    for device in (0, 1):
        with torch.no_grad(), torch.cuda.device(device):
            run = torch.compile(fn, backend="mlirc", options=OPTIONS)
            for given in ((x, y), (y, x)):
                for have, want in zip(run(*given, torch.tensor(0.5)), fn(*given, torch.tensor(0.5)), strict=True):
                    assert have.device == want.device
                    torch.testing.assert_close(have, want)
            assert torch.cuda.current_device() == device


def test_a_profile_of_the_second_gpu():
    """Ranges are timed by its clock, in its stream."""
    x = torch.randn(2048, 2048, device="cuda:1")
    fn = lambda x: torch.tanh(x @ x).softmax(-1) + 1
    with torch.no_grad():
        run = compiled(fn, profile=True)
        for _ in range(3):
            torch.testing.assert_close(run(x), fn(x), rtol=1e-3, atol=1e-3)
        data = mlirc.explain(fn)(x).data
    assert data["graphs"] and torch.cuda.current_device() == 0

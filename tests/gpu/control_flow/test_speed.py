"""The time of control flow on a GPU: eager's, Inductor's where it takes the program, and ours. `pytest -s` shows it."""

import statistics as numbers
import time
import types

import pytest
import torch
from torch._higher_order_ops import scan, while_loop

ROUNDS = 7


def many_steps(x, w, u):
    """A while_loop of 1,000 small steps."""
    return while_loop(lambda n, x: n < 1000, lambda n, x: (n + 1, (x * 0.99 + n).sin().cos()), (torch.tensor(0), x))[1]


def until_small(x, w, u):
    """A while_loop of some 100 steps, which asks for a number on the GPU in each."""
    return while_loop(lambda x: x.abs().sum() > 100.0, lambda x: (x * 0.9,), (x,))[0]


def recurrent(x, w, u):
    """A scan of 256 steps of a GRU's cell, batch 32, width 128."""

    def cell(h, x):
        reset, update = (x @ w + h @ u).sigmoid().chunk(2, -1)
        h = update * h + (1 - update) * (x * reset).tanh()
        return h.clone(), h.clone()

    return scan(cell, torch.zeros_like(x[0]), x)[1]


def branches(x, w, u):
    """A cond in each of 50 turns of a loop, by a number on the GPU."""

    def body(n, x):
        return n + 1, torch.cond(x.sum() > 0, lambda x: (x * 1.01).sin() - 0.1, lambda x: (x * 0.99).cos() + 0.1, (x,))

    return while_loop(lambda n, x: n < 50, body, (torch.tensor(0), x))[1]


PROGRAMS = {many_steps: (64, 64), until_small: (64, 64), recurrent: (256, 32, 128), branches: (64, 64)}


def seconds(call, inputs):
    torch.cuda.synchronize()
    start = time.perf_counter()
    call(*inputs)
    torch.cuda.synchronize()
    return time.perf_counter() - start


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_time(fn):
    """Medians of calls in turn. Ours is not slower than eager, and right."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    x, w, u = (torch.randn(s, device="cuda") for s in (PROGRAMS[fn], (128, 256), (128, 256)))
    inputs = x, w * 0.05, u * 0.05
    calls = {"eager": fn}
    with torch.no_grad():
        expected = fn(*inputs)
        for name, how in (("Inductor", {}), ("ours", {"options": {"fallback": "error"}})):
            again = types.FunctionType(
                fn.__code__.replace(co_name=name), fn.__globals__
            )  # of its own code: both stay compiled
            run = torch.compile(again, backend="mlirc" if name == "ours" else "inductor", fullgraph=True, **how)
            try:
                found = run(*inputs)
                calls[name] = run
            except Exception as error:
                if name == "ours":
                    raise
                print(f"{fn.__name__}: Inductor: {str(error).splitlines()[0][:100]}")
                continue
            if name == "ours":
                torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        taken = {name: [] for name in calls}
        for _ in range(ROUNDS):
            for name, call in calls.items():
                taken[name].append(seconds(call, inputs))
    medians = {name: 1e3 * numbers.median(times) for name, times in taken.items()}
    print(f"{fn.__name__}: " + ", ".join(f"{name} {ms:.2f} ms" for name, ms in medians.items()))
    assert medians["ours"] <= medians["eager"]

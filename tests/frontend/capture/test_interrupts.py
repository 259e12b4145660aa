"""Ctrl-C at any moment of a first call, then the call again: it compiles, and gives what eager gives."""

import random
import signal
import time
from unittest import mock

import pytest
import torch
from torch import nn
from torch.fx.experimental import symbolic_shapes
from torch.fx.experimental.symbolic_shapes import ShapeEnv


def step(run, model, x):
    result = run(x)
    result.pow(2).sum().backward()
    gradients = [p.grad for p in model.parameters()]
    model.zero_grad()
    return [result.detach(), *gradients]


@pytest.fixture
def interrupted_by_alarm():
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # an interrupt within PyTorch's finalizers
def test_a_first_call_that_is_interrupted(interrupted_by_alarm):
    model, x = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8)), torch.randn(5, 8)
    expected = step(model, model, x)
    for _ in range(2):  # the first one loads what the process needs
        torch._dynamo.reset()
        start = time.perf_counter()
        step(torch.compile(model, backend="mlirc"), model, x)
        span = time.perf_counter() - start
    caught, when = 0, random.Random(0)
    for _ in range(40):
        torch._dynamo.reset()
        compiled = torch.compile(model, backend="mlirc")
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.01 + when.random() * 0.8 * span)
            step(compiled, model, x)
            span *= 0.7  # on a busy machine it was measured too long
        except KeyboardInterrupt:
            caught += 1
        except (
            AssertionError
        ) as error:  # Dynamo's own: patches, interrupted while they are taken back; guards, while they are asked
            assert "CURRENT_PATCHER" in str(error) or "Guard failed on the same frame" in str(error)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        model.zero_grad()
        torch.testing.assert_close(step(compiled, model, x), expected)
        if caught == 8:
            return
    raise AssertionError(f"{caught} first calls of 40 were interrupted")


def test_guards_that_an_interrupt_leaves_off():
    """Ctrl-C between the two halves of PyTorch's own bookkeeping: later graphs of the thread would have no guards."""
    sliced = lambda x, n: x[n:] * max(n, 0)
    x, off = torch.arange(8.0), []

    def exit_late(env):
        if not off:
            off.append(env)
            raise KeyboardInterrupt
        return leave(env)

    torch._dynamo.reset()
    leave, compiled = ShapeEnv._suppress_guards_exit, torch.compile(sliced, backend="mlirc", dynamic=True)
    with mock.patch.object(ShapeEnv, "_suppress_guards_exit", exit_late), pytest.raises(KeyboardInterrupt):
        compiled(x, 3)
    assert symbolic_shapes.TLS.suppress_guards
    for n in (3, -3, 5, 0, -8):
        torch.testing.assert_close(compiled(x, n), sliced(x, n))
    assert not symbolic_shapes.TLS.suppress_guards

"""Ctrl-C at any moment of a first call, then the call again: it compiles, and gives what eager gives."""

import random
import signal
import time

import pytest
import torch
from torch import nn


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

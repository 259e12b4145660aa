"""ATen is tried on a thread that ends at once: what OpenMP keeps for a thread makes others sleep where they wait for each other."""

import os
import time

import pytest
import torch

from mlirc.codegen.process import background
from mlirc.frontend.strides import kernel_dtypes

aten = torch.ops.aten


@pytest.fixture
def two_threads():
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def threads() -> set[str]:
    return set(os.listdir("/proc/self/task"))


def left_of(before: set[str]) -> set[str]:
    """The threads that are new and do not end soon; a thread that waits for more work does so for LINGER seconds."""
    end = time.monotonic() + background.LINGER / 2
    while (new := threads() - before) and time.monotonic() < end:
        time.sleep(0.01)
    return new


def test_no_thread_of_openmp_is_left(two_threads):
    torch.randn(1 << 20).exp()  # the calling thread has its own
    before = threads()
    background.apart(torch.exp, torch.randn(1 << 20))
    assert not left_of(before)


def test_trying_an_operator_leaves_no_thread(two_threads, monkeypatch):
    monkeypatch.setattr(kernel_dtypes, "_known", {})
    torch.randn(1 << 20).exp()
    log, target = torch.randn(64, 10).log_softmax(1), torch.arange(64) % 10
    before = threads()
    given = (torch.tensor(1.0), log, target, None, 1, -100, torch.tensor(64.0))
    assert kernel_dtypes.dtypes_of_kernel(aten.nll_loss_backward.default, given, {}) == [torch.float32]
    assert not left_of(before)


def test_an_error_is_raised(two_threads):
    with pytest.raises(RuntimeError, match="must match the size"):
        background.apart(torch.add, torch.ones(2), torch.ones(3))


def test_without_a_thread_the_work_is_done_all_the_same(monkeypatch):
    monkeypatch.setattr(background, "_new_thread", lambda *work: False)
    torch.testing.assert_close(background.apart(torch.add, torch.ones(2), 1), torch.full((2,), 2.0))

"""Work whose thread cannot start, or dies before it begins, is done by who waits for it."""

import os
import threading
import time
from concurrent.futures import Future

import pytest

from mlirc.codegen.process import background, limits


@pytest.fixture(autouse=True)
def no_threads_yet(monkeypatch):
    """Queues without threads of earlier tests."""
    background.wait_for_all()
    queues = [background.WorkQueue(queue.most) for queue in background.QUEUES]
    monkeypatch.setattr(background, "QUEUES", tuple(queues))
    for name, queue in zip(("STARTED", "COMPUTED", "ATTENDED"), queues, strict=True):
        monkeypatch.setattr(background, name, queue)


def refused(*args):
    raise RuntimeError("can't start new thread")


def without_memory(*args):
    raise MemoryError


def lost(*args):
    """A thread that starts, and ends before it does anything."""
    return 0


@pytest.mark.thinned(5)
@pytest.mark.parametrize("failure", [refused, without_memory, lost])
@pytest.mark.parametrize("begin", [background.start, background.compute, background.attend])
def test_who_waits_does_the_work(monkeypatch, failure, begin):
    monkeypatch.setattr(limits, "start_thread", failure)
    order: list[int] = []
    made = [begin(order.append, k) for k in range(5)]
    made[3].result()
    assert order == [0, 1, 2, 3]  # what was begun before may be needed for it
    background.wait_for_all()
    assert order == [0, 1, 2, 3, 4]
    with pytest.raises(ZeroDivisionError):
        begin(divmod, 1, 0).result()


def test_work_may_wait_for_work_whose_thread_did_not_start(monkeypatch):
    real, calls = limits.start_thread, []

    def first_only(*args):
        calls.append(args)
        return real(*args) if len(calls) == 1 else refused()

    monkeypatch.setattr(limits, "start_thread", first_only)
    told: Future[background.Task] = Future()
    outer = background.start(lambda: told.result().result() + 1)
    told.set_result(background.start(lambda: 41))
    assert outer.result() == 42


def test_threads_that_start_later_take_what_was_left(monkeypatch):
    monkeypatch.setattr(limits, "start_thread", refused)
    left = background.compute(threading.get_ident)
    monkeypatch.undo()
    assert background.compute(threading.get_ident).result() != threading.get_ident()
    assert left.done() or left.result()


def test_an_interrupt_in_work_that_the_waiter_does_reaches_it(monkeypatch):
    monkeypatch.setattr(limits, "start_thread", refused)

    def interrupted():
        raise KeyboardInterrupt

    made = background.compute(interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.result()
    with pytest.raises(background.Interrupted):
        made.result()
    background.wait_for_all()


def test_a_fork_while_work_begins_work():
    """The lock of no queue is held while a fork waits for what may want it."""

    def outer():
        time.sleep(0.05)
        return background.compute(sum, [2, 3]).result()

    made = background.start(outer)
    child = os.fork()
    if child == 0:
        ok = made.done() and background.compute(sum, [2, 3]).result(timeout=20) == 5
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 and made.result() == 5

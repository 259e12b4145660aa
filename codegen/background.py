"""Work that threads do while Python goes on: LLVM takes half of the time that compiling takes, and needs neither the GIL nor MLIR.

A fork waits for it: a child has none of its parent's threads, and would wait for their results for ever. So does the end of
the process, as concurrent.futures has it.
"""

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from typing import Any, TypeVar

import torch

T = TypeVar("T")

TURN = 1e-4
"""Seconds after which Python's threads take turns while there is such work. It wants the GIL for moments, a dozen times, and
would wait for 5 ms each time for a thread that traces or lowers a graph."""

MOST_ATTENDANTS = 16

_lock = threading.Lock()
_unfinished: set[Future] = set()
_usual_turn = 0.0


def start(work: Callable[..., T], *args: Any) -> Future[T]:
    """Calls work(*args) on a thread of its own. It may wait for what was started before it, and must not fork."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="mlirc")
    try:
        return _submit(pool, work, *args)
    finally:
        pool.shutdown(wait=False)


def compute(work: Callable[..., T], *args: Any) -> Future[T]:
    """Calls work(*args) on one of as many threads as PyTorch computes on, for all such work. It must not wait for other work."""
    return _submit(_workers(torch.get_num_threads()), work, *args)


def attend(work: Callable[..., T], *args: Any) -> Future[T]:
    """Calls work(*args), which does little but wait for another process, on one of as many threads as there are cores."""
    return _submit(_attendants(), work, *args)


@cache
def _workers(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="mlirc")


@cache
def _attendants() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(len(os.sched_getaffinity(0)), MOST_ATTENDANTS), thread_name_prefix="mlirc")


def _submit(pool: ThreadPoolExecutor, work: Callable[..., T], *args: Any) -> Future[T]:
    global _usual_turn
    _register()
    with _lock:
        if not _unfinished:
            _usual_turn = sys.getswitchinterval()
            sys.setswitchinterval(min(TURN, _usual_turn))
        future = pool.submit(work, *args)
        _unfinished.add(future)
    future.add_done_callback(_finished)
    return future


def wait_for_all() -> None:
    """Until nothing that was started runs any more."""
    with _lock:
        left = list(_unfinished)
    wait(left)


def _finished(future: Future) -> None:
    with _lock:
        _unfinished.discard(future)
        if not _unfinished:
            sys.setswitchinterval(_usual_turn)


@cache
def _register() -> None:
    os.register_at_fork(before=wait_for_all, after_in_child=_no_threads)


def _no_threads() -> None:
    _workers.cache_clear()
    _attendants.cache_clear()

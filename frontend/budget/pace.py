"""Has the thread that compiles give way to calls of quick code, because both need the GIL.

A thread that wants the GIL waits up to 5 ms for one that computes in Python, and quick code wants it after each of ATen's calls. So
the background pauses while such a call runs. It goes on after a time, as a program may have nothing but such calls.
"""

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from mlirc.dialects.core.fork_locks import fork_lock
from mlirc.frontend.graph.observer import Observer

REST = 4.0  # a pause lasts at most so many times as long as what was done before it
LEAST = 0.01  # seconds of work after which there is a pause
LONGEST = 0.25  # seconds of a pause: what it holds others may want
QUIET = 0.05  # seconds without a call after which work begins
PATIENCE = 2.0  # seconds after which it begins all the same
POLL = 0.005  # seconds

_calls: deque[None] = deque()  # one for each call of quick code that runs
_hurries: deque[None] = deque()  # one for each thread that waits for the background


_symbols = fork_lock()


class _Here(threading.local):
    """When the calling thread last went on, if it is one that gives way."""

    since: float | None = None


_here = _Here()


@contextmanager
def calling() -> Iterator[None]:
    """Around a call of quick code, and what else the background is to give way to."""
    _calls.append(None)
    try:
        yield
    finally:
        _calls.pop()


@contextmanager
def alone() -> Iterator[None]:
    """No other thread reads or changes what tracing knows of a graph's symbols."""
    with _symbols:
        yield


@contextmanager
def tracing() -> Iterator[None]:
    """Around what a thread of the user's does to compile a graph. The background does not pause while that thread waits for it."""
    with ExitStack() as held:
        with hurried():
            held.enter_context(_symbols)
        with calling():
            yield


@contextmanager
def hurried() -> Iterator[None]:
    """Nothing gives way within."""
    _hurries.append(None)
    try:
        yield
    finally:
        _hurries.pop()


@contextmanager
def giving_way() -> Iterator[None]:
    """The calling thread's work is done in the background. Begins it where there is no call for a while."""
    end = time.monotonic() + PATIENCE
    quiet = 0.0
    while quiet < QUIET and time.monotonic() < end and not _hurries:
        time.sleep(POLL)
        quiet = 0.0 if _calls else quiet + POLL
    _here.since = time.monotonic()
    try:
        yield
    finally:
        _here.since = None


def give_way() -> None:
    """Pauses while a call runs; nothing on a thread that others wait for."""
    if _here.since is None:
        return
    now = time.monotonic()
    if now - _here.since < LEAST:
        return
    end = now + min(REST * (now - _here.since), LONGEST)
    while _calls and not _hurries and time.monotonic() < end:
        time.sleep(POLL)
    _here.since = time.monotonic()


class GivesWay(Observer):
    """Gives way after each pass and each kernel; AtenGraph.after_node does after each node."""

    def on_step(self, step: str, made: Any, seconds: float) -> None:
        if step == "import":
            made.after_pass.append(give_way)
            lower = made.given.setdefault("lower-kernels", {})
            lower["listener"] = _listener(lower.get("listener"))


def _listener(first: Any) -> Any:
    """What hears of each kernel: `first`, if there is one, and this."""

    def hear(name: str, kernel: Any) -> None:
        if first is not None:
            first(name, kernel)
        give_way()

    return hear

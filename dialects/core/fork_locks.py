"""Locks that are free in a forked child, which has none of its parent's threads to release them.

    _lock = fork_lock()        a reentrant lock, for a module or an object

The thread that forks takes all of them first, and both processes give them back. It holds none while it waits for one, as who has
that may want another: it takes all or none. What else has to be over before a fork says so by `quiet_before_forks`.

Where a lock is not given back in time, by a thread that waits for the one that forks, the child makes it anew.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

SECONDS = 60.0
"""After which a fork no longer waits."""

log = logging.getLogger("mlirc")

_known: "WeakSet[Any]" = WeakSet()
_adopted: list[Any] = []
_making = threading.RLock()  # whoever adds to these, in a finalizer too
_waits: list[tuple[Callable[[float], None], Callable[[], bool]]] = []


def fork_lock() -> Any:
    """A new reentrant lock."""
    made = threading.RLock()
    with _making:
        _known.add(made)
    return made


def adopt(lock: Any) -> None:
    """Another package's reentrant lock, from now on as one of these."""
    with _making:
        _adopted.append(lock)


def quiet_before_forks(wait: Callable[[float], None], quiet: Callable[[], bool]) -> None:
    """A fork calls wait(seconds) while it holds nothing, until quiet() holds once it has all locks."""
    with _making:
        _waits.append((wait, quiet))


class _Fork(threading.local):
    """What the thread that forks holds."""

    taken: "list[Any]" = []
    left: "list[Any]" = []


_fork = _Fork()


def _before() -> None:
    end, first = time.monotonic() + SECONDS, _making
    while True:
        left = max(end - time.monotonic(), 0)
        taken = _take_all(first if first.acquire(timeout=left) else None)
        busy = [lock for lock in _all() if not any(lock is x for x in taken)]
        if not left or (not busy and all(quiet() for _, quiet in _waits)):
            break
        for lock in reversed(taken):
            lock.release()
        first = busy[0] if busy else _making
        for wait, _ in () if busy else _waits:
            wait(left)
    _fork.taken, _fork.left = taken, busy
    if busy:
        log.warning("mlirc: %d locks are still taken after %d s: a forked child makes them anew", len(busy), SECONDS)


def _all() -> list[Any]:
    return [_making, *_adopted, *_known]


def _take_all(first: Any) -> list[Any]:
    """Those that no other thread has; `first` is taken already."""
    taken = [] if first is None else [first]
    if first is not _making:
        if not _making.acquire(blocking=False):
            return taken
        taken.append(_making)  # from here on there are no new ones
    return taken + [x for x in _all() if x is not first and x is not _making and x.acquire(blocking=False)]


def _give_back() -> None:
    for lock in reversed(_fork.taken):
        lock.release()
    _fork.taken, _fork.left = [], []


def _in_child() -> None:
    for lock in _fork.left:
        lock._at_fork_reinit()
    _give_back()


os.register_at_fork(before=_before, after_in_parent=_give_back, after_in_child=_in_child)

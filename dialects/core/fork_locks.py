"""Locks that are free in a forked child, which has none of its parent's threads to release them.

    _lock = fork_lock()        a reentrant lock, for a module or an object

The forking thread takes all of these locks before the fork, and both processes release them after it. It takes all or none: it holds no lock
while it waits for one, because the thread that has that one may want another. Work that must end before a fork registers with
`quiet_before_forks`.

A lock whose holder waits for the forking thread is not free in time. The child then replaces it.
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
_making = threading.RLock()  # held while a lock is added to these, which a finalizer may do too
_waits: list[tuple[Callable[[float], None], Callable[[], bool]]] = []


def fork_lock() -> Any:
    """A new reentrant lock."""
    made = threading.RLock()
    with _making:
        _known.add(made)
    return made


def adopt(lock: Any) -> None:
    """Adds another package's reentrant lock to those that a fork takes."""
    with _making:
        _adopted.append(lock)


def quiet_before_forks(wait: Callable[[float], None], quiet: Callable[[], bool]) -> None:
    """Registers work that must end before a fork. A fork calls wait(seconds) without any lock, and repeats that until quiet() is true with all
    locks held."""
    with _making:
        _waits.append((wait, quiet))


class _Fork(threading.local):
    """The locks that the forking thread holds."""

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
    """Takes each lock that no other thread holds, and returns those. `first` is held already."""
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

"""Compiles in the background, one graph after another, on one thread.

fork      work stops between two steps of a graph, where it holds no lock, and goes on in the parent. A child begins it anew
exit      work ends between two steps; what is queued is not begun
nobody    calls the graph any more: its work ends likewise
"""

import atexit
import os
from collections.abc import Callable
from functools import cache
from weakref import WeakSet

from mlirc.codegen.process import background
from mlirc.dialects.core.fork_locks import SECONDS, quiet_before_forks
from mlirc.frontend.budget import pace

_queue = background.WorkQueue(lambda: 1)


class Abandoned(Exception):
    """Nobody wants the result any more."""


class Stop:
    """Whether a fork wants the background to stop, and whether it has."""

    def __init__(self) -> None:
        self.wanted = self.reached = False


_stop = Stop()
pending: "WeakSet[Job]" = WeakSet()
"""What was begun and has no result yet."""


class Job:
    """Work that `submit` begins, once, and that may have to be begun anew: after an interrupt, and in a forked child.

    do       does the work, and calls `between_steps` as it goes
    wanted   whether anybody still wants it
    """

    def __init__(self, do: Callable[[], None], wanted: Callable[[], bool]):
        self.do, self.wanted = do, wanted
        self.done = False
        self._task: background.Task[None] | None = None

    def submit(self) -> background.Task[None]:
        """Begins the work, if it is not begun. Any thread may call this; in the worst case the work is done twice."""
        task = self._task
        if task is None or (task.done() and not self.done):
            pending.add(self)
            task = self._task = _queue.submit(self._run)
            _register()
        return task

    @property
    def begun(self) -> bool:
        return self._task is not None

    def wait(self, seconds: float | None = None) -> None:
        """Waits for it, if it is begun; does it where no thread will. Raises nothing of the work's."""
        task = self._task
        if task is None or self.done:
            return
        try:
            task.exception(seconds)
        except TimeoutError:
            return

    def between_steps(self) -> None:
        """Stops for a fork and gives way to calls. Raises Abandoned. The thread holds no lock."""
        with _queue.changed:
            if _stop.wanted:
                _stop.reached = True
                _queue.changed.notify_all()
                _queue.changed.wait_for(lambda: not _stop.wanted, SECONDS)
                _stop.reached = False
        if _queue.closed or not self.wanted():
            raise Abandoned
        pace.give_way()

    def begin_anew(self) -> None:
        """Forgets a work item that was running when the process forked: the child does not have that thread."""
        self._task = None

    def _run(self) -> None:
        try:
            if not self.done and self.wanted() and not _queue.closed:
                self.do()
                self.done = True
        except Abandoned:
            pass
        finally:
            if self.done:
                pending.discard(self)


def finish_compiling() -> None:
    """Waits until the best code of each graph that was called is made, or has failed to be (the option compile_seconds).

    What failed runs quick code for good, is counted as a fallback, and raises nothing here. The next call runs what was made.
    """
    with pace.hurried():
        while not _queue.closed and (left := [job for job in list(pending) if not job.done and job.wanted()]):
            for job in left:
                job.submit()
                job.wait()


def _quiet() -> bool:
    return not _queue.running or _stop.reached


def _ask_to_stop() -> None:
    """Before a fork takes any lock."""
    _stop.wanted = True


def _stop_before_fork(seconds: float) -> None:
    with pace.hurried(), _queue.changed:
        _stop.wanted = True
        _queue.changed.wait_for(_quiet, seconds)


def _go_on() -> None:
    with _queue.changed:
        _stop.wanted = False
        _queue.changed.notify_all()


def _in_child() -> None:
    _stop.__init__()
    _queue.__init__(_queue.most)
    for job in list(pending):
        job.begin_anew()


def _at_exit() -> None:
    """Before background.py's, which registered first: this thread waits for what those do."""
    with pace.hurried():
        try:
            _queue.close(None)
        except KeyboardInterrupt:
            _queue.close(background.INTERRUPTED)


@cache
def _register() -> None:
    quiet_before_forks(_stop_before_fork, _quiet)
    os.register_at_fork(before=_ask_to_stop, after_in_parent=_go_on, after_in_child=_in_child)
    atexit.register(_at_exit)

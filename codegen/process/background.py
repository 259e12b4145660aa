"""Runs LLVM on background threads: it is half of the compile time, and needs neither the GIL nor MLIR's context.

A thread may fail to start, because the process has no memory for one or is about to end. The thread that wants the result then does the
work, in the order in which it was queued. So no wait depends on a thread that does not exist.

A fork waits for what runs: a child has none of its parent's threads. The end of the process waits for what runs, too, as
LLVM must not lose its memory under a thread; what no thread has taken by then is not begun.
"""

import atexit
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import cache, partial
from typing import Any, TypeVar

import torch

from mlirc.codegen.process import limits as process_limits
from mlirc.codegen.process import module_imports
from mlirc.codegen.process.floating_point import use_default_mode
from mlirc.codegen.process.signal_handlers import handlers_error
from mlirc.dialects.core.fork_locks import fork_lock, quiet_before_forks

T = TypeVar("T")

MOST_ATTENDANTS = 16
LINGER = 5.0  # seconds that a thread waits for more work
PATIENCE = 0.5  # seconds after which a waiter asks again whether there is a thread at all
INTERRUPTED = 2.0  # seconds that the end of the process goes on waiting after Ctrl-C

log = logging.getLogger("mlirc")


class Interrupted(RuntimeError):
    """The work was ended by a Ctrl-C or an exit of the thread that did it in place of another."""


class Task(Future[T]):
    """Work in a queue. One of the queue's threads does it, or, where there is none, the thread that waits for the result."""

    def __init__(self, queue: "WorkQueue", work: Callable[..., T], args: tuple[Any, ...]):
        super().__init__()
        self._queue = queue
        self._work: list[Callable[[], T]] = [partial(work, *args)]

    def run(self) -> None:
        """Does the work, on the calling thread. What ends the thread itself is raised here as well."""
        work = self._work.pop()
        try:
            self.set_result(work())
        except BaseException as error:
            if isinstance(error, Exception) and handlers_error(error) is None:
                self.set_exception(error)
                return
            self.set_exception(Interrupted(f"{type(error).__name__} while this was computed"))
            raise
        finally:
            del work  # what they hold is the waiter's alone from here on

    def result(self, timeout: float | None = None) -> T:
        self._wait(timeout)
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._wait(timeout)
        return super().exception(timeout)

    def _wait(self, timeout: float | None) -> None:
        while timeout is None and not self.done():
            self._queue.help_with(self)
            wait([self], PATIENCE)


class WorkQueue:
    """Work in the order in which it was begun, on at most most() threads; None: on as many as there is work."""

    def __init__(self, most: Callable[[], int | None]):
        self.most = most
        self.changed = threading.Condition(fork_lock())
        self.queue: deque[Task] = deque()
        self.running: set[Task] = set()
        self.starting = self.alive = self.idle = 0  # threads
        self.started = 0.0  # when the last one was to start
        self.closed = False

    def submit(self, work: Callable[..., T], *args: Any) -> Task[T]:
        _register()
        task, most = Task(self, work, args), self.most()
        with self.changed:
            self.queue.append(task)
            needed = not self.closed and self.idle + self._coming() < len(self.queue)
            if needed and (most is None or self.alive + self._coming() < most) and _new_thread(self._work):
                self.starting, self.started = self._coming() + 1, time.monotonic()
            self.changed.notify()
        return task

    def help_with(self, task: Task) -> None:
        """Does what was begun before it, and itself, if no thread will."""
        while True:
            with self.changed:
                if task not in self.queue or self._will_be_taken():
                    return
                first = self._take()
            self._do(first)

    def wait_until_idle(self, seconds: float | None) -> None:
        """Until nothing that was begun is left, or for so long."""
        end = None if seconds is None else time.monotonic() + seconds
        while end is None or time.monotonic() < end:
            with self.changed:
                self.changed.wait_for(lambda: not self.running or self.queue, PATIENCE)
                if self.quiet():
                    return
                last = self.queue[-1] if self.queue else None
            if last is not None:
                last.exception()

    def quiet(self) -> bool:
        return not self.running and not self.queue

    def close(self, seconds: float | None) -> None:
        """Takes nothing more from the queue, and waits for what runs."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()
            self.changed.wait_for(lambda: not self.running, seconds)

    def _coming(self) -> int:
        """Threads that are starting; one that is not there by now found no memory."""
        return self.starting if time.monotonic() - self.started < PATIENCE else 0

    def _will_be_taken(self) -> bool:
        there = (
            self.idle if self.most() is None else self.alive
        )  # where there is no most, those that run may be waiting
        return not self.closed and bool(there or self._coming())

    def _work(self) -> None:
        """A thread's life."""
        use_default_mode()
        with self.changed:
            self.starting, self.alive = max(self.starting - 1, 0), self.alive + 1
        try:
            while (task := self._next()) is not None:
                self._do(task)
                del task
        finally:
            with self.changed:
                self.alive -= 1

    def _next(self) -> Task | None:
        with self.changed:
            self.idle += 1
            try:
                self.changed.wait_for(lambda: self.queue or self.closed, LINGER)
                return self._take() if self.queue and not self.closed else None
            finally:
                self.idle -= 1

    def _take(self) -> Task:
        task = self.queue.popleft()
        self.running.add(task)
        return task

    def _do(self, task: Task) -> None:
        try:
            task.run()
        finally:
            with self.changed:
                self.running.discard(task)
                self.changed.notify_all()


STARTED = WorkQueue(lambda: None)
COMPUTED = WorkQueue(torch.get_num_threads)
ATTENDED = WorkQueue(lambda: min(len(os.sched_getaffinity(0)), MOST_ATTENDANTS))
QUEUES = (STARTED, COMPUTED, ATTENDED)


def apart(work: Callable[..., T], *args: Any) -> T:
    """work(*args), on a thread of its own that ends with it.

    For work that may call OpenMP, whose threads live as long as the thread that called it. While there are more of them than cores, all of
    them sleep where they wait for each other, the user's too, where they would spin: eager's small operators take twice their time.
    """
    made = detach(work, *args)
    return (start(work, *args) if made is None else made).result()


def start(work: Callable[..., T], *args: Any) -> Task[T]:
    """Calls work(*args) on a thread of its own. It may wait for what was started before it, and must not fork."""
    return STARTED.submit(work, *args)


def compute(work: Callable[..., T], *args: Any) -> Task[T]:
    """Calls work(*args) on one of as many threads as PyTorch computes on, for all such work. It must not wait for other work."""
    return COMPUTED.submit(work, *args)


def attend(work: Callable[..., T], *args: Any) -> Task[T]:
    """Calls work(*args), which does little but wait for another process, on one of as many threads as there are cores."""
    return ATTENDED.submit(work, *args)


def detach(work: Callable[..., T], *args: Any) -> Future[T] | None:
    """Calls work(*args) on a thread that neither a fork nor the end of the process waits for; None where none can start."""
    made: Future[T] = Future()
    return made if _new_thread(_detached, made, work, *args) else None


def wait_for_all(seconds: float | None = None) -> None:
    """Until nothing that was started runs any more."""
    for queue in QUEUES:
        queue.wait_until_idle(seconds)


def _new_thread(work: Callable[..., None], *args: Any) -> bool:
    """Thread.start would wait for ever where the new thread has no memory to say that it runs."""
    try:
        process_limits.start_thread(work, *args)
    except (RuntimeError, MemoryError) as error:
        log.info("mlirc: no thread could be started, its work is done in turn: %s", error)
        return False
    return True


def _detached(made: Future[None], work: Callable[..., None], *args: Any) -> None:
    use_default_mode()
    try:
        made.set_result(work(*args))
    except Exception as error:
        made.set_exception(error)


quiet_before_forks(module_imports.wait, module_imports.none_begun)


@cache
def _register() -> None:
    quiet_before_forks(wait_for_all, lambda: all(queue.quiet() for queue in QUEUES))
    os.register_at_fork(after_in_child=_in_child)
    atexit.register(_at_exit)


def _in_child() -> None:
    for queue in QUEUES:
        queue.__init__(queue.most)


def _at_exit() -> None:
    seconds = None
    for queue in QUEUES:
        try:
            queue.close(seconds)
        except KeyboardInterrupt:
            seconds = INTERRUPTED
            queue.close(seconds)

"""A line on a terminal while a compilation takes long: `mlirc: compiling, 7 s (forward: lower)`.

Standard error has to be a terminal, else nothing is written and no thread is started. The line is there from AFTER seconds on, is
written anew as time passes, and is wiped away when the compilation ends, also where an error or Ctrl-C ends it.
The option `progress` and MLIRC_PROGRESS=off do without.
"""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import field
from typing import Any

from mlirc.dialects.core.fork_locks import fork_lock
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.frontend.graph.observer import Observer
from mlirc.frontend.options import Options

AFTER = 3.0  # seconds
BETWEEN = 0.25
WIPE = "\r\x1b[K"


@dataclass(eq=False)
class _Span:
    """A compilation, or a wait for its machine code."""

    what: str
    since: float = field(default_factory=time.monotonic)


_lock = fork_lock()
_spans: list[_Span] = []  # the oldest first
_writer: list[threading.Thread] = []  # at most one
_written: list[int] = []  # the terminal that has a line now


def terminal(options: Options) -> int | None:
    """The file descriptor of the terminal that is told, if there is one."""
    if not options.progress or os.environ.get("MLIRC_PROGRESS", "").lower() in ("off", "0"):
        return None
    try:
        return sys.stderr.fileno() if sys.stderr.isatty() else None
    except (AttributeError, OSError, ValueError):  # none, closed, or no file
        return None


def compiling(what: str, options: Options) -> AbstractContextManager[None]:
    """What is compiled within is told of, if it takes long; `what` it is, in a word or two."""
    told = terminal(options)
    return nullcontext() if told is None else _shown(what, told)


@contextmanager
def _shown(what: str, told: int) -> Iterator[None]:
    span = _Span(what)
    with _lock:
        _spans.append(span)
        _start(told)
    try:
        yield
    finally:
        with _lock:
            _spans.remove(span)
            if not _spans:
                _wipe()


def _start(told: int) -> None:
    """Starts the thread that writes; without one, nothing is written. A forked child has none."""
    if _writer and _writer[0].is_alive():
        return
    thread = threading.Thread(target=_write, args=(told,), name="mlirc progress", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no room for a thread, or the process is about to end
        return
    _writer[:] = [thread]


def _write(told: int) -> None:
    while True:
        time.sleep(min(BETWEEN, AFTER))
        with _lock:
            if not _spans:
                _writer.clear()
                return
            seconds = time.monotonic() - _spans[0].since
            if seconds >= AFTER:
                _put(told, f"{WIPE}mlirc: compiling, {seconds:.0f} s ({_spans[-1].what})")
                _written[:] = [told]


def _wipe() -> None:
    if _written:
        _put(_written.pop(), WIPE)


def _put(told: int, text: str) -> None:
    with suppress(OSError):  # the terminal is gone
        os.write(told, text.encode())  # not by sys.stderr, whose lock a thread must not hold while the process ends


class ShownSteps(Observer):
    """Says which step of which graph is being done."""

    def __init__(self, kind: str, options: Options):
        self.kind = kind
        self.options = options

    def around(self, step: str, *given: Any) -> AbstractContextManager[Any]:
        return compiling(f"{self.kind}: {step}", self.options)

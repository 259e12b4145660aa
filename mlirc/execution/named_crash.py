"""A crash of native code ends a process without a word: a command goes on in a child, and its parent says in one line in what it crashed."""

import mmap
import os
import signal
import sys

from mlirc.execution.isolated import end_with

ROOM = 512  # bytes of what runs
ENDED_BY_OTHERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)
_running: mmap.mmap | None = None


def running(what: str) -> None:
    """Notes what runs from here on, such as "pass 'cse'": a crash is named so."""
    if _running is not None:
        _running[:] = what.encode()[:ROOM].ljust(ROOM)


def go_on_in_child(command: str) -> None:
    """Returns in a child process. This process waits for it, and ends as it does; where it crashed, with exit code 1 and a line.

    It is called before threads start. Where standard output is no file, as in tests, nothing happens.
    """
    global _running
    try:
        sys.stdout.fileno()
    except (OSError, ValueError, AttributeError):
        return
    sys.stdout.flush()
    sys.stderr.flush()
    _running = mmap.mmap(-1, ROOM)
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        end_with(parent)
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the child has it too, ends, and says so
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        os._exit(os.WEXITSTATUS(status))
    by = signal.Signals(os.WTERMSIG(status))
    if by in ENDED_BY_OTHERS:
        signal.signal(by, signal.SIG_DFL)
        os.kill(parent, by)
    what = _running[:].rstrip().decode(errors="replace") or "native code"
    os.write(2, f"{command}: {what} crashed: {by.name}\n".encode())
    os._exit(1)

"""Runs work in a forked process: a crash, a hang or a lost lock ends that process, and is a result like any other.

PyTorch computes there with one thread. A fork leaves the threads of PyTorch's pool behind, and the pool would wait for them for ever.
Work that sets more knows that its parent has computed with one.
"""

import ctypes
import faulthandler
import os
import pickle
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>
NO_END = "no end"
HEAD = 9  # bytes before a message: its kind and its size


@dataclass(frozen=True)
class Ended:
    """How the process ended without a result: the signal's name or "exit code 3", and the last word it sent before."""

    how: str
    phase: str

    @property
    def is_crash(self) -> bool:
        """Whether it ended by itself."""
        return not self.how.startswith(NO_END)


def isolated(
    work: Callable[[Callable[[str], None]], Any],
    seconds: float | None,
    heard: Callable[[str], None] = lambda phase: None,
    shown: bool = False,
) -> Any:
    """What `work` returns, in a process of its own; Ended where that ended before, or took longer than `seconds`. `work` is given a function
    that it tells what it does next, which is `heard` at once. The result is pickled. Work raises nothing that is not caught here: an
    exception ends it as "raised ...". With `shown` the stack of Python where it crashed is then written to standard error.
    """
    if not shown:
        return _isolated(work, seconds, heard, None)
    with tempfile.TemporaryFile() as stack:
        found = _isolated(work, seconds, heard, stack)
        stack.seek(0)
        sys.stderr.write(stack.read().decode(errors="replace"))
    return found


def _isolated(
    work: Callable[[Callable[[str], None]], Any],
    seconds: float | None,
    heard: Callable[[str], None],
    stack: IO[bytes] | None,
) -> Any:
    reader, writer = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(reader)
        end_with(parent)
        _work(work, writer, stack)
    os.close(writer)
    late = True
    phase, result = "", None
    try:
        for kind, content in _messages(reader, None if seconds is None else time.monotonic() + seconds):
            if kind == b"R":
                result = content
            else:
                phase = content.decode()
                heard(phase)
        late = False
    except TimeoutError:
        pass
    finally:
        os.close(reader)
        if late:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if late:
        return Ended(f"{NO_END} after {seconds:.0f} seconds", phase)
    if result is not None:
        return pickle.loads(result)  # of this process's own child
    return Ended(_how(status), phase)


def end_with(parent: int) -> None:
    """Ends this process when its parent ends: work that hangs would go on for ever where the parent is killed, as it is where it runs
    in `isolated` itself. Only Linux can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:  # it ended before
            os._exit(1)


def _work(work: Callable[[Callable[[str], None]], Any], writer: int, stack: IO[bytes] | None) -> None:
    """Runs the work in the child process, and ends it."""
    code = 1
    try:
        if (torch := sys.modules.get("torch")) is not None:
            torch.set_num_threads(1)
        faulthandler.disable()
        if stack is not None:
            faulthandler.enable(stack)
        quiet = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):  # what crashes says so in its own words, a hundred times
            os.dup2(quiet, stream)

        def tell(phase: str) -> None:
            _send(writer, b"P", phase.encode())

        try:
            result = work(tell)
        except BaseException as error:
            result = Ended(f"raised {type(error).__name__}: {' '.join(str(error).split())}", "")
        _send(writer, b"R", pickle.dumps(result))
        code = 0
    finally:
        os._exit(code)


def _send(writer: int, kind: bytes, content: bytes) -> None:
    left = memoryview(kind + len(content).to_bytes(8, "little") + content)
    while left:
        left = left[os.write(writer, left) :]


def _messages(reader: int, until: float | None) -> Iterator[tuple[bytes, bytes]]:
    """What the child sends, as it comes: kinds and contents. Raises TimeoutError where that does not end in time."""
    held = bytearray()
    while True:
        wait = None if until is None else max(0.0, until - time.monotonic())
        if not select.select([reader], [], [], wait)[0]:
            raise TimeoutError
        part = os.read(reader, 1 << 20)
        if not part:
            return
        held += part
        while len(held) >= HEAD and len(held) >= (end := HEAD + int.from_bytes(held[1:HEAD], "little")):
            yield bytes(held[:1]), bytes(held[HEAD:end])
            del held[:end]


def _how(status: int) -> str:
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return f"exit code {os.WEXITSTATUS(status)}"

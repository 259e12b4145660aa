"""A folder that graphs are kept in: files are numbered, and none that is there is written over.

    000.json, 000_inference_0_import.mlir, ...     of an ATen graph (dump.py)
    dynamo_000.json, dynamo_000.py, ...            of a graph of TorchDynamo's (dynamo_dump.py)

docs/debugging.md has all of them in a table; mlirc/execution/captures.py reads them.
"""

import json
import os
import re
import stat
import threading
from contextlib import suppress
from functools import lru_cache
from typing import Any

from mlirc.codegen.process.signal_handlers import raise_of_handler
from mlirc.dialects.core.fork_locks import fork_lock
from mlirc.frontend.fallback import fallback

FORMAT = 1  # of the records; another one where a reader of this one would be wrong
FLAGS = (
    os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
)  # which waits for no reader
NEW = FLAGS | os.O_EXCL
INCOMPLETE: dict[str, str] = {}  # folders of this process that could not be written to, and why


class GraphFiles:
    """What is known of one graph, as a JSON file; the names of the graph's other files begin as its own does.

    Where anything cannot be written, a warning says so, and the graph has no more files: then `folder` is None.
    """

    def __init__(self, folder: str, sequence: str = "", **data: Any):
        self.folder: str | None = folder
        self.prefix, self.number = "", -1
        self.data: dict[str, Any] = {"format": FORMAT, **data}
        self._lock = fork_lock()  # the step `link` is another thread's
        try:
            self.prefix, self.number = claim(folder, sequence)
            self.data["number"] = self.number
        except Exception as error:
            self.give_up(error)

    def write(self, name: str, content: str | bytes | memoryview) -> str | None:
        """Writes PREFIX_NAME. Returns the file's name; None where it cannot be written."""
        return self._write(f"{self.prefix}_{name}", content)

    def path(self, name: str) -> str:
        """The path of the file PREFIX_NAME."""
        assert self.folder is not None
        return os.path.join(self.folder, f"{self.prefix}_{name}")

    def save(self, **data: Any) -> None:
        """Adds to what is known, and writes it."""
        with self._lock:
            self.data |= data
            self._write(f"{self.prefix}.json", json.dumps(self.data, indent=1, default=str))

    def _write(self, name: str, content: str | bytes | memoryview) -> str | None:
        if self.folder is None:
            return None
        try:
            held = content.encode(errors="backslashreplace") if isinstance(content, str) else content
            write_file(os.path.join(self.folder, name), held)
        except Exception as error:
            self.give_up(error)
            return None
        return name

    def give_up(self, error: Exception) -> None:
        raise_of_handler(error)
        reason = (isinstance(error, OSError) and error.strerror) or " ".join(str(error).split()) or type(error).__name__
        if self.folder is not None:
            INCOMPLETE.setdefault(self.folder, reason)
            tell(f"mlirc option 'dump' is {self.folder!r}, and no file can be written there: {reason}")
            if self.prefix:
                _remove_empty(os.path.join(self.folder, f"{self.prefix}.json"))
        self.folder = None


def claim(folder: str, sequence: str) -> tuple[str, int]:
    """The next number that no file in the folder has, as a prefix and by itself; other processes get another. Raises OSError, ValueError."""
    os.makedirs(folder, exist_ok=True)
    found = re.compile(rf"{re.escape(sequence)}(\d{{3,9}})[._]")
    taken = [int(match[1]) for name in os.listdir(folder) if (match := found.match(name))]
    number = max(taken, default=-1) + 1
    while True:
        prefix = f"{sequence}{number:03d}"
        try:
            os.close(os.open(os.path.join(folder, f"{prefix}.json"), NEW, 0o666))
            return prefix, number
        except FileExistsError:
            number += 1


def write_file(path: str, content: bytes | memoryview) -> None:
    """Writes a file, or over one, whole or not at all; nothing else that has its name. Raises OSError."""
    folder, name = os.path.split(path)
    part = os.path.join(folder, f".{name[-200:]}.{os.getpid()}.{threading.get_ident()}.part")
    if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
        raise OSError(0, "what has its name is no file")
    try:
        with open(os.open(part, NEW, 0o666), "wb") as file:
            file.write(content)
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise


def _remove_empty(path: str) -> None:
    """Removes the record of a graph that nothing could be said of."""
    with suppress(OSError):
        if not os.lstat(path).st_size:
            os.unlink(path)


@lru_cache(maxsize=256)
def tell(text: str) -> None:
    """Warns of each thing once a process."""
    fallback.warn(text)

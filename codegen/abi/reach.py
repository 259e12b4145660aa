"""A reach: access to a private part of another package, found and tested once, with what happens if it is missing.

    @reach("storage-layout", instead="large results are new memory in every call")
    def storage_layout() -> dict[str, int]:
        '''Where a storage has its memory.'''          raises Missing, or anything, where what it gives does not work

    found = storage_layout()                            what the function gave, or None: then the caller does without

    with needed("fake-tensors"):                        what nothing can be compiled without: Missing is an ImportError, upon
        from torch._subclasses.fake_tensor import ...   which a graph runs in eager (frontend/entry/backend.py)

`MLIRC_WITHOUT=storage-layout,fake-tensors` (or `all`) does without them, for tests and for users with trouble. docs/compat.md has
a row for each.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from mlirc.codegen.process import background
from mlirc.codegen.process.signal_handlers import raise_of_handler
from mlirc.dialects.core.fork_locks import fork_lock

T = TypeVar("T")

VARIABLE = "MLIRC_WITHOUT"

log = logging.getLogger("mlirc")


class Missing(ImportError):
    """What was reached for is not there, or is not what it was."""


class LeftOut(Missing):
    """MLIRC_WITHOUT names it, or this version is known to be without it: nobody needs to be told."""


class Reach(Generic[T]):
    """Called, it gives what `find` gave at the first call, or None where that raised."""

    def __init__(self, name: str, instead: str, find: Callable[[], T], apart: bool):
        self.name, self.instead, self.apart = name, instead, apart
        self.__doc__ = find.__doc__
        self._find = find
        self._found: list[T | None] = []
        self._lock = fork_lock()
        self.why = ""  # None is what it gives
        assert name not in reaches or reaches[name]._find.__module__ == find.__module__, (
            f"two reaches are called {name}"
        )
        known[name] = instead
        reaches[name] = self

    def __call__(self) -> T | None:
        return self._found[0] if self._found else self._try()

    def or_missing(self) -> T:
        """What the reach found, for another reach that builds on it. Raises Missing."""
        found = self()
        if found is None:
            raise LeftOut(f"without {self.name}")
        return found

    @property
    def was_asked(self) -> bool:
        """Whether somebody called it since the process began, or since `forget`."""
        return bool(self._found)

    def forget(self) -> None:
        """Finds it again at the next call; for tests."""
        self._found.clear()

    def _try(self) -> T | None:
        with self._lock:
            if not self._found:
                try:
                    raise_if_left_out(self.name)
                    self._found.append(background.start(self._find).result() if self.apart else self._find())
                except Exception as reason:
                    raise_of_handler(reason)
                    self.why = _told(self.name, self.instead, reason)
                    self._found.append(None)
            return self._found[0]


known: dict[str, str] = {}  # what happens without it, by name
reaches: dict[str, Reach] = {}  # those of them that a graph can be compiled without


def reach(name: str, instead: str, apart: bool = False) -> Callable[[Callable[[], T]], Reach[T]]:
    """Makes a reach of the function that finds it.

    instead  what happens without
    apart    it looks at real tensors: on a thread of its own, whatever mode the caller is in
    """
    return lambda find: Reach(name, instead, find, apart)


@contextmanager
def needed(name: str, instead: str = "every graph runs in eager") -> Iterator[None]:
    """Around imports without which nothing can be compiled, or the caller can do nothing. Raises Missing."""
    known[name] = instead
    try:
        raise_if_left_out(name)
        yield
    except Exception as reason:
        raise_of_handler(reason)
        raise Missing(_told(name, known[name], reason)) from reason


def raise_if_left_out(name: str) -> None:
    """Raises LeftOut where MLIRC_WITHOUT has the name."""
    names = os.environ.get(VARIABLE, "").split(",")
    if name in names or "all" in names:
        raise LeftOut(f"{VARIABLE} names it")


def _told(name: str, instead: str, reason: Exception) -> str:
    text = f"without {name}, {instead}: {' '.join(str(reason).split()) or type(reason).__name__}"
    log.log(logging.INFO if isinstance(reason, LeftOut) else logging.WARNING, "mlirc: %s", text)
    return text

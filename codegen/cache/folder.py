"""The folder of the disk cache: finds it, trusts or refuses it, reads, writes, and bounds its size.

Several processes may use it at once: a file is written under another name and renamed, so that a reader gets the old file or the new one. A
writer to the folder could make this process run its code. So the folder must belong to this user, and no other user may write to it;
otherwise it is refused.
"""

import contextlib
import logging
import os
import re
import stat
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import platformdirs

from mlirc.codegen.cache.entry import CacheEntry, DamagedEntry, pack, unpack, unpack_any
from mlirc.codegen.process.signal_handlers import raise_of_handler

VARIABLE = "MLIRC_CACHE_DIR"  # a folder, or OFF
OFF = "off"
LIMIT_VARIABLE = "MLIRC_CACHE_MB"
DEFAULT_LIMIT_MB = 1024

log = logging.getLogger("mlirc")

LARGEST = 1 << 31  # bytes of an entry
_OURS = "mlirc-1"  # the folder of ours in the one that the user names
_LEFTOVER = 3600  # seconds after which an unfinished file is nobody's
_PUTS_BETWEEN_SCANS = 64
_NAME = re.compile(r"[0-9a-f]{64}\.[a-z]{1,32}")  # of a file: a key, and a kind


class RefusedFolder(Exception):
    """The folder cannot be used as a cache: says why, and what to do."""


class CacheFolder:
    """Entries by kind ("graph", "kernels") and key. `counts` says how many of each kind were found, missed, written, damaged.

    A failure to read or write is reported once in a warning, and is a miss; it is never an error.

    used   told of each entry that was found or written: its kind, a key, its bytes
    """

    used: ClassVar[Callable[[str, str, bytes], None] | None] = None

    def __init__(self, path: Path, limit: int = DEFAULT_LIMIT_MB << 20):
        """`limit`: bytes that it may grow to. Raises RefusedFolder."""
        self.path, self.limit = path, limit
        self.counts: Counter[tuple[str, str]] = Counter()
        self._puts = 0
        _make(path)

    def get(self, kind: str, key: str) -> CacheEntry | None:
        """The verified entry. None where there is none. A damaged entry is reported and removed, and counts as none."""
        path = self._path(kind, key)
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
                status = os.fstat(file.fileno())
                if status.st_uid != os.getuid():
                    raise DamagedEntry("it belongs to another user")
                if not stat.S_ISREG(status.st_mode):
                    raise DamagedEntry("it is no file")
                if status.st_size > LARGEST:
                    raise DamagedEntry(f"it has {status.st_size} bytes")
                content = file.read()
                entry = unpack(content, key)
        except FileNotFoundError:
            self.counts[kind, "missed"] += 1
            return None
        except (OSError, DamagedEntry, MemoryError) as error:
            raise_of_handler(error)
            self.forget(kind, key, str(error) or "no memory for it")
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # the entries used last are kept longest
        self.counts[kind, "found"] += 1
        self._tell(kind, key, content)
        return entry

    def put(self, kind: str, keys: Sequence[str], entry: CacheEntry) -> None:
        """Keeps the entry, to be found under each of `keys`."""
        self._write(kind, keys, pack(keys, entry))

    def add(self, kind: str, key: str, content: bytes) -> None:
        """Writes the bytes of an entry that come from another process. Raises DamagedEntry where they are no entry of that kind and key."""
        keys, _ = unpack_any(content)
        if key not in keys or not all(isinstance(name, str) and _NAME.fullmatch(f"{name}.{kind}") for name in keys):
            raise DamagedEntry("it was written under another name")
        self._write(kind, keys, content)

    def _tell(self, kind: str, key: str, content: bytes) -> None:
        if CacheFolder.used is not None:
            CacheFolder.used(kind, key, content)

    def _write(self, kind: str, keys: Sequence[str], content: bytes) -> None:
        temporary = ""
        try:
            handle, temporary = self._unfinished()
            with open(handle, "wb") as file:  # without fsync: the digest tells of a file that a crash cut off
                file.write(content)
            for key in keys[1:]:
                with contextlib.suppress(FileExistsError):  # another process made the same
                    os.link(temporary, self._path(kind, key))
            os.replace(temporary, self._path(kind, keys[0]))
            temporary = ""
        except OSError as error:
            raise_of_handler(error)
            warn(f"mlirc's disk cache cannot write to {self.path}: {error.strerror or error}")
            return
        finally:  # an interrupt comes here, too
            if temporary:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
        self.counts[kind, "written"] += 1
        self._tell(kind, keys[0], content)
        if self._puts % _PUTS_BETWEEN_SCANS == 0:
            with contextlib.suppress(OSError):  # the folder may be gone again
                self.shrink()
        self._puts += 1

    def _unfinished(self) -> tuple[int, str]:
        """A new file, open. A folder that was removed while the process runs is made again."""
        try:
            return tempfile.mkstemp(prefix=".", suffix=".part", dir=self.path)
        except FileNotFoundError as error:
            try:
                _make(self.path)
            except RefusedFolder:
                raise error from None
            return tempfile.mkstemp(prefix=".", suffix=".part", dir=self.path)

    def forget(self, kind: str, key: str, why: str) -> None:
        """Removes a damaged entry, and warns of it."""
        path = self._path(kind, key)
        self.counts[kind, "damaged"] += 1
        warn(f"mlirc's disk cache ignores {path} and makes it anew: {why}")
        with contextlib.suppress(OSError):
            path.unlink()

    def size(self) -> tuple[int, int]:
        """The number of files, and their size in bytes."""
        inodes = {status.st_ino: status.st_size for _, status in self._files()}
        return sum(1 for _ in self._files()), sum(inodes.values())

    def shrink(self, limit: int | None = None) -> None:
        """Removes the least recently used files until at most `limit` bytes are left, and files that were never finished."""
        limit = self.limit if limit is None else limit
        files = sorted(self._files(), key=lambda item: item[1].st_mtime)
        left = sum({status.st_ino: status.st_size for _, status in files}.values())
        links = Counter(status.st_ino for _, status in files)
        for path, status in files:
            unfinished = path.suffix == ".part"
            if left <= limit and not (unfinished and time.time() - status.st_mtime > _LEFTOVER):
                continue
            try:
                path.unlink(missing_ok=True)
            except OSError:  # it is not ours to remove
                continue
            links[status.st_ino] -= 1
            left -= 0 if links[status.st_ino] else status.st_size

    def _path(self, kind: str, key: str) -> Path:
        return self.path / f"{key}.{kind}"

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        with os.scandir(self.path) as found:
            for item in found:
                with contextlib.suppress(FileNotFoundError):  # another process removed it
                    status = item.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        yield Path(item.path), status


def _make(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        status = path.lstat()
    except OSError as error:
        raise_of_handler(error)
        raise RefusedFolder(f"{path} cannot be made: {error.strerror or error}") from error
    if not stat.S_ISDIR(status.st_mode):
        raise RefusedFolder(f"{path} is not a folder")
    if status.st_uid != os.getuid():
        raise RefusedFolder(f"{path} belongs to user {status.st_uid}, who could make this process run anything")
    if status.st_mode & 0o022:
        raise RefusedFolder(f"others may write to {path}, and could make this process run anything: chmod 700 it")


def folder() -> CacheFolder | None:
    """This process's cache folder; None where it is off or refused, which is reported once."""
    return _folder(os.environ.get(VARIABLE, ""), os.environ.get(LIMIT_VARIABLE, ""))


def is_off() -> bool:
    """Whether the environment turns the cache off."""
    return os.environ.get(VARIABLE, "") == OFF


@lru_cache(maxsize=8)
def _folder(named: str, limit: str) -> CacheFolder | None:
    if named == OFF:
        return None
    parent = Path(named) if named else Path(platformdirs.user_cache_dir("mlirc", appauthor=False))
    try:
        if limit and not limit.isdecimal():
            raise RefusedFolder(f"{LIMIT_VARIABLE} is {limit!r}: it takes a number of megabytes")
        return CacheFolder(parent / _OURS, (int(limit) if limit else DEFAULT_LIMIT_MB) << 20)
    except RefusedFolder as refused:
        warn(f"mlirc runs without a disk cache: {refused}; {VARIABLE} names another folder, or {OFF!r}")
        return None


@lru_cache(maxsize=256)
def warn(message: str) -> None:
    """Gives each warning once in a process; where the user has made warnings errors, as a line of the log."""
    try:
        warnings.warn(message, stacklevel=3)
    except Warning:
        log.warning(message)

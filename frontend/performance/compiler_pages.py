"""Releases the resident pages of MLIR's, LLVM's and Triton's libraries after compilation.

Compiling touches 160 MB of them. A page that this process has never written to has the file's bytes: it leaves the resident set, and
the next access maps it again from the page cache. A page that the loader or a debugger wrote to is a copy, and stays.
"""

import ctypes
import mmap
import sys
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any

LIBRARIES = ("libllvmlite", "libTorchMLIR", "libMLIRPythonCAPI", "libtriton")
PRESENT, OF_A_FILE = 1 << 63, 1 << 61  # bits of an entry of pagemap

_libc = ctypes.CDLL(None)

Range = tuple[int, int]


def give_back() -> None:
    """Takes the libraries' unwritten pages out of the resident set. Does nothing where /proc does not tell which those are."""
    if sys.platform != "linux":
        return
    try:
        with Path("/proc/self/pagemap").open("rb", buffering=0) as pagemap:
            for start, end in _mappings():
                for first, last in _unwritten(pagemap, start, end):
                    _libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), mmap.MADV_DONTNEED)
    except OSError:
        return


def _mappings() -> list[Range]:
    """Address ranges, in bytes, at which the libraries are mapped without write permission."""
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, flags, _, _, _, *path = line.split(maxsplit=5)
        if path and Path(path[0]).name.startswith(LIBRARIES) and "w" not in flags:
            start, end = (int(x, 16) for x in span.split("-"))
            found.append((start, end))
    return found


def _unwritten(pagemap: Any, start: int, end: int) -> Iterable[Range]:
    """Address ranges of consecutive pages, between two addresses, that are resident and unwritten. By `pagemap` such a page is one of a
    file: the first write to it would have made an anonymous copy."""
    entry, page = 8, mmap.PAGESIZE
    pagemap.seek(start // page * entry)
    entries = array("Q", pagemap.read((end - start) // page * entry))
    wanted, first = PRESENT | OF_A_FILE, None
    for k, bits in enumerate([*entries, 0]):
        if bits & wanted == wanted:
            first = k if first is None else first
        elif first is not None:
            yield start + first * page, start + k * page
            first = None

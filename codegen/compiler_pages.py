"""What compiling leaves in memory and running does not need: the pages of MLIR's and LLVM's libraries, and free heap.

Both libraries are large, and compiling touches 120 MB of them. Their code and constants are file pages that nobody has
written to: given back, they leave the process's resident set, and come back from the page cache if there is a next time.
"""

import ctypes
import mmap
import struct
import sys
from functools import cache
from pathlib import Path

LIBRARIES = ("libllvmlite", "libTorchMLIR", "libMLIRPythonCAPI", "libtriton")

_libc = ctypes.CDLL(None)


def give_back() -> None:
    """Take the compilers' untouched pages out of the resident set, and give the heap's free ones to the system."""
    for start, size in _unwritten():
        _libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), mmap.MADV_DONTNEED)
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(0)


def _unwritten() -> list[tuple[int, int]]:
    """Address and bytes of each mapping of the libraries that comes from a segment without write permission.

    A mapping that is only readable now is not enough: the loader makes some read-only after it has written to them.
    """
    if sys.platform != "linux":
        return []
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, flags, offset, _, _, *path = line.split(maxsplit=5)
        if path and Path(path[0]).name.startswith(LIBRARIES) and "w" not in flags:
            start, end = (int(x, 16) for x in span.split("-"))
            if int(offset, 16) in _read_only_offsets(path[0]):
                found.append((start, end - start))
    return found


@cache
def _read_only_offsets(path: str) -> set[int]:
    """The offsets in an ELF file, rounded down to pages, of its loaded segments that are never written to."""
    with Path(path).open("rb") as file:
        header = file.read(64)
        if header[:6] != b"\x7fELF\x02\x01":  # 64 bits, little-endian
            return set()
        (table,), (size, count) = struct.unpack_from("<Q", header, 32), struct.unpack_from("<HH", header, 54)
        file.seek(table)
        entries = [file.read(size) for _ in range(count)]
    loaded, writable = 1, 2
    segments = [struct.unpack_from("<IIQ", entry) for entry in entries]  # type, flags, offset
    return {at & -mmap.PAGESIZE for kind, flags, at in segments if kind == loaded and not flags & writable}

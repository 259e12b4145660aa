"""Moves parameters into huge pages, on Linux.

One row times a weight is bound by reading the weight. In pages of 4 KiB the processor looks up, in memory, where each 4 KiB lie,
in a virtual machine twice; a page of 2 MiB spares it that. Memory of parameters is not ours to allocate, so what they
already fill is made huge in place: addresses and contents stay, only the pages behind them are others.

A block of 2 MiB is taken if all its pages are there and this process's alone. So no process grows: pages that
nobody has touched, that a parent shares with its children, or that are a file's, stay what they are.
"""

import ctypes
import mmap
import sys
import time
from array import array
from collections.abc import Iterable
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mlirc.codegen.process import background

FOLDER = Path("/sys/kernel/mm/transparent_hugepage")
MADV_COLLAPSE = 25  # Linux 6.1; an older one refuses it
LEAST = 1 << 20  # bytes of a parameter: smaller ones are read from a cache
NEAR = 64 << 10  # bytes between parameters that may share a block: the allocator's, or small parameters
WAIT = 2.0  # seconds, in which the graph's first call is over: it touches new memory, which waits while pages are moved
REST = 9  # times as long as a block took: a tenth of a core

# bits of an entry of pagemap
PRESENT, EXCLUSIVE, OF_A_FILE = 1 << 63, 1 << 56, 1 << 61

_libc = ctypes.CDLL(None, use_errno=True)

Range = tuple[int, int]


def gather(inputs: Iterable[Any]) -> Future[None] | None:
    """Begins to put the CPU's parameters among `inputs` into huge pages, on a thread that neither a fork nor the process's end waits for.

    A fake tensor has no memory, though it is an instance of Parameter; other subclasses hold theirs elsewhere. The thread
    holds no parameter: whatever has taken the place of one that is gone is put into huge pages in its stead.
    """
    parameters = [
        x
        for x in inputs
        if type(x) is nn.Parameter and x.layout == torch.strided and x.device.type == "cpu" and x.nbytes >= LEAST
    ]
    found = list(blocks((x.data_ptr(), x.data_ptr() + x.nbytes) for x in parameters if x.is_contiguous()))
    if not found:
        return None
    return background.detach(_collapse_all, found, WAIT, REST)


@cache
def block_size() -> int:
    """Bytes of a huge page; 0 where there are none, or nobody wants them."""
    if sys.platform != "linux":
        return 0
    try:
        wanted = "[never]" not in (FOLDER / "enabled").read_text()
        return int((FOLDER / "hpage_pmd_size").read_text()) if wanted else 0
    except (OSError, ValueError):
        return 0


def blocks(ranges: Iterable[Range]) -> Iterable[int]:
    """Addresses of the blocks of a huge page's size that lie within ranges of addresses, or between two near ranges."""
    size, joined = block_size(), list[list[int]]()
    for start, end in sorted(ranges):
        if joined and start - joined[-1][1] <= NEAR:
            joined[-1][1] = max(end, joined[-1][1])
        else:
            joined.append([start, end])
    for start, end in joined if size else ():
        yield from range(-(-start // size) * size, end // size * size, size)


def _collapse_all(found: list[int], wait: float, rest: float) -> None:
    """Once nothing is being compiled, and a while after that, a block at a time."""
    background.wait_for_all()
    time.sleep(wait)
    try:
        with Path("/proc/self/pagemap").open("rb", buffering=0) as pagemap:
            for block in found:
                start = time.perf_counter()
                if _is_ours(pagemap, block):
                    _collapse(block)
                    time.sleep(rest * (time.perf_counter() - start))
    except OSError:  # what holds for pages is not told here
        return


def _is_ours(pagemap: Any, block: int) -> bool:
    """Whether all pages of a block are there, this process's alone, and no file's."""
    entry, pages = 8, block_size() // mmap.PAGESIZE
    pagemap.seek(block // mmap.PAGESIZE * entry)
    entries = array("Q", pagemap.read(pages * entry))
    alike = PRESENT | EXCLUSIVE
    return len(entries) == pages and all(x & (alike | OF_A_FILE) == alike for x in entries)


def _collapse(block: int) -> bool:
    return not _libc.madvise(ctypes.c_void_p(block), ctypes.c_size_t(block_size()), MADV_COLLAPSE)

"""A pool of memory for large results, which reuses a block once no tensor holds it.

A result of a graph is a tensor of its own, as in eager. From SMALLEST bytes on its memory comes from a pool that all
programs share, and PyTorch gives it back when the result's storage dies or lets go of it (resize_, share_memory_): what
anybody holds, by whatever view, array or storage, is never written to. The next result finds pages that are there, where
new ones would cost more to fault in than most kernels take to write them.

The storage is one that PyTorch made, for no elements, with the CPU's allocator: it resizes, pickles and is shared like any
other. Only its memory and the deleter of that are replaced (`new_result` in result_pool_text.py). Where these are in a
storage abi/storage_layout.py finds out; the pool tries it when it opens; where that fails, results are ordinary new memory.

Memory in use and kept together do not exceed what was in use at some moment of the last 4096 to 8191 results, but for parts
of huge pages. To know what is kept, a huge page is counted from its first use on until it is given back. Kept memory is also
at most `limit()`; it is left to the system if that runs short (MADV_FREE), but for what became idle in the last OFFER_SECONDS
before the last result went.
All is given back before a fork, and with the last program.
"""

import ctypes
import mmap
import os
from typing import Any

import torch

from mlirc.codegen.abi import shim
from mlirc.codegen.abi.python_tensor import wrapped
from mlirc.codegen.abi.reach import Missing
from mlirc.codegen.abi.storage_layout import storage_offsets
from mlirc.codegen.llvm.machine_code import Code

SMALLEST = 4 << 20
"""Bytes from which a result comes from the pool. Below, the C library keeps freed memory itself, and is quicker."""

OFFER_SECONDS = 2
"""How often idle memory is offered to the system at most: each huge page takes 12 us, as it interrupts the other processors. At
every result of 192 MB that was 1.1 ms on two cores, 8% of the kernel that wrote it."""

LIMIT_VARIABLE = "MLIRC_RESULT_POOL_MB"
"""Environment variable: megabytes that may be kept; 0 for no pool. Without it, an eighth of the machine's memory."""

HUGE_PAGE = 2 << 20


class NoPool(Missing):
    """Why results are ordinary memory here."""


def limit() -> int:
    """Bytes that may be kept while no result is in them."""
    megabytes = os.environ.get(LIMIT_VARIABLE)
    if megabytes is not None:
        return int(megabytes) << 20
    return _physical_bytes() // 8


def _physical_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class ResultPool:
    """The one pool of the process, in the data of `code`. Raises NoPool where it cannot be."""

    def __init__(self, code: Code):
        self._code = code
        for name, offset in storage_offsets.or_missing().items():
            self._slot(name).value = offset
        self._reserve(2 * _physical_bytes())
        self._hold_at_forks()
        code.keep_loaded()  # a result may live until the process ends, and its deleter with it
        self._try()

    def set_limit(self, bytes_: int) -> None:
        """Keeps at most so much from now on; 0 closes the pool for new results."""
        self._function("set_limit", None, 1)(ctypes.c_int64(bytes_))

    def bytes(self, which: str) -> int:
        """Bytes of results that are in use ("live"), or of unused memory that is resident ("idle")."""
        return self._slot(f"{which}_bytes").value

    def _hold_at_forks(self) -> None:
        """Registers with the C library, so that nothing else runs between these functions and the fork."""
        try:
            register = ctypes.CDLL(None)["__register_atfork"]
        except AttributeError:
            raise NoPool("this C library has no __register_atfork") from None
        before, after = (ctypes.c_void_p(self._code.address(name)) for name in ("before_fork", "after_fork"))
        register(before, after, after, None)

    def _try(self) -> None:
        """Makes a result, and sees it behave like a tensor and its memory come back."""
        self.set_limit(SMALLEST)
        x = self._new_bytes(SMALLEST + 5)
        x[-1] = 7
        storage, address = x.untyped_storage(), x.data_ptr()
        good = x.shape == (SMALLEST + 5,) and storage.nbytes() == SMALLEST + 5 and storage.data_ptr() == address
        good = good and storage.resizable() and self.start <= address < self.end and self.bytes("live") > SMALLEST
        x.resize_(SMALLEST + 6)
        good = good and x[-2] == 7 and x.data_ptr() != address and self.bytes("live") == 0
        y = self._new_bytes(SMALLEST)
        good = good and y.data_ptr() == address and self.bytes("live") == SMALLEST
        del y
        good = good and self.bytes("live") == 0
        self.set_limit(0)
        if not good:
            raise NoPool("this PyTorch does not treat such a storage as it does its own")

    def _new_bytes(self, count: int) -> torch.Tensor:
        """A new result, of `count` bytes."""
        size, stride, place = (ctypes.c_int64(n) for n in (count, 1, 0))
        at = [ctypes.addressof(slot) for slot in (size, stride, place)]
        new_result = self._function("new_result", ctypes.c_int, 8)
        if new_result(1, at[0], at[1], shim.dtype_code(torch.uint8), *shim.device_codes("cpu"), count, at[2]):
            raise NoPool(f"no result could be made: {shim.last_error()}")
        result = wrapped(place.value)
        shim.library().aoti_torch_delete_tensor_object(ctypes.c_void_p(place.value))
        return result

    def _slot(self, name: str) -> ctypes.c_int64:
        return ctypes.c_int64.from_address(self._code.address(name))

    def _function(self, name: str, result: Any, count: int) -> Any:
        return ctypes.CFUNCTYPE(result, *[ctypes.c_int64] * count)(self._code.address(name))

    def _reserve(self, bytes_: int) -> None:
        """Addresses for that much, none of it memory yet, and the block that they are."""
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype, libc.calloc.restype = ctypes.c_void_p, ctypes.c_void_p
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
        no_address, no_file, unreadable = ctypes.c_void_p(None), ctypes.c_int(-1), ctypes.c_int(0)
        found = libc.mmap(no_address, ctypes.c_size_t(bytes_), unreadable, flags, no_file, ctypes.c_long(0))
        if found in (None, ctypes.c_void_p(-1).value):
            raise NoPool(f"{bytes_} bytes of addresses could not be reserved: {os.strerror(ctypes.get_errno())}")
        start = (found + HUGE_PAGE - 1) & -HUGE_PAGE
        end = (found + bytes_) & -HUGE_PAGE
        libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), 14)  # MADV_HUGEPAGE
        block, touched = (libc.calloc(ctypes.c_size_t(n), ctypes.c_size_t(1)) for n in (64, (end - start) // HUGE_PAGE))
        if not (block and touched):
            raise NoPool("no memory for its own records")
        slots = (ctypes.c_int64 * 8).from_address(block)
        slots[4], slots[5] = start, end - start
        self.start, self.end = start, end
        slots_of = {"region_start": start, "writable_end": start, "region_end": end, "touched": touched}
        for name, value in (slots_of | {"idle_blocks": block}).items():
            self._slot(name).value = value

"""The memory of large results, used again once nobody holds them.

A result of a graph is a tensor of its own, as in eager. From SMALLEST bytes on its memory comes from a pool that all
programs share, and PyTorch gives it back when the result's storage dies or lets go of it (resize_, share_memory_): what
anybody holds, by whatever view, array or storage, is never written to. The next result finds pages that are there, where
new ones would cost more to fault in than most kernels take to write them.

The storage is one that PyTorch made, for no elements, with the CPU's allocator: it resizes, pickles and is shared like any
other. Only its memory and the deleter of that are replaced (`new_result` in result_pool_text.py). Where these are in a
storage is found out when the pool opens, and tried; where that fails, results are ordinary new memory.

Memory in use and kept together do not exceed what was in use at some moment of the last 4096 to 8191 results, but for parts
of huge pages. To know what is kept, a huge page is counted from its first use on until it is given back. Kept memory is also
at most `limit()`; it is left to the system if that runs short (MADV_FREE), but for what became idle in the last OFFER_SECONDS
before the last result went.
All is given back before a fork, and with the last program.
"""

import ctypes
import logging
import mmap
import os
from pathlib import Path
from typing import Any

import torch

from mlirc.codegen import shim
from mlirc.codegen.llvm import Code

SMALLEST = 4 << 20
"""Bytes from which a result comes from the pool. Below, the C library keeps freed memory itself, and is quicker."""

OFFER_SECONDS = 2
"""How often idle memory is offered to the system at most: each huge page takes 12 us, as it interrupts the other processors. At
every result of 192 MB that was 1.1 ms on two cores, 8% of the kernel that wrote it."""

LIMIT_VARIABLE = "MLIRC_RESULT_POOL_MB"
"""Environment variable: megabytes that may be kept; 0 for no pool. Without it, an eighth of the machine's memory."""

WRAP_TENSOR = "_Z16THPVariable_WrapRKN2at10TensorBaseE"  # THPVariable_Wrap(at::TensorBase const&)
HUGE_PAGE = 2 << 20
OFFSETS = ("storage_at", "data_at", "deleter_at", "context_at", "size_at")

log = logging.getLogger("mlirc")


class NoPool(Exception):
    """Why results are ordinary memory here."""


def limit() -> int:
    """Bytes that may be kept while no result is in them."""
    megabytes = os.environ.get(LIMIT_VARIABLE)
    if megabytes is not None:
        return int(megabytes) << 20
    return _physical_bytes() // 8


def _physical_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class Pool:
    """The one pool of the process, in the data of `code`. Raises NoPool where it cannot be."""

    def __init__(self, code: Code):
        self._code = code
        offsets = storage_offsets()
        for name in OFFSETS:
            self._word(name).value = offsets[name]
        self._reserve(2 * _physical_bytes())
        self._hold_at_forks()
        code.keep_loaded()  # a result may live until the process ends, and its deleter with it
        self._try()

    def set_limit(self, bytes_: int) -> None:
        """Keeps at most so much from now on; 0 closes the pool for new results."""
        self._function("set_limit", None, 1)(ctypes.c_int64(bytes_))

    def bytes(self, which: str) -> int:
        """Of results ("live") or of idle memory that is resident ("kept")."""
        return self._word(f"{which}_bytes").value

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
        at = [ctypes.addressof(word) for word in (size, stride, place)]
        new_result = self._function("new_result", ctypes.c_int, 8)
        if new_result(1, at[0], at[1], shim.dtype_code(torch.uint8), *shim.device_codes("cpu"), count, at[2]):
            raise NoPool(f"no result could be made: {shim.last_error()}")
        wrap = ctypes.PyDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_python.so"))[WRAP_TENSOR]
        wrap.restype = ctypes.py_object
        result = wrap(ctypes.c_void_p(place.value))
        shim.library().aoti_torch_delete_tensor_object(ctypes.c_void_p(place.value))
        return result

    def _word(self, name: str) -> ctypes.c_int64:
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
        words = (ctypes.c_int64 * 8).from_address(block)
        words[4], words[5] = start, end - start
        self.start, self.end = start, end
        words_of = {"region_start": start, "writable_end": start, "region_end": end, "touched": touched}
        for name, value in (words_of | {"idle_blocks": block}).items():
            self._word(name).value = value


def storage_offsets() -> dict[str, int]:
    """Where a TensorImpl has its storage, and a storage its memory, deleter, context and size: bytes by OFFSETS."""
    tensors = [torch.empty(n, dtype=torch.uint8) for n in (4160, 64, 12345, 777)]
    nothing = torch.empty(0, dtype=torch.uint8)
    impls = [_words(x._cdata, 8) for x in tensors]
    storages = [_words(x.untyped_storage()._cdata, 10) for x in tensors]
    empty = _words(nothing.untyped_storage()._cdata, 10)

    def only(places: list[int], what: str) -> int:
        if len(places) != 1:
            raise NoPool(f"this PyTorch lays out storages in another way: {what} is found at {places}")
        return places[0]

    storage_at = only(_where(impls, [x.untyped_storage()._cdata for x in tensors]), "the storage")
    memory = _where(storages, [x.data_ptr() for x in tensors])
    if len(memory) != 2 or not 1 <= memory[1] - memory[0] <= 2:
        raise NoPool(f"this PyTorch lays out storages in another way: memory is found at {memory}")
    data_at, context_at = memory
    deleter_at = data_at + 1 if context_at == data_at + 2 else data_at + 2
    size_at = only(_where(storages, [x.nbytes for x in tensors]), "the size")
    deleters = {words[deleter_at] for words in (*storages, empty)}
    if len(deleters) != 1 or 0 in deleters or empty[data_at] or empty[context_at] or empty[size_at]:
        raise NoPool("this PyTorch lays out storages in another way: that of no elements has memory")
    return {
        name: 8 * at for name, at in zip(OFFSETS, (storage_at, data_at, deleter_at, context_at, size_at), strict=True)
    }


def _words(address: int, count: int) -> list[int]:
    return list((ctypes.c_uint64 * count).from_address(address))


def _where(objects: list[list[int]], values: list[int]) -> list[int]:
    """The places at which every object has its value."""
    return [k for k in range(len(objects[0])) if all(words[k] == x for words, x in zip(objects, values, strict=True))]

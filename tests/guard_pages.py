"""Memory between pages that nobody may touch: inputs, arenas, slots of arenas, and what PyTorch allocates on the CPU.

An access outside ends the process; so does one of the first page of what was freed. What lies between a buffer and its page's
end is filled, and looked at in the end.
"""

import ctypes
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from mlirc.codegen.llvm.machine_code import compile_ir
from mlirc.codegen.runtime import native_runtime
from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.memory_ops import arenas, set_arenas
from mlirc.dialects.core.tensor_types import info_of

PAGE, NO_ACCESS, ALIGNED, FILL = mmap.PAGESIZE, 0, 64, 0xA5
NO_MEMORY = "late: no memory"  # what a process says before it ends
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def rounded(size: int, to: int) -> int:
    return (size + to - 1) // to * to


class Guarded:
    """Memory of `size` bytes with a page on each side that may not be touched: flush with the end, or with the start."""

    def __init__(self, size: int, at_end: bool, align: int = 1):
        self.size, self.length = size, rounded(max(size, 1), PAGE)
        self.base = libc.mmap(None, self.length + 2 * PAGE, NO_ACCESS, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if self.base in (None, ctypes.c_void_p(-1).value):
            raise MemoryError(f"{size} bytes")
        libc.mprotect(self.base + PAGE, self.length, mmap.PROT_READ | mmap.PROT_WRITE)
        self.address = self.base + PAGE + (self.length - rounded(size, align) if at_end else 0)
        self.gaps = [(self.base + PAGE, self.address), (self.address + size, self.base + PAGE + self.length)]
        for start, end in self.gaps:
            ctypes.memset(start, FILL, end - start)

    def touched(self) -> bool:
        """Whether what lies beside the buffer was written."""
        return any(ctypes.string_at(start, end - start).strip(bytes([FILL])) for start, end in self.gaps)

    def free(self) -> None:
        libc.munmap(self.base, self.length + 2 * PAGE)


# ---- slots

Places = list[tuple[int, int]]


@contextmanager
def slots_apart(module: Any, values: dict[str, int], at_end: bool) -> Iterator[tuple[Places, Places]]:
    """Each slot of @graph between pages of its own: the places of these pages in the arena, and of the gaps beside slots.
    Slots that the plan put into the same bytes share none then: no op may depend on that."""
    function = next(op for op in module.body.operations if getattr(op, "name", None) and op.name.value == "graph")
    slots = [op for op in function.regions[0].blocks[0].operations if op.operation.name == "mlirc.slot"]
    old = [op.attributes["offset"] for op in slots]
    sizes = arenas(function)
    guards, gaps, end = [(0, PAGE)], [], PAGE
    try:
        for op in slots:
            info = info_of(op.results[0])
            extent = symbols.evaluate(symbols.maximum(info.extent, 0), values) * info.dtype.itemsize
            room = rounded(max(extent, 1), PAGE)
            start = end + (room - rounded(extent, ALIGNED) if at_end else 0)
            op.attributes["offset"] = ir.StringAttr.get(str(start))
            gaps += [(end, start), (start + extent, end + room)]
            end += room
            guards.append((end, end + PAGE))
            end += PAGE
        if slots:
            set_arenas(function, sizes | {"cpu": end})
        yield (guards, gaps) if slots else ([], [])
    finally:
        for op, offset in zip(slots, old, strict=True):
            op.attributes["offset"] = offset
        set_arenas(function, sizes)


# ---- PyTorch's allocator


class _Data(ctypes.Structure):
    """As c10::DataPtr is laid out."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("data", "deleter", "context")] + [("device", ctypes.c_int16)]


_Allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_Deleter = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
VIRTUALS, ALLOCATE, RAW_DELETER = 8, 2, 4  # functions of c10::Allocator's table
FREED = 1 << 16  # tensors of a run, at most

# native, as it may be called while an exception is on its way: notes the address, and forbids the page that it is in
DELETE = """
@freed = global [FREED x ptr] zeroinitializer
@count = global i64 0
declare i32 @mprotect(ptr, i64, i32)
define void @delete(ptr %at) {
  %n = load i64, ptr @count
  %more = add i64 %n, 1
  store i64 %more, ptr @count
  %i = urem i64 %n, FREED
  %place = getelementptr ptr, ptr @freed, i64 %i
  store ptr %at, ptr %place
  %word = ptrtoint ptr %at to i64
  %page = and i64 %word, -PAGE
  %first = inttoptr i64 %page to ptr
  %code = call i32 @mprotect(ptr %first, i64 PAGE, i32 0)
  ret void
}
""".replace("FREED", str(FREED)).replace("PAGE", str(PAGE))


class GuardedAllocator:
    """In place of PyTorch's CPU allocator for a while. What is freed may not be touched, and is looked at in the end."""

    def __init__(self) -> None:
        c10 = ctypes.CDLL(f"{torch.__path__[0]}/lib/libc10.so")
        self.install = c10["_ZN3c1015SetCPUAllocatorEPNS_9AllocatorEh"]
        self.install.argtypes, self.install.restype = [ctypes.c_void_p, ctypes.c_uint8], None
        current = c10["_ZN3c1015GetCPUAllocatorEv"]
        current.argtypes, current.restype = [], ctypes.c_void_p
        self.plain = current()
        self.code = compile_ir(DELETE, 0)
        self.delete = self.code.address("delete")
        self.allocate, self.raw_deleter = _Allocate(self._allocate), _Deleter(lambda allocator: self.delete)
        table = (ctypes.c_void_p * VIRTUALS).from_address(ctypes.c_void_p.from_address(self.plain).value or 0)
        self.table = (ctypes.c_void_p * VIRTUALS)(*table)
        self.table[ALLOCATE] = ctypes.cast(self.allocate, ctypes.c_void_p).value
        self.table[RAW_DELETER] = ctypes.cast(self.raw_deleter, ctypes.c_void_p).value
        self.object = ctypes.c_void_p(ctypes.addressof(self.table))
        self.at_end = True
        self.live: dict[int, Guarded] = {}

    def _allocate(self, data: int, allocator: int, size: int) -> int:
        made = _Data.from_address(data)
        made.data = made.context = None
        made.device = -256  # the CPU, of no index
        made.deleter = self.delete
        if size:
            try:
                memory = Guarded(size, self.at_end, ALIGNED)
            except MemoryError:  # which no callback can raise
                print(NO_MEMORY, flush=True)
                os._exit(0)
            self.live[memory.address] = memory
            made.data = made.context = memory.address
        return data

    @contextmanager
    def installed(self) -> Iterator[None]:
        self.install(ctypes.addressof(self.object), 100)
        try:
            yield
        finally:
            self.install(self.plain, 100)

    def end(self) -> bool:
        """Unmaps what was freed; whether something beside a buffer was written."""
        count = ctypes.c_int64.from_address(self.code.address("count"))
        addresses = (ctypes.c_void_p * FREED).from_address(self.code.address("freed"))
        touched = False
        for k in range(min(count.value, FREED)):
            memory = self.live.pop(addresses[k] or 0, None)
            if memory is None:  # of no bytes
                continue
            libc.mprotect(memory.base + PAGE, memory.length, mmap.PROT_READ)
            touched |= memory.touched()
            memory.free()
        count.value = 0
        return touched


# ---- all of a call's memory


class ArenaRecord(ctypes.Structure):
    """As native_runtime_text.py lays an arena out."""

    _fields_ = [("next", ctypes.c_void_p), ("memory", ctypes.c_void_p), ("bytes", ctypes.c_int64)]


class Guards:
    """What a call of a program touches: its inputs, its arena (`guards`: pages in it that may not be touched)."""

    def __init__(self) -> None:
        self.at_end = True
        self.guards: Places = []
        self.gaps: Places = []  # of the arena, beside its slots
        self.held: list[Any] = []
        self.records: list[ArenaRecord] = []
        self.take = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(self.take_arena)

    def tensor(self, shape: list[int], stride: list[int], dtype: torch.dtype) -> torch.Tensor:
        """Guarded, and filled with small numbers."""
        extent = 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) if 0 not in shape else 0
        size = extent * dtype.itemsize
        memory = Guarded(size, self.at_end)
        self.held.append(memory)
        if not size:
            return torch.empty_strided(shape, stride, dtype=dtype)
        raw = (ctypes.c_char * size).from_address(memory.address)
        flat = torch.frombuffer(raw, dtype=dtype)
        flat.copy_(torch.arange(extent).remainder(3).to(dtype))
        return flat.as_strided(shape, stride)

    def take_arena(self, size: int) -> int:
        memory = Guarded(rounded(size, 1 if self.guards else ALIGNED), self.at_end)
        ctypes.memset(memory.address, FILL, size)
        for start, end in self.guards:
            libc.mprotect(memory.address + start, end - start, NO_ACCESS)
        record = ArenaRecord(None, memory.address, size)
        self.held.append(memory)
        self.records.append(record)
        memory.gaps += [(memory.address + start, memory.address + end) for start, end in self.gaps]
        return ctypes.addressof(record)

    def end(self) -> bool:
        """Frees all; whether something beside a buffer was written."""
        touched = any(x.touched() for x in self.held)
        for x in self.held:
            x.free()
        self.held.clear()
        idle = ctypes.c_void_p.from_address(native_runtime.address("idle_arenas"))
        idle.value = None  # the host program put the arena there
        self.records.clear()
        return touched

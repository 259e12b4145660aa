"""Arenas: memory for intermediate results, kept between calls so that its pages are touched once.

All programs share one pool: a forward and a backward graph do not run at once in one thread, so they use the same
memory, and a process holds as many arenas as it ever had calls in flight. A call takes an arena for itself and gives it
back (take_arena and finish in native_runtime.py); an arena that is too small is replaced by a larger one.
"""

import ctypes

from mlirc.codegen.runtime import native_runtime


class _Arena(ctypes.Structure):
    """An idle arena, with the fields that native_runtime.py gives it."""


_Arena._fields_ = [("next", ctypes.POINTER(_Arena)), ("memory", ctypes.c_void_p), ("bytes", ctypes.c_int64)]


def idle_bytes() -> int:
    """Bytes in arenas that no call uses now."""
    total, arena = 0, _first()
    while arena:
        total += arena.contents.bytes
        arena = arena.contents.next
    return total


def free_idle() -> None:
    """Frees every arena that no call uses now."""
    libc = ctypes.PyDLL(None)  # keeps the GIL, which guards the list
    libc.free.argtypes = [ctypes.c_void_p]
    head = native_runtime.idle_arenas_slot()
    while head.value:
        arena = _first()
        head.value = ctypes.cast(arena.contents.next, ctypes.c_void_p).value
        libc.free(arena.contents.memory)
        libc.free(ctypes.cast(arena, ctypes.c_void_p))


def _first():
    return ctypes.cast(native_runtime.idle_arenas_slot(), ctypes.POINTER(_Arena))

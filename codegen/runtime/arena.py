"""Arenas: memory for intermediate results, kept between calls so that its pages are touched once.

All programs share one pool: a forward and a backward graph do not run at once in one thread, so they use the same
memory, and a process holds as many arenas as it ever had calls in flight. A call takes an arena for itself and gives it
back (take_arena and finish in native_runtime.py); an arena that is too small is replaced by a larger one.

The GIL guards the list of idle arenas. Python may give it to another thread between any two of its own instructions, so
native code alone walks the list.
"""

import ctypes
from functools import cache
from typing import Any

from mlirc.codegen.runtime import native_runtime


def idle_bytes() -> int:
    """Bytes in arenas that no call uses now."""
    return _function("idle_arena_bytes", ctypes.c_int64)()


def free_idle() -> None:
    """Frees every arena that no call uses now. Other threads may call programs meanwhile."""
    _function("free_idle_arenas", None)()


@cache
def _function(name: str, result: Any) -> Any:
    """The function of that name, called with the GIL held."""
    return ctypes.PYFUNCTYPE(result)(native_runtime.address(name))

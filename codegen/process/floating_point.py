"""The floating-point mode of a thread that compiles: C's default, whatever mode the caller is in.

`torch.set_flush_denormal` and C's `fesetround` hold for the thread that calls them and for those that it starts. A number that is
folded while compiling would depend on the mode, and stay in code that runs in another one, in this process or, from the disk cache, in the next.

default_mode()      a context; the caller's mode, its flags too, is put back behind it
use_default_mode()  for a thread of ours, until it ends
mode()              the calling thread's, as bytes that can be compared
"""

import ctypes
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

_DEFAULT = ctypes.c_void_p(-1)  # FE_DFL_ENV
_BYTES = 64  # more than an fenv_t has
_FLAGS = 0x3F  # of MXCSR: what computing leaves there


@contextmanager
def default_mode() -> Iterator[None]:
    """The calling thread in C's default mode."""
    library = _library()
    if library is None:
        yield
        return
    before = ctypes.create_string_buffer(_BYTES)
    library.fegetenv(before)
    library.fesetenv(_DEFAULT)
    try:
        yield
    finally:
        library.fesetenv(before)


def use_default_mode() -> None:
    """A new thread has the mode of the one that started it."""
    if (library := _library()) is not None:
        library.fesetenv(_DEFAULT)


def mode() -> tuple[int, int]:
    """Rounding, and MXCSR without its flags; zeros where nobody says."""
    library = _library()
    if library is None:
        return 0, 0
    found = ctypes.create_string_buffer(_BYTES)
    library.fegetenv(found)
    return library.fegetround(), struct.unpack_from("I", found, 28)[0] & ~_FLAGS


@cache
def _library() -> ctypes.CDLL | None:
    """The C library, where it has what is asked here."""
    library = ctypes.CDLL(None)
    names = ("fegetenv", "fesetenv", "fegetround")
    return library if all(hasattr(library, name) for name in names) else None

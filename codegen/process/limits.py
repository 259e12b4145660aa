"""Checks stack size and free address space before compilation, because LLVM and MLIR end the process where either runs out.

with_room(work, *args)      on a thread with a large stack, where the caller's is small
addresses(needed)           raises MemoryError where so many bytes cannot be had (RLIMIT_AS, RLIMIT_DATA, strict overcommit)
"""

import _thread
import ctypes
import mmap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import torch

T = TypeVar("T")

STACK = 8 << 20
"""Bytes of the stack of a thread that compiles."""
ENOUGH = 3 << 20
"""Bytes of a thread's stack from which on it may compile itself."""

TO_COMPILE = 640 << 20
"""Bytes of addresses that compiling takes: MLIR's library, heaps and stacks of threads."""
FOR_EACH_NODE = 128 << 10
TO_LOAD = 256 << 20
"""Bytes that loading compiled code may take, with what Dynamo takes for its own at that time."""

_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
_ATTRIBUTES = 128  # bytes, more than a pthread_attr_t has


def addresses(needed: int) -> None:
    """Raises MemoryError where this process may not have so many bytes more."""
    try:
        mmap.mmap(-1, needed, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE).close()
    except (OSError, ValueError) as error:
        raise MemoryError(f"this process may not have {needed >> 20} MiB more, which compiling may take") from error


class _Stack(threading.local):
    """The stack size of a thread in bytes, 0 until it is read."""

    size = 0


_stack = _Stack()


def with_room(work: Callable[..., T], *args: Any) -> T:
    """work(*args), in the caller's grad mode."""
    _stack.size = _stack.size or stack_here()
    if _stack.size >= ENOUGH:
        return work(*args)
    made: Future[T] = Future()
    with room_for_threads():
        _thread.start_new_thread(_do, (made, torch.is_grad_enabled(), work, args))
    return made.result()


def _do(made: Future, grad: bool, work: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        with torch.set_grad_enabled(grad):
            made.set_result(work(*args))
    except BaseException as error:  # whatever it is, the caller gets it
        made.set_exception(error)


@contextmanager
def room_for_threads() -> Iterator[None]:
    """Threads of Python's that start within have a large stack; another thread may start one meanwhile, which harms nobody."""
    before = _thread.stack_size()
    if (before or default_stack()) >= ENOUGH:
        yield
        return
    _thread.stack_size(STACK)
    try:
        yield
    finally:
        _thread.stack_size(before)


def stack_here() -> int:
    """Bytes of the calling thread's stack; ENOUGH where nobody says."""
    library = _library()
    if library is None:
        return ENOUGH
    attributes = ctypes.create_string_buffer(_ATTRIBUTES)
    if library.pthread_getattr_np(library.pthread_self(), attributes) != 0:
        return ENOUGH
    found = _size(library, attributes)
    library.pthread_attr_destroy(attributes)
    return found


def default_stack() -> int:
    """Bytes of a new thread's stack."""
    library = _library()
    attributes = ctypes.create_string_buffer(_ATTRIBUTES)
    if library is None or library.pthread_getattr_default_np(attributes) != 0:
        return ENOUGH
    return _size(library, attributes)


def _size(library: ctypes.CDLL, attributes: Any) -> int:
    size = ctypes.c_size_t()
    return size.value if library.pthread_attr_getstacksize(attributes, ctypes.byref(size)) == 0 else ENOUGH


@cache
def _library() -> ctypes.CDLL | None:
    """The C library, where it has what is asked here."""
    library = ctypes.CDLL(None)
    try:
        library.pthread_self.restype = ctypes.c_size_t
        library.pthread_getattr_np.argtypes = [ctypes.c_size_t, ctypes.c_void_p]
        library.pthread_getattr_default_np.argtypes = [ctypes.c_void_p]
        library.pthread_attr_getstacksize.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        library.pthread_attr_destroy.argtypes = [ctypes.c_void_p]
    except AttributeError:
        return None
    return library

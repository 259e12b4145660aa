"""Checks stack size and free address space before compilation, because LLVM and MLIR end the process where either runs out.

with_room(work, *args)      calls work, on a thread with a large stack where the caller's is small, in C's default floating-point mode
addresses(needed)           raises MemoryError where so many bytes cannot be had (RLIMIT_AS, RLIMIT_DATA, strict overcommit)
"""

import _thread
import ctypes
import mmap
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import cache
from itertools import count
from typing import Any, TypeVar

import torch

from mlirc.codegen.process.floating_point import default_mode, use_default_mode

T = TypeVar("T")

STACK = 8 << 20
"""Bytes of the stack of a thread that compiles."""
ENOUGH = 3 << 20
"""A thread whose stack has so many bytes compiles on its own stack."""

TO_COMPILE = 640 << 20
"""Bytes of addresses that compiling takes: MLIR's library, heaps and stacks of threads."""
FOR_EACH_NODE = 128 << 10
TO_LOAD = 256 << 20
"""Bytes that loading compiled code may take, with what Dynamo takes for its own at that time."""

_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
_ATTRIBUTES = 128  # bytes, more than a pthread_attr_t has
_DETACHED = 1  # PTHREAD_CREATE_DETACHED

_numbers = count(1)
_waiting: dict[int, tuple[Callable[..., None], tuple[Any, ...]]] = {}
"""By number, the work of threads that were started and have not begun it."""


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
    """work(*args), in the caller's grad mode, but not in its floating-point mode."""
    _stack.size = _stack.size or stack_here()
    if _stack.size >= ENOUGH:
        with default_mode():
            return work(*args)
    made: Future[T] = Future()
    start_thread(_do, made, torch.is_grad_enabled(), work, args)
    return made.result()


def _do(made: Future, grad: bool, work: Callable[..., Any], args: tuple[Any, ...]) -> None:
    use_default_mode()
    try:
        with torch.set_grad_enabled(grad):
            made.set_result(work(*args))
    except BaseException as error:  # whatever it is, the caller gets it
        made.set_exception(error)


def start_thread(work: Callable[..., None], *args: Any) -> None:
    """Calls work(*args) on a new thread with a large stack. Raises RuntimeError or MemoryError where none can start.

    C makes the thread. Python's `threading.stack_size` holds for all new threads, so it is the user's; to read it is to reset it.
    """
    library, number = _library(), next(_numbers)
    attributes, made = ctypes.create_string_buffer(_ATTRIBUTES), ctypes.c_size_t()
    if library is None:
        _thread.start_new_thread(work, args)
        return
    if library.pthread_attr_init(attributes) != 0:
        raise RuntimeError("can't start new thread")
    _waiting[number] = (work, args)
    library.pthread_attr_setstacksize(attributes, STACK)
    library.pthread_attr_setdetachstate(attributes, _DETACHED)
    failed = library.pthread_create(ctypes.byref(made), attributes, _begin, number)
    library.pthread_attr_destroy(attributes)
    if failed:
        del _waiting[number]
        raise RuntimeError("can't start new thread")


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
def _begin(number: int) -> None:
    work, args = _waiting.pop(number)
    with suppress(SystemExit):  # as in a thread of Python's
        work(*args)


def stack_here() -> int:
    """Bytes of the calling thread's stack; ENOUGH where the C library does not tell."""
    library = _library()
    if library is None:
        return ENOUGH
    attributes = ctypes.create_string_buffer(_ATTRIBUTES)
    if library.pthread_getattr_np(library.pthread_self(), attributes) != 0:
        return ENOUGH
    size = ctypes.c_size_t()
    failed = library.pthread_attr_getstacksize(attributes, ctypes.byref(size))
    library.pthread_attr_destroy(attributes)
    return ENOUGH if failed else size.value


@cache
def _library() -> ctypes.CDLL | None:
    """The C library; None where it lacks one of the functions that are called here."""
    library = ctypes.CDLL(None)
    try:
        library.pthread_self.restype = ctypes.c_size_t
        library.pthread_getattr_np.argtypes = [ctypes.c_size_t, ctypes.c_void_p]
        library.pthread_attr_getstacksize.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        library.pthread_attr_destroy.argtypes = library.pthread_attr_init.argtypes = [ctypes.c_void_p]
        library.pthread_attr_setstacksize.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        library.pthread_create.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    except AttributeError:
        return None
    return library

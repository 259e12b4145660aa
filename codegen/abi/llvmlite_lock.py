"""The lock that every function of llvmlite takes."""

from typing import Any

from llvmlite.binding import ffi

from mlirc.codegen.abi.reach import Missing, reach


@reach("llvmlite-lock", instead="a child forked while another thread was in LLVM may find its lock taken")
def llvmlite_lock() -> Any:
    lock = ffi.lib._lock._lock
    with lock:  # reentrant
        if not lock.acquire(blocking=False):
            raise Missing("it is of another kind")
        lock.release()
    return lock

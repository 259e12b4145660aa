"""Imports of the compiler's modules by other threads, which a fork waits for.

A thread that imports a module holds Python's lock of that module. A child that is forked meanwhile has no such thread, and its own import of
the module waits for ever. First calls import what they use, so a fork waits until no other thread imports a module of the compiler.
"""

import importlib
import threading
import time

OURS = frozenset({"mlirc", "llvmlite", "torch_mlir"})


def none_begun() -> bool:
    """Whether no other thread is importing a module of the compiler. True where Python keeps its locks in another way."""
    locks = getattr(getattr(importlib, "_bootstrap", None), "_module_locks", {})
    for name, known in list(locks.items()):
        if name.partition(".")[0] in OURS:
            owner = getattr(known(), "owner", None)
            if owner is not None and owner != threading.get_ident():
                return False
    return True


def wait(seconds: float) -> None:
    """Until no other thread does, or so long."""
    end = time.monotonic() + seconds
    while not none_begun() and time.monotonic() < end:
        time.sleep(0.001)

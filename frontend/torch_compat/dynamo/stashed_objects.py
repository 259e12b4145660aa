"""torch 2.11 drops a reference that it never took, to two dicts.

Inductor's cudagraph_trees, which Dynamo imports with the first optimizer, gives them to `torch._C._stash_obj_in_tls`, which should take a
reference for the thread and in 2.11 does not. At the thread's end it drops one all the same. By then the dicts are freed, and
what Python keeps in their memory loses 1: a reference, or the length of a string.
"""

import ctypes
import importlib
import sys
import threading
from collections.abc import Callable
from typing import Any

from mlirc.codegen.abi.reach import Missing, reach

TREES = "torch._inductor.cudagraph_trees"
STASHED = ("tree_manager_containers", "tree_manager_locks")

_add_reference = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", ctypes.pythonapi))


def keep_stashed_objects() -> None:
    """Gives the stash of this thread its references, where it has none. To be called in each thread that compiles, after Dynamo has traced."""
    if TREES in sys.modules and (held := thread_local_objects()) is not None:
        for name in STASHED:
            add_missing_reference(held(), name)


def add_missing_reference(held: Any, name: str) -> None:
    """Adds a reference to this thread's attribute of a threading.local, where nothing but that attribute has one."""
    alone = threading.local()
    alone.x = {}
    if name in vars(held) and references(held, name) == references(alone, "x"):
        _add_reference(getattr(held, name))


def references(held: Any, name: str) -> int:
    return sys.getrefcount(getattr(held, name))


@reach(
    "stashed-objects",
    instead="the end of a thread that compiled the first optimizer spoils Python's memory in torch 2.11, as with every backend",
)
def thread_local_objects() -> Callable[[], threading.local]:
    """What gives the threading.local that has the stashed objects. A compilation asks where TREES is loaded; `mlirc doctor` asks everywhere."""
    trees: Any = importlib.import_module(TREES)
    if not isinstance(trees.local, threading.local):
        raise Missing("what is stashed is no thread's own")
    return lambda: trees.local

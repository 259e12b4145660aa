"""MLIR's context, with our dialect loaded: one for the whole process, single-threaded, behind one lock.

Types and attributes are interned once, compiling from several Python threads is safe, and a forked child inherits no MLIR
thread pool.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import load
from mlirc.dialects.core.fork_locks import fork_lock

_lock = fork_lock()


@contextmanager
def context() -> Iterator[ir.Context]:
    """Enter the process's MLIR context (with the `mlirc` dialect loaded) and an unknown location, holding its lock."""
    with _lock, _context() as entered, ir.Location.unknown():
        yield entered


@cache
def _context() -> ir.Context:
    made = ir.Context()
    made.enable_multithreading(False)
    made.allow_unregistered_dialects = True  # mlircx: see dialect.Mlircx
    with made:
        load()
    return made

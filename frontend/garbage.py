"""Python's cyclic garbage collector, paused while a graph is traced and compiled."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Tracing and compiling make many small objects and no cycles that hold tensors, and with torch loaded each pass of the
    collector over the old ones takes a tenth of a second or more."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()

"""Python's cyclic garbage collector, paused while a graph compiles."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """A compilation makes many small objects and no cycles worth collecting, and with torch loaded each pass of the
    collector over the old ones takes tens of milliseconds."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()

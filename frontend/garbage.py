"""Python's cyclic garbage collector, paused while a graph is traced and compiled."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Tracing and compiling make many small objects and no cycles that hold tensors, and with torch loaded each pass of the
    collector over the old ones takes a tenth of a second or more.

    What was made is old at the end: otherwise the next object, Dynamo's, would have all of it gone through, and the old ones
    with it. The collector's next pass over those finds what is garbage.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        _make_all_old()
        gc.enable()


def _make_all_old() -> None:
    """Puts all objects into the oldest generation, as if passes over the younger ones had found no garbage."""
    if gc.get_freeze_count() == 0:  # what somebody froze stays so
        gc.freeze()
        gc.unfreeze()

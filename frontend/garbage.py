"""Python's cyclic garbage collector, paused while a graph is traced and compiled."""

import gc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch._dynamo.callback import callback_handler


@contextmanager
def collector_paused() -> Iterator[None]:
    """Tracing and compiling make many small objects, and with torch loaded each pass of the collector over the old ones takes a
    tenth of a second or more.

    At the end one pass goes over what was made since: exceptions that Dynamo met hold the frames of whoever called, and so
    what these had at their end. What is left then is old: otherwise the next object would have all of it gone through again.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.collect(0)
        _make_all_old()
        gc.enable()


# `gc.freeze()` takes hundreds of thousands of objects; from Python 3.12 on the few that are immortal count as frozen, too
A_FREEZE = 10_000


def _make_all_old() -> None:
    """Puts all objects into the oldest generation, as if passes over the younger ones had found no more garbage."""
    if gc.get_freeze_count() < A_FREEZE:  # what somebody froze stays so
        gc.freeze()
        gc.unfreeze()


def pause_while_dynamo_compiles() -> None:
    """The same from where Dynamo begins to trace a function to where its guards are there, from its next one on.

    A full pass falls into that, and with it a tenth of what tracing takes. `torch._dynamo.reset` forgets it.
    """
    if _begin not in callback_handler.start_callbacks:
        callback_handler.register_start_callback(_begin)
        callback_handler.register_end_callback(_end)


_dynamo_compiles = ExitStack()


def _begin(_: Any) -> None:
    _dynamo_compiles.enter_context(collector_paused())


def _end(_: Any) -> None:
    _dynamo_compiles.close()

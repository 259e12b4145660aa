"""Lets Python collect cycles seldom, in a command that reads a module, works on it and ends."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MANY = 200_000  # new objects, where Python has 700: it would walk over all ops of a large module again and again


@contextmanager
def few_collections() -> Iterator[None]:
    """Not for a command that runs a program of the user's, whose collector is its own."""
    before = gc.get_threshold()
    gc.set_threshold(MANY, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)

"""Recognises exceptions that the user's signal handlers raise. Python runs a handler between any two instructions, ours too.

Such an exception is the user's, as a KeyboardInterrupt is: code of ours that catches errors and continues re-raises it.
"""

import functools
import signal
from collections.abc import Iterator
from types import CodeType
from typing import Any


def handlers_error(error: BaseException) -> BaseException | None:
    """The exception of a signal handler, if that is `error` or a cause of it; else None."""
    codes = frozenset(_codes())
    seen, known = [error], set()
    while codes and seen:
        found = seen.pop()
        if id(found) in known:
            continue
        known.add(id(found))
        place = found.__traceback__
        while place is not None:
            if place.tb_frame.f_code in codes:
                return found
            place = place.tb_next
        seen += [x for x in (found.__context__, found.__cause__) if x is not None]
    return None


def raise_of_handler(error: BaseException) -> None:
    """Re-raises the exception of a signal handler, if that is `error` or a cause of it."""
    found = handlers_error(error)
    if found is not None:
        raise found


def _codes() -> Iterator[CodeType]:
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        while isinstance(handler, functools.partial):
            handler = handler.func
        handler = getattr(handler, "__func__", handler)
        if not hasattr(handler, "__code__") and callable(handler):
            handler = vars(type(handler)).get("__call__")
        if isinstance(code := getattr(handler, "__code__", None), CodeType):
            yield code

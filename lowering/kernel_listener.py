"""Who is told of each kernel as soon as it is lowered, so that its code can be made while others are being lowered."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

Listener = Callable[[str, str, Sequence[Any]], None]

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Within, `listener(name, text, functions)` is called for each kernel: its MLIR text, and the module's new functions
    and declarations that are made of it."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell(name: str, text: str, functions: Sequence[Any]) -> None:
    """Called by the pass that lowers kernels."""
    if listener := _listener.get():
        listener(name, text, functions)

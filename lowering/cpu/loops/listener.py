"""Who is told of each kernel as soon as it is lowered, so that its code can be made while others are being lowered."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from mlirc.lowering.cpu.loops.function import KernelText

Listener = Callable[[str, KernelText], None]

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Within, `listener(name, kernel)` is called for each kernel, of which the module has a declaration alone."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell(name: str, kernel: KernelText) -> bool:
    """Called by the pass that lowers kernels. Gives whether somebody listens."""
    listener = _listener.get()
    if listener is not None:
        listener(name, kernel)
    return listener is not None

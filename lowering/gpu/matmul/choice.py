"""Who says whether a product on a GPU is a kernel with its epilogue, or the library's with a kernel after it.

The cost model of `generate-triton-matmuls` does, unless somebody was named who measures both (codegen/tuning/matmul_tuning.py).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

Chooser = Callable[[Sequence[Any], bool], bool]
"""The product and the ops that would be its epilogue, in order; what the cost model says. Gives whether it is a kernel."""

_chooser: ContextVar[Chooser | None] = ContextVar("chooser", default=None)


@contextmanager
def choosing(chooser: Chooser) -> Iterator[None]:
    """Within, `chooser` decides."""
    token = _chooser.set(chooser)
    try:
        yield
    finally:
        _chooser.reset(token)


def chooser() -> Chooser | None:
    """Who decides; None where the cost model does."""
    return _chooser.get()

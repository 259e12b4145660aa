"""Puts another function in the place of one of PyTorch's while graphs of ours are traced."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any

from mlirc.codegen.abi.reach import Missing
from mlirc.dialects.core.fork_locks import fork_lock


def replacing(
    module: ModuleType, name: str, other: Callable[[Callable], Callable]
) -> Callable[[], AbstractContextManager[None]]:
    """What makes a context: within, and in any other thread that is within, `module.name` is `other(module.name)`. Raises Missing."""
    plain: Any = getattr(module, name, None)
    if not callable(plain):
        raise Missing(f"there is no {name}")
    made, lock, within = other(plain), fork_lock(), set[object]()

    @contextmanager
    def replaced() -> Iterator[None]:
        mine = object()
        with lock:
            within.add(mine)
            setattr(module, name, made)
        try:
            yield
        finally:
            with lock:
                within.remove(mine)
                if not within:  # else another thread's trace needs it
                    setattr(module, name, plain)

    return replaced

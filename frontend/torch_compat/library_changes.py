"""Reports when Python code overrides an operator of ATen, or takes the override back (`torch.library.Library`)."""

import functools
import logging
import weakref
from collections.abc import Callable
from typing import Any

import torch

from mlirc.codegen.abi.reach import Missing, reach

log = logging.getLogger("mlirc")

_listeners: list[Callable[[], None]] = []


def on_change(listener: Callable[[], None]) -> None:
    """Calls it after each change, from now on."""
    _listeners.append(listener)
    wrapped()


def overrides() -> frozenset[str]:
    """What Python code has registered: "aten/silu/CPU", and so on."""
    return frozenset(getattr(torch.library, "_impls", ()))


@reach(
    "library-changes",
    instead="an operator that is overridden after a graph was compiled is seen at the next compilation",
)
def wrapped() -> bool:
    """Wraps the two methods. A library that is only dropped tells by a finalizer."""
    owner: Any = torch.library.Library
    register, destroy = owner.impl, owner._destroy
    if not isinstance(torch.library._impls, set) or "m" not in register.__code__.co_names:  # type: ignore[attr-defined]
        raise Missing("torch.library keeps its books in another way")

    @functools.wraps(register)
    def impl(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = register(self, *args, **kwargs)
        if getattr(self, "ns", "") == "aten":
            weakref.finalize(self, _tell).atexit = False
            _tell()
        return result

    @functools.wraps(destroy)
    def _destroy(self: Any) -> None:
        destroy(self)
        if getattr(self, "ns", "") == "aten":
            _tell()

    owner.impl, owner._destroy = impl, _destroy
    return True


def _tell() -> None:
    for listener in _listeners:
        try:
            listener()
        except Exception as error:  # never into the user's registration
            log.warning("mlirc: a change of ATen's kernels was not noticed: %s", error)

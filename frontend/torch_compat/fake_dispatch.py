"""Observes the operators of one compilation's fake tensors, by replacing `dispatch` of its FakeTensorMode."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from mlirc.codegen.abi.reach import Missing, reach
from mlirc.frontend.torch_compat.fake_tensors import FakeTensorMode

Mend = Callable[[Any, tuple, dict, Any], Any]  # operator, its arguments, what the mode has made of them -> the result


@reach("fake-dispatch", instead="results have the strides that fake tensors promise")
def fake_dispatch() -> Callable:
    """Around what a mode's operators are run in: each result of one goes through `mend`, with the mode left."""

    @contextmanager
    def mending(mode: Any, mend: Mend) -> Iterator[None]:
        plain = mode.dispatch
        inside = False

        def dispatch(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal inside
            if inside:  # a decomposition: what its parts are is kept for other compilers too
                return plain(func, types, args, kwargs or {})
            inside = True
            try:
                result = plain(func, types, args, kwargs or {})
                return mend(func, args, kwargs or {}, result)
            finally:
                inside = False

        mode.dispatch = dispatch
        try:
            yield
        finally:
            del mode.dispatch

    _try(mending)
    return mending


def _try(mending: Callable) -> None:
    mode, seen = FakeTensorMode(), []

    def mend(func: Any, args: tuple, kwargs: dict, result: Any) -> Any:
        seen.append(func)
        return result

    with mending(mode, mend), mode:
        torch.empty(2).neg()
    with mode:
        torch.empty(2).abs()
    if torch.ops.aten.neg.default not in seen or torch.ops.aten.abs.default in seen:
        raise Missing("a mode's operators do not go through its dispatch")

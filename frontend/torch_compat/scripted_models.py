"""Models that torch.jit made: converts one to an exported program, and reports one given to torch.compile, which skips it."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram

from mlirc.codegen.abi.reach import Missing, reach


@reach("jit-export", instead="mlirc.compile refuses what torch.jit made")
def jit_export() -> Callable[[Any, tuple, dict[str, Any]], ExportedProgram]:
    """A function that exports a scripted or traced model: (model, args, kwargs) -> ExportedProgram."""
    from torch._export.converter import TS2EPConverter

    if not callable(getattr(TS2EPConverter, "convert", None)):
        raise Missing("it does not convert")

    def exported(model: Any, args: tuple, kwargs: dict[str, Any]) -> ExportedProgram:
        with torch.no_grad():
            return TS2EPConverter(model, args, kwargs or None).convert()

    return exported


def on_skipped(backend: Callable, listener: Callable[[dict[str, Any]], None]) -> None:
    """Has `listener` called with a backend's keyword arguments for each module of torch.jit's that torch.compile is given with it.

    Dynamo looks at no frame of such a module, so that the backend hears nothing of it.
    """
    _listeners.append((backend, listener))
    _wrapped()


_listeners: list[tuple[Callable, Callable[[dict[str, Any]], None]]] = []


@reach("skipped-models", instead="torch.compile leaves what torch.jit traced to eager without a word")
def _wrapped() -> bool:
    """Wraps the method that makes torch.compile's result for a module."""
    from torch._dynamo.eval_frame import OptimizedModule, innermost_backend

    owner: Any = OptimizedModule
    initialize = owner._initialize
    if not {"_orig_mod", "dynamo_ctx"} <= set(initialize.__code__.co_names):
        raise Missing("torch.compile's modules are made in another way")

    @functools.wraps(initialize)
    def _initialize(self: Any) -> None:
        initialize(self)
        if isinstance(self._orig_mod, torch.jit.ScriptModule):
            given: Any = innermost_backend(self.dynamo_ctx.callback)
            for backend, listener in _listeners:
                if getattr(given, "compiler_fn", given) is backend:
                    listener(getattr(given, "kwargs", {}))

    owner._initialize = _initialize
    return True

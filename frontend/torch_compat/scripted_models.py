"""Converts what torch.jit made to an exported program."""

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

"""Branches within vectors: what few lanes need is computed where some lane needs it."""

from collections.abc import Callable

import torch

from mlirc.lowering.cpu.math.arithmetic import Arithmetic
from mlirc.lowering.cpu.math.text import Value


def rarely(b: Arithmetic, rare: Value, other: Callable[[], Value], result: Value) -> Value:
    """`result`, with `other()` in the lanes where `rare` holds: a branch that is hardly ever taken."""
    some: str = rare
    if b.lanes > 1:
        some = b.emit(f"vector.reduction <or>, {rare} : {b.type_text(torch.bool)} into i1", torch.bool)
    inner: list[str] = []
    outer, b.lines = b.lines, inner
    corrected = b.select(rare, other(), result)
    b.lines = outer
    type_ = b.type_text(result.dtype)
    chosen = b.emit(f"scf.if {some} -> ({type_}) {{", result.dtype)
    b.lines += [*inner, f"scf.yield {corrected} : {type_}", "} else {", f"scf.yield {result} : {type_}", "}"]
    return chosen

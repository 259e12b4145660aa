"""The user's source lines in MLIR locations."""

from collections.abc import Iterator
from typing import Any

from mlirc.dialects.core.bindings import ir


def source_line(location: ir.Location) -> str:
    """The first source line in an MLIR location: "model.py:12" ("a.mlir:3:10" in IR from a file), or "unknown line"."""
    for part in _files(location):
        # Python's lines come without a column
        return f"{part.filename}:{part.start_line}" + (f":{part.start_col}" if part.start_col else "")
    return "unknown line"


def source_lines(location: ir.Location) -> list[str]:
    """Every source line in an MLIR location, fused ones included, each once: "model.py:12"."""
    return list(dict.fromkeys(f"{p.filename}:{p.start_line}" for p in _files(location)))


def typed(location: ir.Location) -> ir.Location:
    """A diagnostic's location as its own class: the bindings hand it out as the base class."""
    for cls in (ir.FileLineColLoc, ir.FusedLoc, ir.NameLoc, ir.CallSiteLoc):
        try:
            return cls(location)
        except ValueError:
            continue
    return location


def _files(location: ir.Location) -> Iterator[Any]:
    if isinstance(location, ir.FileLineColLoc):
        yield location
    elif isinstance(location, ir.FusedLoc):
        for part in location.locations:
            yield from _files(part)
    elif isinstance(location, ir.NameLoc):
        yield from _files(location.child_loc)
    elif isinstance(location, ir.CallSiteLoc):
        yield from _files(location.callee)

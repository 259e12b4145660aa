"""Finds buffers that begin at multiples of 16 bytes, so that a kernel accesses 16 bytes at once."""

from typing import Any

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import info_of

ALIGNMENT = 16


FOREIGN = ("mlircx.aten", "mlircx.aten_effect", "mlircx.call")  # what they return begins anywhere: it may be a view


def aligned_operands(launch: Any, foreign: bool) -> tuple[int, ...]:
    """The positions of a launch's operands that are taken to be aligned; `foreign`: those that only the run can tell, too."""
    return tuple(k for k, x in enumerate(launch.operands) if _is_aligned(x, foreign))


def is_foreign(x: ir.Value) -> bool:
    """Whether it is memory of the caller's or of ATen's, which nearly always begins at a multiple of 16 bytes."""
    while not isinstance(x.owner, ir.Block) and x.owner.operation.name == "mlirc.view":
        x = x.owner.operands[0]
    return isinstance(x.owner, ir.Block) or x.owner.operation.name in FOREIGN


def _is_aligned(x: ir.Value, foreign: bool) -> bool:
    if is_foreign(x) and not foreign:
        return False
    op = x.owner
    if not isinstance(op, ir.Block) and op.operation.name == "mlirc.view":
        offset = symbols.parse(attribute_value(op.attributes["offset"])) * info_of(x).dtype.itemsize
        return _divides(offset) and _is_aligned(op.operands[0], foreign)
    # an arena's start, and what PyTorch's allocator gives, are multiples of 64 and more
    return is_foreign(x) or op.operation.name in ("mlirc.slot", "mlirc.allocate")


def _divides(offset: Int) -> bool:
    return symbols.mod(offset, ALIGNMENT) == 0

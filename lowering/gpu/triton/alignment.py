"""Finds buffers that begin at multiples of 16 bytes, so that a kernel accesses 16 bytes at once."""

from typing import Any

from mlirc.dialects.control_flow.region_ops import REGION_OPS, read_call
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
    if isinstance(x.owner, ir.Block):
        around = _around(x)
        return around is None or is_foreign(around)
    return x.owner.operation.name in FOREIGN


def _is_aligned(x: ir.Value, foreign: bool) -> bool:
    op = x.owner
    if isinstance(op, ir.Block):
        around = _around(x)
        if around is None:
            return foreign
        whole, part = info_of(around), info_of(x)
        step = whole.stride[0] * part.dtype.itemsize if whole.rank > part.rank else 0
        return _divides(step) and _is_aligned(around, foreign)
    if op.operation.name == "mlirc.view":
        offset = symbols.parse(attribute_value(op.attributes["offset"])) * info_of(x).dtype.itemsize
        return _divides(offset) and _is_aligned(op.operands[0], foreign)
    if op.operation.name in FOREIGN:
        return foreign
    # an arena's start, and what PyTorch's allocator gives, are multiples of 64 and more
    return op.operation.name in ("mlirc.slot", "mlirc.allocate")


def _around(argument: ir.Value) -> ir.Value | None:
    """What an argument of a region's function is, or is a part of, in the function around it; None where a caller gives it: to @graph,
    to a function that several calls share, and the 0-d bool of a loop, which is on the CPU."""
    function = argument.owner.owner
    op = function.operation.parent
    if op is None or op.name not in REGION_OPS:
        return None
    call = read_call(op.opview)
    number = next(k for k, region in enumerate(op.regions) if region.blocks[0].operations[0] == function.operation)
    return call.sources()[number][ir.BlockArgument(argument).arg_number]


def _divides(offset: Int) -> bool:
    return symbols.mod(offset, ALIGNMENT) == 0

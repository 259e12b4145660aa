"""Which buffers begin at multiples of 16 bytes, so that a kernel can read and write 16 bytes at once."""

from typing import Any

from mlirc.dialects import symbols
from mlirc.dialects.bindings import ir
from mlirc.dialects.dialect import attribute_value
from mlirc.dialects.symbols import Int
from mlirc.dialects.tensor_types import info_of

ALIGNMENT = 16


def aligned_operands(launch: Any, arguments: bool) -> tuple[int, ...]:
    """The positions of a launch's operands that are known to be aligned; `arguments`: the graph's are taken to be."""
    return tuple(k for k, x in enumerate(launch.operands) if _is_aligned(x, arguments))


def _is_aligned(x: ir.Value, arguments: bool) -> bool:
    op = x.owner
    if isinstance(op, ir.Block):
        return arguments
    match op.operation.name:
        case "mlirc.slot" | "mlirc.allocate":
            return True  # an arena's start, and what PyTorch's allocator gives, are multiples of 64 and more
        case "mlirc.view":
            offset = symbols.parse(attribute_value(op.attributes["offset"])) * info_of(x).dtype.itemsize
            return _divides(offset) and _is_aligned(op.operands[0], arguments)
    return False  # ATen may return a view


def _divides(offset: Int) -> bool:
    return symbols.mod(offset, ALIGNMENT) == 0

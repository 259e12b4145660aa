"""Maps each tensor value to its buffer, and each buffer to its first and last use.

A buffer is memory with one owner. Views are no buffers: they belong to the one that they look into, and keep it alive.
"""

from dataclasses import field
from functools import lru_cache
from math import gcd
from typing import Any

from mlirc.dialects.control_flow.region_ops import REGION_OPS
from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import TensorInfo
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.module.errors import UnsupportedByPass
from mlirc.lowering.module.forms import LIBRARY

ATEN = ("mlircx.aten", "mlircx.aten_effect")
SCALAR_WORK = ("mlirc.constant", "mlirc.size", "mlirc.iota", "mlirc.copy")
PLANNED_OPS = {"mlircx.kernel", *LIBRARY, *SCALAR_WORK, *REGION_OPS}
ARGUMENT, PLANNED, OWNED = "argument", "planned", "owned"


@dataclass(eq=False)
class Buffer:
    """A block of memory.

    kind      ARGUMENT: the caller's; PLANNED: written by an op of ours, so it is for the plan to place; OWNED: ATen's
    start     position of the op that writes it first, -1 for an argument
    end       position of the last op that uses it, through any view; the return's position if it is a result
    touches   positions of the ops that read or write it; views do neither
    returned  whether a result of the graph is this memory
    """

    value: ir.Value
    kind: str
    start: int
    end: int
    touches: list[int] = field(default_factory=list)
    returned: bool = False


@dataclass
class Liveness:
    """ops: the function's ops in order; a position counts them. buffers: in the order in which they come into being."""

    ops: list[Any]
    names: list[str]
    buffers: list[Buffer]
    buffer_of: dict[ir.Value, Buffer]
    offset_of: dict[ir.Value, Int | None]  # elements from the buffer's start; None where only ATen knows


def is_tensor(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType)


def liveness(function: Any) -> Liveness:
    """Analyse a kernel-level function: one walk over its ops."""
    block = function.regions[0].blocks[0]
    ops = list(block.operations)
    found = Liveness(ops, [op.operation.name for op in ops], [], {}, {})
    for argument in block.arguments:
        if is_tensor(argument):
            _new_buffer(found, argument, ARGUMENT, -1)
    for position, (op, name) in enumerate(zip(ops, found.names, strict=True)):
        for operand in op.operands:
            buffer = found.buffer_of.get(operand)
            if buffer is None:
                continue  # a number
            buffer.end = position
            if name == "func.return":
                buffer.returned = True
            elif name != "mlirc.view":
                buffer.touches.append(position)
        if name == "mlirc.view":
            _view(found, op, op.operands[0], symbols.parse(attribute_value(op.attributes["offset"])))
            continue
        aliases = symbols.parse_list(attribute_value(op.attributes["aliases"])) if name in ATEN else ()
        for k, result in enumerate(op.results):
            if not is_tensor(result):
                continue
            if name in PLANNED_OPS:
                _new_buffer(found, result, PLANNED, position)
            elif name not in ATEN:
                raise UnsupportedByPass(op, "an op that is not of the kernel form; run to-kernels first")
            elif aliases[k] == -1:
                _new_buffer(found, result, OWNED, position)
            else:
                _alias(found, result, op.operands[aliases[k]])
    return found


def _new_buffer(found: Liveness, value: ir.Value, kind: str, position: int) -> None:
    buffer = Buffer(value, kind, position, position)
    found.buffers.append(buffer)
    found.buffer_of[value] = buffer
    found.offset_of[value] = 0


def _view(found: Liveness, op: Any, x: ir.Value, offset: Int) -> None:
    found.buffer_of[op.results[0]] = found.buffer_of[x]
    before = found.offset_of[x]
    found.offset_of[op.results[0]] = None if before is None else before + offset


def _alias(found: Liveness, result: ir.Value, x: ir.Value) -> None:
    found.buffer_of[result] = found.buffer_of[x]
    found.offset_of[result] = None


def last_uses(found: Liveness) -> dict[int, list[ir.Value]]:
    """position -> the tensors of ATen calls whose last use, through views or not, is there: what is to be released.

    One that is returned, itself or as the memory of a view, goes to the caller instead.
    """
    holders: dict[ir.Value, tuple[ir.Value, ...]] = {}  # ATen's tensors that a value lives in, the nearest last
    last: dict[ir.Value, int] = {}
    for position, (op, name) in enumerate(zip(found.ops, found.names, strict=True)):
        for operand in op.operands:
            held = holders.get(operand, ())
            last.update(dict.fromkeys(held, position))
        if name == "mlirc.view":
            holders[op.results[0]] = holders.get(op.operands[0], ())
        elif name in ATEN:
            aliases = symbols.parse_list(attribute_value(op.attributes["aliases"]))
            for result, alias in zip(op.results, aliases, strict=True):
                if is_tensor(result):
                    behind = () if alias == -1 else holders.get(op.operands[alias], ())
                    holders[result] = (*behind, result)
                    last[result] = position
    end = len(found.ops) - 1
    returned = {holders[x][-1] for x in found.ops[end].operands if holders.get(x)}
    found_at: dict[int, list[ir.Value]] = {}
    for value, position in last.items():
        if value not in returned:
            found_at.setdefault(min(position, end - 1), []).append(value)
    return found_at


@lru_cache(maxsize=4096)
def byte_size(info: TensorInfo) -> Int:
    """Bytes from the first element to past the last: never negative, whatever the symbols are."""
    content, rest = content_of(info.extent)
    return rest * (content * info.dtype.itemsize)


@lru_cache(maxsize=4096)
def content_of(size: Int) -> tuple[int, Int]:
    """`size` as (c, p) with size == c*p, c the largest integer that divides all its coefficients, and p at least 0.

    6*s0 + 4 is (2, 3*s0 + 2); 12 is (12, 1). Where p could be negative (8*s0 - 7, when s0 is 0) it is max(p, 0): a
    tensor with a size of 0 has no bytes.
    """
    if isinstance(size, int):
        return max(size, 0), 1
    content = gcd(*size.terms.values())
    rest = symbols.floordiv(size, content)
    return content, rest if symbols.known_nonnegative(rest) else symbols.maximum(rest, 0)

"""Checks that no launch overwrites an index that it reads: the index could change after its check.

An output may be where an index is if each point reads the element that it writes, and before that. Else the two have no byte
in common, which is shown from the places in the arena. Numbers that are no indices may be overwritten: they are wrong then,
but nothing outside of a buffer is touched.
"""

from typing import Any

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import info_of
from mlirc.lowering.module.rules import expect
from mlirc.lowering.verify.index_proofs import Space
from mlirc.lowering.verify.memory import MemoryVerifier, Root


def verify_overlaps(op: Any, memory: MemoryVerifier) -> None:
    """Raises StageError for a launch or run that may overwrite an index."""
    indices = index_reads(op)
    if not indices:
        return
    count = attribute_value(op.attributes["inputs"])
    texts = attribute_value(list(op.regions[0].blocks[0].operations)[-1].attributes["maps"])
    for k, maps in indices.items():
        for m, out in enumerate(list(op.operands)[count:]):
            x = op.operands[k]
            if apart(memory, x, out) or (same_place(memory, x, out) and maps == {texts[m]}):
                continue
            expect(not memory.demand, op, f"output {m} may overwrite operand {k}, an index", "write somewhere else")


def index_reads(op: Any) -> dict[int, set[str]]:
    """Operands whose elements become indices, with the maps by which they are read."""
    block = op.regions[0].blocks[0]
    number = {argument: k for k, argument in enumerate(block.arguments)}
    of: dict[ir.Value, frozenset[int]] = {}
    maps: dict[int, set[str]] = {}
    found: set[int] = set()
    for item in block.operations:
        name = item.operation.name
        parts = [of.get(x, frozenset[int]()) for x in item.operands]
        made = frozenset[int]().union(*parts)
        if name == "mlirc.read":
            k = number[item.operands[0]]
            maps.setdefault(k, set()).add(attribute_value(item.attributes["map"]))
            made |= {k}
        elif name == "mlirc.check_index":
            found |= made
        for result in item.results:
            of[result] = made
    return {k: maps[k] for k in sorted(found)}


def apart(memory: MemoryVerifier, x: ir.Value, y: ir.Value) -> bool:
    """Whether two tensors are shown to have no byte in common."""
    a, b = memory.roots.get(x), memory.roots.get(y)
    if a is None or b is None:
        return False
    bases = base(a), base(b)
    slots = bases[0].kind == bases[1].kind == "slot" and bases[0].info.device == bases[1].info.device
    if bases[0] is not bases[1] and not slots:
        return True
    if bases != (a, b):  # a view that an ATen call made
        return False
    if 0 in info_of(x).shape or 0 in info_of(y).shape:
        return True
    (first, end), (start, last) = span(memory, x, a), span(memory, y, b)
    space = Space({}, memory.facts)
    return space.nonnegative(start - end) or space.nonnegative(first - last)


def base(root: Root) -> Root:
    while root.alias_of is not None:
        root = root.alias_of
    return root


def span(memory: MemoryVerifier, x: ir.Value, root: Root) -> tuple[Int, Int]:
    """The first byte, and that behind the last."""
    info = info_of(x)
    start = memory.offsets[x] * info.dtype.itemsize
    if root.kind == "slot":
        start = start + symbols.parse(attribute_value(root.op.attributes["offset"]))
    return start, start + info.extent * info.dtype.itemsize


def same_place(memory: MemoryVerifier, x: ir.Value, out: ir.Value) -> bool:
    """Whether equal indices into both lead to the same bytes."""
    a, b = memory.roots.get(x), memory.roots.get(out)
    have, made = info_of(x), info_of(out)
    if a is None or b is None or a.alias_of or b.alias_of or have.dtype.itemsize != made.dtype.itemsize:
        return False
    slots = a.kind == b.kind == "slot" and have.device == made.device
    if a is not b and not slots:
        return False
    return (have.shape, have.stride) == (made.shape, made.stride) and span(memory, x, a) == span(memory, out, b)

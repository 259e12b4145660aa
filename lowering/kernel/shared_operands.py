"""Finds operands of a launch that share memory: an output that overwrites an input, and parts of one input."""

from typing import Any

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.tensor_types import info_of

NAMED = ("mlirc.slot", "mlirc.allocate")


def shared_operands(launch: Any) -> frozenset[tuple[int, int]]:
    """Pairs (input, output) of positions that may be the same memory."""
    inputs = attribute_value(launch.attributes["inputs"])
    memory = [memory_of(x) for x in launch.operands]
    return frozenset(
        (a, b)
        for a in range(inputs)
        for b in range(inputs, len(memory))
        if memory[a] is None or memory[b] is None or memory[a] == memory[b]
    )


def parts_of_operands(launch: Any) -> frozenset[tuple[int, int, int]]:
    """(k, j, n): input k lies in input j, from element n on; j is no such part itself. One address in registers is then
    enough for both."""
    inputs = list(launch.operands)[: attribute_value(launch.attributes["inputs"])]
    places = [_part(x) for x in inputs]
    found: dict[int, tuple[int, int]] = {}
    for k, part in enumerate(places):
        for j, whole in enumerate(places):
            if j != k and j not in found and part and whole and part[0] == whole[0]:
                begin, end = part[1] - whole[1], part[2] - whole[1]
                if begin >= 0 and end <= whole[2] - whole[1] and (j < k or end - begin < whole[2] - whole[1]):
                    found[k] = (j, begin)
                    break
    return frozenset((k, j, n) for k, (j, n) in found.items() if j not in found)


def _part(x: ir.Value) -> tuple[Any, int, int] | None:
    """What memory it is of, with the dtype, and its first and last element there; None where a number is not known."""
    info, offset = info_of(x), 0
    while not isinstance(x.owner, ir.Block) and x.owner.operation.name == "mlirc.view":
        offset = offset + symbols.parse(attribute_value(x.owner.attributes["offset"]))
        x = x.owner.operands[0]
        if info_of(x).dtype != info.dtype:
            return None
    if not isinstance(offset, int) or not isinstance(info.extent, int):
        return None
    return (x, offset, offset + info.extent)


def memory_of(x: ir.Value) -> Any:
    """Equal for what begins in the same slot, allocation or argument; None for what only ATen knows of. Slots at other
    places do not overlap while both are in use."""
    while not isinstance(x.owner, ir.Block) and x.owner.operation.name == "mlirc.view":
        x = x.owner.operands[0]
    if isinstance(x.owner, ir.Block):
        return x
    if x.owner.operation.name not in NAMED:
        return None
    return (info_of(x).device, attribute_value(x.owner.attributes["offset"])) if "offset" in x.owner.attributes else x

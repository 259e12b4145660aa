"""Which operands of a launch are the same memory: where plan-memory has an output overwrite an input."""

from typing import Any

from mlirc.dialects.bindings import ir
from mlirc.dialects.dialect import attribute_value
from mlirc.dialects.tensor_types import info_of

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

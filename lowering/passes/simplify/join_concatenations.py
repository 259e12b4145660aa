"""join-concatenations: what begins with an earlier concatenation is that one, and the rest."""

from dataclasses import field
from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value, create
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.fusion.aten_calls import arguments, called
from mlirc.lowering.pipeline.ledger import Ledger

CALL = "aten.cat.default"
OPS = ("mlirc.cat2", "mlirc.cat3", "mlirc.cat4")
MOST_PARTS = 4  # of an op of ours


@dataclass(frozen=True)
class JoinConcatenations:
    """Read an earlier concatenation in place of its parts, where more are joined than an op of ours takes.

    before:  %0 = "mlirc.cat4"(%a, %b, %c, %d) {dim = 1}
             %1 = "mlircx.aten"(%a, %b, %c, %d, %e) {op = "aten.cat.default", ...}
    after:   %1 = "mlirc.cat2"(%0, %e) {dim = 1}

    As in a DenseNet, each of whose layers joins the results of all layers before it. ATen's call copies them one by one; the
    op is a kernel that fuses with what reads it.
    FEW PARTS   an earlier concatenation along the same dimension has the first operands; with it, there are at most 4; tensors
                have one dtype, on a CPU
    """

    name = "join-concatenations"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        known: dict[int, Prefix] = {}
        for op in list(function.regions[0].blocks[0].operations):
            found = concatenation(op)
            if found is None:
                continue
            parts, dim = found
            earlier, count, end = longest(known.setdefault(dim, Prefix()), parts)
            result = op.results[0]
            if called(op) == CALL and count:
                fits = 1 + len(parts) - count <= MOST_PARTS
                numbers = {"parts": 1 + len(parts) - count, "most_parts": MOST_PARTS}
                ledger.record(self.name, "join", CALL, "FEW PARTS", fits, op, **numbers)
                if fits and ledger.allows(self.name, op):
                    rest = [earlier, *parts[count:]]
                    with ir.InsertionPoint(op), op.location:
                        result = create(f"cat{len(rest)}", rest, [result.type], {"dim": dim}).out
                    op.results[0].replace_all_uses_with(result)
                    op.operation.erase()
            end.joined = result


@dataclass
class Prefix:
    """First operands of concatenations: what joins them all, if anything does, and these with one more."""

    joined: ir.Value | None = None
    more: dict[ir.Value, "Prefix"] = field(default_factory=dict)


def longest(known: Prefix, parts: list[ir.Value]) -> tuple[ir.Value | None, int, Prefix]:
    """The concatenation of as many first parts as there is one for, but not of all; how many; and the place of all parts, which
    is made."""
    earlier, count = None, 0
    for k, part in enumerate(parts):
        if known.joined is not None:
            earlier, count = known.joined, k
        known = known.more.setdefault(part, Prefix())
    return earlier, count, known


def concatenation(op: Any) -> tuple[list[ir.Value], int] | None:
    """What it joins, and along which dimension; None for another op, and where dtypes or ranks differ."""
    if op.operation.name in OPS:
        parts, dim = list(op.operands), attribute_value(op.attributes["dim"])
    elif called(op) == CALL:
        given = arguments(op)
        if not (isinstance(given[0], list) and all(isinstance(x, dict) and "$" in x for x in given[0])):
            return None
        parts, dim = [op.operands[x["$"]] for x in given[0]], given[1] if len(given) > 1 else 0
    else:
        return None
    info = info_of(op.results[0])
    alike = all((i.dtype, i.rank, i.device) == (info.dtype, info.rank, "cpu") for i in map(info_of, parts))
    return (parts, dim % info.rank) if alike and isinstance(dim, int) and info.rank else None

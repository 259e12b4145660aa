"""Updates an argument by ATen's in-place operators, where the graph overwrites it with their result and nobody can tell.

A cache of keys is the example: each token copies one row into it, and attention then reads all of it.

    before:  %1 = "mlircx.aten"(%arg0, %i, %row) {op = "aten.index_copy.default", aliases = "-1", ...}
             %2 = "mlirc.attention"(%q, %1, ...)
             "mlirc.assign"(%arg0, %1)
    after:   %1 = "mlircx.aten_effect"(%arg0, %i, %row) {op = "aten.index_copy_.default", aliases = "0", ...}
             %2 = "mlirc.attention"(%q, %1, ...)
"""

from collections.abc import Mapping
from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import create
from mlirc.dialects.core.tensor_types import KERNEL_DTYPES, info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.analysis.liveness import Liveness, liveness
from mlirc.lowering.fusion.aten_calls import arguments, called, changeable
from mlirc.lowering.pipeline.ledger import Ledger


@dataclass(frozen=True)
class Update:
    """The assign at position `assign`, and the positions of the calls, in order, that make its value of its target."""

    assign: int
    calls: tuple[int, ...]


def update_arguments(function: Any, in_place: Mapping[str, str], ledger: Ledger, pass_name: str) -> None:
    """Rewrites what may be. `in_place` gives an operator's variant that changes its first operand and returns it."""
    if all(op.operation.name != "mlirc.assign" for op in function.regions[0].blocks[0].operations):
        return
    found = liveness(function)
    updates = [
        update for k, name in enumerate(found.names) if name == "mlirc.assign" and (update := at(found, k, in_place))
    ]
    for update, why_not in [(update, obstacle(found, update)) for update in updates]:
        rule = f"TO INPUT: {why_not}" if why_not else "TO INPUT"
        first = found.ops[update.calls[0]]
        if not why_not and not ledger.allows(pass_name, first):
            continue
        ledger.record(pass_name, "update", called(first), rule, not why_not, first)
        if not why_not:
            found.ops[update.assign].operation.erase()
            for position in update.calls:
                change(found.ops[position], in_place)


def at(found: Liveness, position: int, in_place: Mapping[str, str]) -> Update | None:
    """What the assign at `position` writes, where that is made of all of an argument by calls that could change it."""
    target, value = found.ops[position].operands
    calls: list[int] = []
    while value != target:
        op = value.owner
        if isinstance(op, ir.Block) or called(op) not in in_place or arguments(op)[:1] != [{"$": 0}]:
            return None
        if op.operands[0].type != value.type or info_of(value).dtype not in KERNEL_DTYPES:
            return None
        calls.insert(0, found.buffer_of[value].start)
        value = op.operands[0]
    return Update(position, tuple(calls)) if calls and isinstance(target.owner, ir.Block) else None


def obstacle(found: Liveness, update: Update) -> str:
    """Why the calls may not change the argument, or "".

    From the first call on the argument's memory holds another value: whatever reads the old one must come before, and so
    for what each call makes and the next one. Nothing else may write to it, at any time.
    """
    target = found.ops[update.assign].operands[0]
    memory = found.buffer_of[target]
    for position in memory.touches:
        if found.names[position] == "mlircx.aten_effect" or (
            found.names[position] == "mlirc.assign"
            and found.buffer_of[found.ops[position].operands[0]] is memory
            and position != update.assign
        ):
            return "something else writes to the input"
    values = [target, *(found.ops[k].results[0] for k in update.calls)]
    for value, call in zip(values, update.calls, strict=False):
        buffer, op = found.buffer_of[value], found.ops[call]
        if any(touch > call and touch != update.assign for touch in buffer.touches) or buffer.returned:
            return "what was there before is used later"
        if not changeable(op) or any(found.buffer_of.get(x) is buffer for x in list(op.operands)[1:]):
            return "the call reads more of the input than what it changes"
    if found.buffer_of[values[-1]].returned:
        return "the value is a result too"
    return ""


def change(op: Any, in_place: Mapping[str, str]) -> None:
    """The call, with its first operand's memory for the result."""
    attributes = dict(op.attributes.items()) | {"op": in_place[called(op)], "aliases": "0"}
    with ir.InsertionPoint(op), op.location:
        made = create("aten_effect", list(op.operands), [op.results[0].type], attributes)
    op.results[0].replace_all_uses_with(made.results[0])
    op.operation.erase()

"""Computes a value that overwrites an input directly in the input's memory, where nobody can tell."""

from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import create
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.dialects.core.tensor_types import info_of
from mlirc.lowering.analysis.accesses import accesses, writes_where_read
from mlirc.lowering.analysis.effects import may_raise
from mlirc.lowering.analysis.liveness import Buffer, Liveness, liveness
from mlirc.lowering.analysis.provenance import view_root
from mlirc.lowering.memory.explicit_copies import scalar_work
from mlirc.lowering.module.forms import LIBRARY
from mlirc.lowering.pipeline.ledger import Ledger

WRITERS = ("mlircx.kernel", *LIBRARY, "mlirc.copy")  # ops that write where they are told to


def bufferize_assigns(function: Any, ledger: Ledger, pass_name: str) -> dict[ir.Value, ir.Value]:
    """The target for each value that an op is to write there at once. Afterwards each `assign` has such a value: where
    the op that computes it may not do so, a copy is inserted that may.

    before:  %1 = "mlircx.kernel"(%arg0)                     %1 = "mlircx.kernel"(%arg0)
             "mlirc.assign"(%arg0, %1)                      %2 = "mlircx.kernel"(%arg0, %1)     still reads %arg0
                                                            "mlirc.assign"(%arg0, %1)
    after:   {%1: %arg0}                                    %3 = "mlircx.kernel"(%1)            a copy: {%3: %arg0}
                                                            "mlirc.assign"(%arg0, %3)

    What else reads the value reads the input then, before and after the assign. Distinct arguments are taken not to overlap.
    """
    targets: dict[ir.Value, ir.Value] = {}
    if not any(op.operation.name == "mlirc.assign" for op in function.regions[0].blocks[0].operations):
        return targets
    found = liveness(function)
    assigns = [position for position, name in enumerate(found.names) if name == "mlirc.assign"]
    memories = {found.buffer_of[found.ops[position].operands[0]] for position in assigns}
    written_once = {memory for memory in memories if len(writes_to(found, memory)) == 1}  # asked while all are there
    last_error = max((k for k, op in enumerate(found.ops) if may_raise(op)), default=-1)
    for position in assigns:
        op = found.ops[position]
        target, value = op.operands
        if found.buffer_of.get(value) is found.buffer_of[target] and same_place(found, target, value):
            op.operation.erase()
            continue
        why_not = (
            "the value is in another input" if value in targets else obstacle(found, position, written_once, last_error)
        )
        if not why_not and not ledger.allows(pass_name, op):
            why_not = "REWRITES"
        rule = f"TO INPUT: {why_not}" if why_not else "TO INPUT"
        ledger.record(pass_name, "write", "input", rule, not why_not, op)
        if why_not:
            op.operands[1] = copy_for(op, found.buffer_of.get(value) is found.buffer_of[target])
        targets[op.operands[1]] = target
    return targets


def same_place(found: Liveness, x: ir.Value, y: ir.Value) -> bool:
    offset = found.offset_of[x]
    return x == y or (offset is not None and offset == found.offset_of[y] and info_of(x) == info_of(y))


def obstacle(found: Liveness, position: int, written_once: set[Buffer], last_error: int) -> str:
    """Why the value of the assign at `position` may not be computed in the target, or "". `written_once` are arguments'
    memories that nothing else writes to, `last_error` is the position of the last op that may raise."""
    target, value = found.ops[position].operands
    buffer, memory = found.buffer_of.get(value), found.buffer_of[target]
    if buffer is None or buffer.value != value or buffer.start < 0 or found.names[buffer.start] not in WRITERS:
        return "the value is no output of a kernel or library routine"
    out, place = info_of(value), info_of(target)
    if buffer.returned:
        return "the value is a result too"
    if last_error > buffer.start:  # a call that raises there must find the input as it was
        return "a later op may raise"
    if buffer.touches != [position] and (out != place or memory not in written_once):
        # its readers read the input instead, which has to hold it, in the same layout, until the end
        return "the value has other uses"
    if out.dtype != place.dtype or out.shape != place.shape:
        return "the value broadcasts"
    if out.device != place.device:
        return "the value is on another device"
    if any(buffer.start < touch < position for touch in memory.touches):
        return "the input is used between"
    producer = found.ops[buffer.start]
    if made_by_aten(found, target, buffer.start):
        return "the target is a view that ATen makes later"
    readers = [k for k, x in enumerate(producer.operands) if found.buffer_of.get(x) is memory]
    if found.names[buffer.start] != "mlircx.kernel":
        return "the same library call reads the input" if readers else ""
    access = accesses(producer)
    if access.may_fail:
        return "a bad index would leave the input half written"
    result = list(producer.results).index(value)
    for k in readers:
        x = producer.operands[k]
        if not writes_where_read(access, result, place, found.offset_of[target], k, info_of(x), found.offset_of[x]):
            return "the kernel reads the input elsewhere than it writes"
    return ""


def writes_to(found: Liveness, memory: Buffer) -> list[int]:
    """Positions of the ops that may write to an argument's memory: assigns, and calls of ATen's that have effects."""
    ops, names = found.ops, found.names
    return [
        k
        for k in memory.touches
        if names[k] == "mlircx.aten_effect"
        or (names[k] == "mlirc.assign" and found.buffer_of[ops[k].operands[0]] is memory)
    ]


def made_by_aten(found: Liveness, target: ir.Value, start: int) -> bool:
    """Whether an ATen call at or after position `start` is among what makes the view `target`."""
    owner = view_root(target).owner
    return not isinstance(owner, ir.Block) and found.ops.index(owner) >= start


def copy_for(assign: Any, overlaps: bool) -> ir.Value:
    """The value of `assign`, copied by an op of its own just before; by way of a buffer if it overlaps the target."""
    target, value = assign.operands
    info = info_of(target)
    g = GraphBuilder()
    with ir.InsertionPoint(assign), assign.location:
        if overlaps:
            value = scalar_work(g.copy(value).owner.opview)
        if info_of(value).shape != info.shape:
            value = g.expand(value, info.shape)
        return scalar_work(g.copy(value, info).owner.opview)


def move(target: ir.Value, op: Any) -> ir.Value:
    """`target`, a view of an argument, available before `op`: views that are made later are made there once more."""
    owner = target.owner
    if isinstance(owner, ir.Block) or owner.name != "mlirc.view" or comes_before(owner, op):
        return target
    base = move(owner.operands[0], op)
    with ir.InsertionPoint(op), owner.location:
        attributes = {"map": owner.attributes["map"], "offset": owner.attributes["offset"]}
        return create("view", [base], [target.type], attributes).out


def comes_before(a: Any, b: Any) -> bool:
    return a.operation.is_before_in_block(b.operation)

"""Library calls that run in a GPU's second stream, beside what follows them, until a `mlirc.join` waits for them."""

from collections.abc import Sequence
from typing import Any

from mlirc.dialects.bindings import ir
from mlirc.lowering.effects import EFFECTS
from mlirc.lowering.stage_forms import PRODUCTS

ASIDE = "mlirc.aside"  # of such a call: it starts once what precedes it has ended, in either stream
JOIN = "mlirc.join"
CALLS = {*PRODUCTS, "mlircx.call"}


def waits(ops: Sequence[Any]) -> dict[int, int]:
    """The position of each such call of a function -> that of what waits for it: the next join, or the return."""
    found: dict[int, int] = {}
    wait = len(ops) - 1
    for position in range(len(ops) - 1, -1, -1):
        name = ops[position].operation.name
        if name == JOIN:
            wait = position
        elif name in CALLS and ASIDE in ops[position].attributes:
            found[position] = wait
    return found


def join_before(op: Any) -> Any:
    """A new join."""
    return ir.Operation.create(JOIN, loc=op.location, ip=ir.InsertionPoint(op))


def settle(function: Any, overwritten: Sequence[ir.Value]) -> None:
    """Takes ASIDE from calls that may not run beside what is between them and their join, and sees to a last join.

    Not: what something else reads before the join; what reads an argument that is overwritten, at once or by an op in between.
    `overwritten`: tensors that ops will write to instead of their own results.
    """
    from mlirc.lowering.liveness import is_tensor, liveness

    found = liveness(function)
    until = waits(found.ops)
    if not until:
        return
    effects = [x for op in found.ops if op.operation.name in EFFECTS for x in op.operands]
    written = {found.buffer_of[x] for x in (*overwritten, *effects) if x in found.buffer_of}
    for position, wait in sorted(until.items(), reverse=True):
        op = found.ops[position]
        own = {found.buffer_of[x] for x in op.results if is_tensor(x)}
        used = own | {found.buffer_of[x] for x in op.operands if x in found.buffer_of}
        early = any(position < k < wait and k not in until for buffer in own for k in buffer.touches)
        if early or used & written:
            del op.attributes[ASIDE]
            del until[position]
    end = len(found.ops) - 1
    if end in until.values():
        join_before(found.ops[end])

"""Which op made an answer wrong: the first, on the way to the wrong value, that computes what the module before did not, of what it did."""

from collections.abc import Sequence
from typing import Any

import torch

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.interpreter.interpreter import RunsCode
from mlirc.execution.modules import graph_of, interpret
from mlirc.lowering.analysis.effects import may_write
from mlirc.lowering.module.source_lines import source_line

GIVEN = ("mlirc.constant", "mlirc.size", "mlirc.iota")
PLACES = ("mlirc.slot", "mlirc.allocate", "mlirc.release")


class Signatures:
    """Tensors by what they hold: sums that tell their elements and their order; equal within a tolerance."""

    def __init__(self, tolerance: float):
        self.tolerance = tolerance
        self.known: dict[int, list[tuple[float, ...]]] = {}

    def of(self, x: Any) -> tuple[float, ...] | None:
        if not isinstance(x, torch.Tensor):
            return None
        flat = torch.view_as_real(x).flatten() if x.is_complex() else x.flatten()
        flat = torch.nan_to_num(flat.double(), nan=12345.0, posinf=1e300, neginf=-1e300).clamp(-1e30, 1e30)
        k = torch.arange(flat.numel(), dtype=torch.float64)
        size = float(flat.abs().sum())
        return (
            float(flat.numel()),
            size,
            float(flat.sum()),
            float((flat * torch.cos(k)).sum()),
            float((flat * torch.cos(k * k)).sum()),
        )

    def add(self, found: tuple[float, ...] | None) -> None:
        if found is not None:
            self.known.setdefault(int(found[0]), []).append(found)

    def has(self, found: tuple[float, ...] | None) -> bool:
        """Numbers, which are no tensors, are always known."""
        if found is None:
            return True
        slack = self.tolerance * (found[1] + 1e-30)
        return any(
            all(abs(a - b) <= slack for a, b in zip(found[1:], other[1:], strict=True))
            for other in self.known.get(int(found[0]), ())
        )


class Trace:
    """What each op of a function read and left, as signatures, and which op left what a value holds.

    wrote    an argument's number -> the op that last wrote to its memory
    """

    def __init__(self, signatures: Signatures):
        self.signatures = signatures
        self.ops: list[dict[str, Any]] = []
        self.last: dict[Any, int] = {}  # a value -> the op that last wrote it
        self.wrote: dict[int, int] = {}

    def before(self, op: Any, operands: Sequence[Any]) -> None:
        makers = [self.last.get(x) for x in op.operands]
        self.ops.append({"op": op, "read": [self.signatures.of(x) for x in operands], "makers": makers})

    def after(self, op: Any, values: Sequence[Any], held: Sequence[Any]) -> None:
        record = self.ops[-1]
        place = op.operation.name in PLACES
        record["left"] = [] if place else [self.signatures.of(x) for x in held]
        if "inputs" in op.attributes:
            count = attribute_value(op.attributes["inputs"])
            record["read"], record["makers"] = record["read"][:count], record["makers"][:count]
        for value in () if place else values:
            self.last[value] = len(self.ops) - 1
        changed = list(op.operands) if may_write(op.operation) else values
        for argument in {n for x in changed if (n := argument_of(x)) is not None}:
            self.wrote[argument] = len(self.ops) - 1
        if op.operation.name == "mlirc.view":  # what is written through it is written to what it is a view of
            self.last[op.results[0]] = self.last.get(op.operands[0], len(self.ops) - 1)


def argument_of(value: Any) -> int | None:
    """The number of the argument that a value is, or that it was made of by views alone."""
    while not isinstance(value.owner, ir.Block):
        if value.owner.name != "mlirc.view":
            return None
        value = value.owner.operands[0]
    return ir.BlockArgument(value).arg_number


def culprit(
    before: ir.Module,
    after: ir.Module,
    inputs: Sequence[Any],
    position: int,
    tolerance: float,
    code: RunsCode | None = None,
    written: bool = False,
) -> str:
    """ "mlircx.kernel 'exp_add' (model.py:12)": the op of `after` that is to blame for the result at a position, or for what the call
    leaves in the argument at a position, where `written`; "" if none is found. Where nothing in `after` writes to the argument, it is the op of
    `before` that did. With `code`, kernels of `after` are run by their code. Needs an entered context. Raises what the interpreter raises."""
    signatures = Signatures(tolerance)
    for x in inputs:
        signatures.add(signatures.of(x))
    old = Trace(signatures)
    interpret(before, inputs, old)
    for record in old.ops:
        for one in record.get("left", ()):
            signatures.add(one)
    new = Trace(signatures)
    try:
        interpret(after, inputs, new, code)
    except Exception:
        if new.ops and "left" not in new.ops[-1]:
            return describe(new.ops[-1]["op"])
        raise
    if written:
        start = new.wrote.get(position)
        if start is None and position in old.wrote:
            return f"{describe(old.ops[old.wrote[position]]['op'])}, which is gone"
    else:
        returned = list(list(graph_of(after).regions[0].blocks[0].operations)[-1].operands)
        start = new.last.get(returned[position]) if position < len(returned) else None
    found = _frontier(new, start, signatures)
    return describe(new.ops[found]["op"]) if found is not None else ""


def _frontier(trace: Trace, start: int | None, signatures: Signatures) -> int | None:
    """The first op, of those that lead to `start` by unknown values, all of whose operands are known."""
    waiting, seen, found = [start] if start is not None else [], set(), []
    while waiting:
        k = waiting.pop()
        if k in seen:
            continue
        seen.add(k)
        record = trace.ops[k]
        bad = [
            maker
            for maker, one in zip(record["makers"], record["read"], strict=True)
            if maker is not None
            and maker < k
            and trace.ops[maker]["op"].operation.name not in GIVEN
            and not signatures.has(one)
        ]
        if bad:
            waiting += bad
        elif not all(signatures.has(one) for one in record.get("left", ())):
            found.append(k)
    return min(found, default=start)


def describe(op: Any) -> str:
    texts = [attribute_value(op.attributes[n]) for n in ("label", "callee", "op") if n in op.attributes]
    named = f" '{texts[0]}'" if texts else ""
    return f"{op.operation.name}{named} ({source_line(op.location)})"


def entered(*arguments: Any) -> str:
    with context():
        return culprit(*arguments)

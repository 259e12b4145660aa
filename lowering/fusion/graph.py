"""A function's kernels and other ops as a graph that fusion passes rewrite in Python, and write back to MLIR once.

A *unit* is a kernel or any other op, except views: a view is a way to read its root, so who reads it depends on the
root's unit.
"""

from dataclasses import dataclass, field
from typing import Any

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.tensor_types import info_of
from mlirc.lowering.analysis.effects import EFFECTS, may_write
from mlirc.lowering.analysis.index_maps import substitute
from mlirc.lowering.fusion.body import Body, Tensor, read_body, write_body


@dataclass(eq=False, slots=True)
class Unit:
    """A kernel (`body`) or another op.

    inputs     the tensors that it reads, each once
    before     units that must stay before it though it reads nothing of theirs: effects keep their order
    ops        the ops of the function that it stands for
    position   its place in an order in which every unit follows those that it depends on
    changed    whether `body` is to be written back
    members    the names of the kernels that it was made of, where somebody asked for them (candidates.py)
    """

    ops: list[ir.Operation]
    inputs: list[Tensor]
    outputs: list[Tensor]
    position: int
    body: Any = None  # of a kernel: its Body
    before: set["Unit"] = field(default_factory=set)
    after: set["Unit"] = field(default_factory=set)
    locations: list[ir.Location] = field(default_factory=list)
    changed: bool = False
    members: tuple[str, ...] = ()

    @property
    def users(self) -> set["Unit"]:
        """The units that must come after it."""
        found = set(self.after)
        for tensor in self.outputs:
            found |= tensor.readers
        return found

    @property
    def location(self) -> ir.Location:
        unique = list(dict.fromkeys(self.locations))
        return unique[0] if len(unique) == 1 else ir.Location.fused(unique)


class FusionGraph:
    """The units of a `func.func`. Passes call `merge` and `rewrite`, at the end `write_back`."""

    def __init__(self, function: Any):
        self.block = function.regions[0].blocks[0]
        self.tensors: dict[ir.Value, Tensor] = {}
        self.order: list[Unit | None] = []  # by position; None where a unit went into a later one
        self.views: list[Tensor] = []
        self.old_ops: list[ir.Operation] = []  # in the order of the block
        self._last_effect: Unit | None = None
        self._writer: dict[int, Unit] = {}  # id of a root tensor -> the last op that may have written to it
        for argument in self.block.arguments:
            self.tensors[argument] = Tensor(argument, info_of(argument))
        for op in self.block.operations:
            self._add(op.operation)

    # ---- reading

    def _add(self, op: ir.Operation) -> None:
        name = op.name
        self.old_ops.append(op)
        if name == "mlirc.view":
            self._add_view(op)
            return
        operands = [self.tensors[x] for x in op.operands]
        outputs = [Tensor(x, info_of(x)) for x in op.results]
        unit = Unit(
            [op], list({id(t): t for t in operands}.values()), outputs, len(self.order), locations=[op.location]
        )
        self.order.append(unit)
        for tensor in outputs:
            tensor.unit = unit
            self.tensors[tensor.value] = tensor
        if name == "mlircx.kernel":
            unit.body = read_body(op, operands, outputs)
        self._order_effects(unit, op)
        for tensor in unit.inputs:
            tensor.root.readers.add(unit)

    def _add_view(self, op: ir.Operation) -> None:
        x, out = self.tensors[op.operands[0]], op.result
        text = ir.StringAttr(op.attributes["map"]).value
        tensor = Tensor(out, info_of(out), root=x.root, view=op, operand=x)
        known = text or x.info.rank == 0  # the map of a 0-d operand is empty
        if known and (x.view is None or x.to_root is not None):
            map_ = symbols.parse_list(text)
            tensor.to_root = map_ if x.view is None else substitute(x.to_root, map_, tensor.info.shape)
        self.tensors[out] = tensor
        self.views.append(tensor)

    def _order_effects(self, unit: Unit, op: ir.Operation) -> None:
        """Effects keep their order, and stay where they are among the readers of what they may write to."""
        for tensor in unit.inputs:
            writer = self._writer.get(id(tensor.root))
            if writer is not None:
                _order(writer, unit)
        if op.name in EFFECTS:
            if self._last_effect is not None:
                _order(self._last_effect, unit)
            self._last_effect = unit
        if may_write(op):
            for tensor in unit.inputs:
                for reader in tensor.root.readers:
                    if reader is not unit:
                        _order(reader, unit)
                self._writer[id(tensor.root)] = unit

    def kernels(self) -> list[Unit]:
        return [unit for unit in self.order if unit is not None and unit.body is not None]

    # ---- questions

    def between(self, first: Unit, second: Unit) -> set[Unit] | None:
        """The units up to `second` that depend on `first`; None if `second` depends on one of them: NO CYCLE.

        `first` stands before `second`, which may read it directly.
        """
        seen: set[Unit] = set()
        stack = [u for u in first.users if u.position < second.position]
        before_second = self.sources(second)
        while stack:
            unit = stack.pop()
            if unit in seen:
                continue
            if unit in before_second:
                return None
            seen.add(unit)
            stack += [u for u in unit.users if u.position < second.position and u not in seen]
        return seen

    def sources(self, unit: Unit) -> set[Unit]:
        """The units that `unit` depends on directly."""
        found = {t.root.unit for t in unit.inputs if t.root.unit is not None}
        return found | unit.before

    # ---- rewriting

    def merge(self, first: Unit, second: Unit, body: Body, dependents: set[Unit]) -> Unit:
        """One kernel in place of two. `dependents` is what `between` gave: they come after it."""
        outputs = [r.tensor for r in body.results]
        merged = Unit(
            first.ops + second.ops,
            body.tensors,
            outputs,
            second.position,
            body,
            (first.before | second.before) - {first, second},
            (first.after | second.after) - {first, second},
            first.locations + second.locations,
            changed=True,
            members=tuple(dict.fromkeys(first.members + second.members)),
        )
        start, end = first.position, second.position + 1
        region = [u for u in self.order[start:end] if u is not None and u is not first and u is not second]
        ahead = [u for u in region if u not in dependents]
        behind = [u for u in region if u in dependents]
        placed = [*ahead, merged, *behind]
        self.order[start:end] = [None] * (end - start - len(placed)) + placed
        for position, unit in enumerate(placed, end - len(placed)):
            unit.position = position
        self._replace((first, second), merged)
        return merged

    def rewrite(self, unit: Unit, body: Body, producer: Unit) -> Unit:
        """`unit` with another body, which computes `producer` by itself and may read what is defined earlier."""
        changed = Unit(
            unit.ops,
            body.tensors,
            [r.tensor for r in body.results],
            unit.position,
            body,
            unit.before,
            unit.after,
            unit.locations + producer.locations,
            changed=True,
            members=tuple(dict.fromkeys((*unit.members, *copies(producer.members)))),
        )
        self.order[unit.position] = changed
        self._replace((unit,), changed)
        return changed

    def drop(self, unit: Unit) -> None:
        """Remove a kernel whose results nobody reads."""
        self.order[unit.position] = None
        for tensor in unit.inputs:
            tensor.root.readers.discard(unit)
        self._dropped(unit)

    def _dropped(self, unit: Unit) -> None:
        for other in unit.before:
            other.after.discard(unit)
        for other in unit.after:
            other.before.discard(unit)

    def _replace(self, units: tuple[Unit, ...], merged: Unit) -> None:
        for unit in units:
            for tensor in unit.inputs:
                tensor.root.readers.discard(unit)
            self._dropped(unit)
        for tensor in merged.inputs:
            tensor.root.readers.add(merged)
        for tensor in merged.outputs:
            tensor.unit = merged
        for other in merged.before:
            other.after.add(merged)
        for other in merged.after:
            other.before.add(merged)

    # ---- back to MLIR

    def write_back(self) -> None:
        """Make the changed kernels, and put every op after those that it depends on."""
        units = [u for u in self.order if u is not None]
        kept = {id(op) for u in units if not u.changed for op in u.ops}
        if all(not u.changed for u in units) and len(kept) + len(self.views) == len(self.old_ops):
            return
        end = ir.InsertionPoint(list(self.block.operations)[-1])
        new_ops: dict[int, ir.Operation] = {}
        with end:
            for unit in units:
                if unit.changed:
                    new_ops[id(unit)] = self._write(unit)
        gone = {id(op) for op in self.old_ops if op.name != "mlirc.view"} - kept
        for op in reversed(self.old_ops):
            unused_view = op.name == "mlirc.view" and not any(True for _ in op.result.uses)
            if id(op) in gone or unused_view:
                op.erase()
                gone.add(id(op))
        self._arrange(units, new_ops)

    def _write(self, unit: Unit) -> ir.Operation:
        op = write_body(unit.body, unit.location)
        for result, new in zip(unit.body.results, op.results, strict=True):
            result.tensor.value.replace_all_uses_with(new)
            result.tensor.value = new
        return op

    def _arrange(self, units: list[Unit], new_ops: dict[int, ir.Operation]) -> None:
        """Views move to just before their first reader, everything else into the order of the units."""
        last = list(self.block.operations)[-1]
        placed: set[int] = set()
        for unit in units:
            for tensor in unit.inputs:
                waiting = []
                while tensor.view is not None and id(tensor) not in placed:
                    waiting.append(tensor.view)
                    placed.add(id(tensor))
                    tensor = tensor.operand
                for view in reversed(waiting):
                    view.move_before(last)
            op = new_ops.get(id(unit)) or unit.ops[0]
            if op != last:
                op.move_before(last)


def copies(members: tuple[str, ...]) -> tuple[str, ...]:
    """ "add@model.py:5*": a kernel computes it, and is not all there is of it."""
    return tuple(name if name.endswith("*") else f"{name}*" for name in members)


def _order(first: Unit, second: Unit) -> None:
    first.after.add(second)
    second.before.add(first)

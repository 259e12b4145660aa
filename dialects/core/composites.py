"""Creates composite ops, and expands one into smaller ops in place."""

from collections.abc import Hashable, Sequence
from typing import Any

from mlirc.dialects.core.bindings import func, ir
from mlirc.dialects.core.dialect import create
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, type_of
from mlirc.dialects.lazy_dataclass import dataclass


def composite(
    name: str, operands: Sequence[ir.Value], results: Sequence[TensorInfo], **attributes: Any
) -> list[ir.Value]:
    """A new `mlirc.NAME` with these results, at the current insertion point."""
    return list(create(name, list(operands), [type_of(info) for info in results], attributes).results)


def expand(op: Any, operands: Sequence[ir.Value] | None = None) -> list[ir.Value]:
    """What a composite means, built at the current insertion point: values that replace its results, types included.

    `expand` of an op's class may return values of another dtype (float32 for a half result) and of another layout.
    """
    device = info_of(op.results[0]).device
    made = type(op).expand(GraphBuilder(device=device), *(operands or op.operands), **type(op).attributes_of(op))
    values = [made] if isinstance(made, ir.Value) else made
    return [with_type(value, info_of(result)) for value, result in zip(values, op.results, strict=True)]


def with_type(value: ir.Value, info: TensorInfo) -> ir.Value:
    """`value` with the dtype, strides and device of `info`."""
    g = GraphBuilder(info)
    value = g.cast(value, info.dtype)
    have = info_of(value)
    if have == info:
        return value
    assert have.shape == info.shape, f"an expansion made a tensor of shape {have.shape} instead of {info.shape}"
    return g.copy(value, info)


@dataclass(frozen=True)
class Expansion:
    """What equal composites become. Values are numbered: the composite's operands, then the results of the ops in order.

    module    holds the ops
    ops       each with the numbers of its operands
    results   the numbers of what replaces the composite's results
    """

    module: ir.Module
    ops: list[tuple[ir.Operation, list[int]]]
    results: list[int]

    def copied(self, operands: Sequence[ir.Value]) -> list[ir.Value]:
        """A copy on these operands, at the current insertion point and location."""
        values, location = list(operands), ir.Location.current
        for op, numbers in self.ops:
            made = op.clone().operation
            made.location = location
            given = made.operands
            for k, number in enumerate(numbers):
                given[k] = values[number]
            values += made.results
        return [values[number] for number in self.results]


class Expansions:
    """Expands composites of a function. Layers have equal ones: from the third on, one that is equal but for its operands is a copy.

    What an op of mlirc's own becomes follows from its attributes, from types, and from which of its operands are the same.
    """

    def __init__(self) -> None:
        self.known: dict[Hashable, Expansion | None] = {}

    def expand(self, op: Any) -> list[ir.Value]:
        """The values that replace the results of composite `op`, built from smaller ops or copied from an equal op's expansion."""
        if not type(op).__module__.startswith("mlirc."):
            return expand(op)
        operands = list(op.operands)
        first = {x: k for k, x in reversed(list(enumerate(operands)))}
        same = tuple([first[x] for x in operands])
        types = tuple([x.type for x in (*operands, *op.results)])
        key = op.operation.name, tuple(op.attributes.items()), same, types
        if key not in self.known:
            self.known[key] = None
            return expand(op)
        made = self.known[key]
        if made is None:
            made = self.known[key] = built_apart(op, same)
        return made.copied(operands)


def built_apart(op: Any, same: Sequence[int]) -> Expansion:
    """The expansion of a composite in a module of its own. Of equal operands `same` has the first one's number."""
    module = ir.Module.create()
    with ir.InsertionPoint(module.body):
        function = func.FuncOp("expansion", ([x.type for x in op.operands], []))
    block = function.add_entry_block()
    arguments = list(block.arguments)
    with ir.InsertionPoint(block):
        results = expand(op, [arguments[k] for k in same])
    numbers = {x: k for k, x in enumerate(arguments)}
    ops = []
    for made in block.operations:
        ops.append((made.operation, [numbers[x] for x in made.operands]))
        for result in made.results:
            numbers[result] = len(numbers)
    return Expansion(module, ops, [numbers[x] for x in results])

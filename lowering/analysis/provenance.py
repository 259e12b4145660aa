"""Provenance of values: the value that a view was made of, and the model's parameters that a value depends on."""

import re
from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import OPS, Composite, attribute_value
from mlirc.dialects.core.tensor_types import info_of

SYMBOL = re.compile(r"\b(uns|unu|us|su|s|u)(\d+|x[0-9a-f]{12})\b")
"""A symbol as the importer names it (frontend/importer/sizes.py)."""


def view_root(x: ir.Value) -> ir.Value:
    """The value that `x` is a view of; itself if it is no view."""
    while not isinstance(x.owner, ir.Block) and x.owner.operation.name == "mlirc.view":
        x = x.owner.operands[0]
    return x


def parameter_arguments(function: Any) -> set[ir.Value]:
    """The arguments marked {mlirc.parameter}."""
    if "arg_attrs" not in function.attributes:
        return set()
    attributes = function.attributes["arg_attrs"]
    return {x for x, named in zip(function.arguments, attributes, strict=True) if "mlirc.parameter" in named}


def unwritten_parameters(function: Any) -> set[ir.Value]:
    """The parameters that the graph does not write."""
    operations = function.regions[0].blocks[0].operations
    written = {view_root(op.operands[0]) for op in operations if op.operation.name == "mlirc.assign"}
    return parameter_arguments(function) - written


def sources_of(function: Any, composed: bool = False) -> dict[ir.Value, frozenset]:
    """Maps each value that depends on parameters alone to those parameters (none, for what constants are made into).

    A parameter that the graph writes to does not count. `composed`: an op of several results that `decompose` has yet to write out, such
    as a batch norm that standardises weights, is taken for the ops that it will be.
    """
    sources: dict[ir.Value, frozenset] = {x: frozenset([x]) for x in unwritten_parameters(function)}
    for op in function.regions[0].blocks[0].operations:
        if all(x in sources for x in op.operands) and (may_hoist(op) or (composed and is_composed(op))):
            sources |= dict.fromkeys(op.results, frozenset().union(*(sources[x] for x in op.operands)))
    return sources


def is_composed(op: Any) -> bool:
    """Whether it is written out as other ops, and gives tensors of sizes that are known."""
    cls = OPS.get(op.operation.name.removeprefix("mlirc."))
    if cls is None or not issubclass(cls, Composite) or not op.operands or names_symbol(op):
        return False
    infos = map(info_of, op.results)
    return all(isinstance(n, int) for info in infos for n in (*info.shape, *info.stride))


def names_symbol(op: Any) -> bool:
    """Whether an attribute has a symbol in it: the start of a view, an amount, an argument of ATen's."""
    values = (op.attributes[k].attr for k in range(len(op.attributes)))
    return any(isinstance(value, ir.StringAttr) and SYMBOL.search(value.value) for value in values)


def may_hoist(op: Any) -> bool:
    """Whether it gives the same value whenever its operands are the same, one of a size that is known."""
    name = op.operation.name
    if len(op.results) != 1 or not isinstance(op.results[0].type, ir.RankedTensorType):
        return False
    info = info_of(op.results[0])
    if any(not isinstance(n, int) for n in (*info.shape, *info.stride)) or names_symbol(op):
        return False
    if name == "mlircx.aten":  # an operator of PyTorch's own library, whose arguments all have a text
        ours = attribute_value(op.attributes["op"]).startswith(("aten.", "mkldnn."))
        return ours and attribute_value(op.attributes["aliases"]) == "-1" and "object" not in str(op.attributes["args"])
    return name == "mlirc.constant" or (name.startswith("mlirc.") and len(op.operands) > 0)

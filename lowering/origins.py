"""Where a value comes from: what it is a view of, and which arguments are the model's parameters."""

from typing import Any

from mlirc.dialects.bindings import ir


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

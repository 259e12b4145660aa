"""Attributes of a graph's function: roles of arguments and alias groups of results, beside their types (docs/forms.md)."""

from collections.abc import Sequence
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import info_of

GUARDS = "mlirc.guards"


def bind_symbols(function: Any, inputs: Sequence[Any]) -> dict[str, int]:
    """The value of every symbol at these inputs: that of the argument for it, else of the first tensor's size that is the symbol, else
    solved from a size or argument that is linear in it."""
    arguments = function.regions[0].blocks[0].arguments
    known: list[tuple[Int, int]] = []
    for position, named in enumerate(argument_attributes(function)):
        if "mlirc.symbol" in named:
            known.append((symbols.parse(attribute_value(named["mlirc.symbol"])), int(inputs[position])))
    for argument, value in zip(arguments, inputs, strict=True):
        if isinstance(value, torch.Tensor):
            known += zip(info_of(argument).shape, value.shape, strict=False)  # the caller refuses another rank
    bound: dict[str, int] = {}
    for bare in (True, False):
        for expr, value in known:
            if str(expr).isidentifier() == bare:
                solve(bound, expr, value)
    return bound


def argument_attributes(function: Any) -> list[Any]:
    """The attributes of each argument; [] where no argument has any."""
    return list(function.attributes["arg_attrs"]) if "arg_attrs" in function.attributes else []


def guards_of(function: Any) -> tuple[Int, ...]:
    """What PyTorch's guards make 0 or more at each run. Raises ValueError where it is no list of size expressions."""
    return symbols.parse_list(attribute_value(function.attributes[GUARDS])) if GUARDS in function.attributes else ()


def solve(bound: dict[str, int], expr: Int, value: int) -> None:
    """Binds the symbol s where `expr` is a*s + b."""
    if isinstance(expr, int):
        return
    names = [name for (name, *more) in expr.terms.keys() - {()} if isinstance(name, str) and not more]
    if len(names) == 1 and expr.terms.keys() <= {(names[0],), ()}:
        bound.setdefault(names[0], (value - expr.terms.get((), 0)) // expr.terms[(names[0],)])


def result_groups(function: Any, count: int) -> list[str]:
    """The alias group of each result; without the attribute, each result is a group."""
    if "mlirc.results" in function.attributes:
        return attribute_value(function.attributes["mlirc.results"])
    return [f"g{k}" for k in range(count)]

"""Functions that operators take: the graphs of `cond`, `while_loop`, `scan` and `map`, and the constants in them."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import GraphModule, Node

WITH_REGIONS = ("cond", "while_loop", "scan", "map_impl")
"""Operators that take functions and become ops with regions."""


def has_regions(target: Any) -> bool:
    return isinstance(target, torch._ops.HigherOrderOperator) and target.name() in WITH_REGIONS


def attribute(gm: GraphModule, node: Node) -> Any:
    """The object that a get_attr node names."""
    value: Any = gm
    for name in str(node.target).split("."):
        value = getattr(value, name)
    return value


def all_nodes(gm: GraphModule) -> Iterator[Node]:
    """The nodes of a graph, and of the functions that operators take which become ops with regions."""
    for node in gm.graph.nodes:
        yield node
        body = attribute(gm, node) if node.op == "get_attr" and all(has_regions(u.target) for u in node.users) else None
        if isinstance(body, GraphModule):
            yield from all_nodes(body)


def nested_constants(gm: GraphModule) -> list[torch.Tensor]:
    """The tensors that get_attr nodes name in the functions that operators take which become ops with regions, in order."""
    found: list[torch.Tensor] = []
    for node in gm.graph.find_nodes(op="get_attr"):
        body = attribute(gm, node)
        if isinstance(body, GraphModule) and all(has_regions(user.target) for user in node.users):
            found += constants_of(body)
    return found


def constants_of(gm: GraphModule) -> list[torch.Tensor]:
    """The tensors that get_attr nodes of a graph name, one for each node, and then those of its functions."""
    values = [attribute(gm, node) for node in gm.graph.find_nodes(op="get_attr")]
    return [value for value in values if isinstance(value, torch.Tensor)] + nested_constants(gm)

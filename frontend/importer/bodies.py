"""Functions that operators take: the graphs of `cond`, `while_loop`, `scan`, `map` and of regions that are compiled once, and the
constants in them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import GraphModule, Node

from mlirc.frontend.errors import UnsupportedGraph

SHARED = "invoke_subgraph"  # nested_compile_region
WITH_REGIONS = ("cond", "while_loop", "scan", "map_impl", SHARED)
"""Operators that take functions and become ops with regions, or that invoke functions of the module."""
FLEX_ATTENTION = ("flex_attention", "flex_attention_backward")
"""Operators that take functions and become plain operators before a graph is imported (capture/flex_attention.py)."""
DENSE = "mlirc.dense_attention"
"""The entry of a graph's `meta` with those that no kernel is generated for."""


def has_regions(target: Any) -> bool:
    return isinstance(target, torch._ops.HigherOrderOperator) and target.name() in WITH_REGIONS


def is_flex_attention(target: Any) -> bool:
    return isinstance(target, torch._ops.HigherOrderOperator) and target.name() in FLEX_ATTENTION


def is_shared_region(target: Any) -> bool:
    return isinstance(target, torch._ops.HigherOrderOperator) and target.name() == SHARED


@contextmanager
def whole_or_nothing(importer: Any) -> Iterator[None]:
    """Raises NotOurs where the import of a body fails, and takes back what it has added to the importer's counts and objects."""
    from mlirc.dialects.core.graph_builder import NotOurs  # a graph of the disk cache loads no MLIR

    aten, objects = dict(importer.aten_counts), len(importer.imported.objects)
    try:
        yield
    except (NotOurs, UnsupportedGraph) as error:
        importer.aten_counts.clear()
        importer.aten_counts.update(aten)
        del importer.imported.objects[objects:]
        raise NotOurs(str(error)) from error


def attribute(gm: GraphModule, node: Node) -> Any:
    """The object that a get_attr node names."""
    value: Any = gm
    for name in str(node.target).split("."):
        value = getattr(value, name)
    return value


def bodies(gm: GraphModule) -> list[GraphModule]:
    """The graphs of the functions that operators of a graph take which become ops with regions, each once."""
    found: dict[int, GraphModule] = {}
    for node in gm.graph.find_nodes(op="get_attr"):
        body = attribute(gm, node)
        if isinstance(body, GraphModule) and all(has_regions(user.target) for user in node.users):
            found[id(body)] = body
    return list(found.values())


def all_nodes(gm: GraphModule) -> Iterator[Node]:
    """The nodes of a graph, and of the functions that operators take which become ops with regions."""
    yield from gm.graph.nodes
    for body in bodies(gm):
        yield from all_nodes(body)


def nested_constants(gm: GraphModule) -> list[torch.Tensor]:
    """The tensors that get_attr nodes name in the functions that operators take which become ops with regions, in order."""
    return [x for body in bodies(gm) for x in constants_of(body)]


def constants_of(gm: GraphModule) -> list[torch.Tensor]:
    """The tensors that get_attr nodes of a graph name, one for each node, and then those of its functions."""
    values = [attribute(gm, node) for node in gm.graph.find_nodes(op="get_attr")]
    return [value for value in values if isinstance(value, torch.Tensor)] + nested_constants(gm)

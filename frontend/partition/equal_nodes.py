"""Merges equal nodes of a joint graph before partitioning, so that no value is saved twice.

The partitioner would do so itself, but loads all of Inductor for that, which takes it half a second.
"""

import math
import operator
from collections.abc import Hashable
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Graph, Node

from mlirc.frontend.torch_compat.fake_tensors import storage_id

NAMESPACES = ("aten", "prims")
NOT_ALWAYS_EQUAL = {
    torch.Tag.nondeterministic_seeded,
    torch.Tag.data_dependent_output,
    torch.Tag.dynamic_output_shape,
}
NEW_MEMORY = {torch.ops.aten.empty, torch.ops.aten.empty_like, torch.ops.aten.empty_strided, torch.ops.aten.new_empty}
PURE_MODULES = {operator.__name__, "_operator", math.__name__}  # getitem, and arithmetic of sizes


def merge_equal_nodes(graph: Graph) -> None:
    """Replaces each node by an earlier node that computes the same.

    before:  %1 = exp(%x)  %2 = exp(%x)  %3 = mul(%2, %y)      after:  %1 = exp(%x)  %3 = mul(%1, %y)

    What the graph returns, or shares memory with that, stays as it is: in eager these are two tensors. No value is taken to
    be the same on both sides of an operator that writes to memory.
    """
    outliving = {storage_of(node) for node in graph.output_node().all_input_nodes} - {None}
    found: dict[Hashable, Node] = {}
    for node in list(graph.nodes):
        if node.op != "call_function" or storage_of(node) in outliving:
            continue
        if may_write(node):
            found.clear()
        elif is_repeatable(node) and (key := key_of(node)) is not None:
            earlier = found.setdefault(key, node)
            if earlier is not node:
                node.replace_all_uses_with(earlier)
                graph.erase_node(node)


def storage_of(node: Node) -> int | None:
    """What identifies its memory; None for no tensor, or one without."""
    value = node.meta.get("val")
    try:
        return storage_id(value) if isinstance(value, torch.Tensor) else None
    except NotImplementedError:
        return None


def may_write(node: Node) -> bool:
    if isinstance(node.target, OpOverload):
        return node.target._schema.is_mutable
    return not is_pure_function(node.target)


def is_pure_function(target: Any) -> bool:
    return (
        getattr(target, "__module__", None) in PURE_MODULES
        or getattr(torch, getattr(target, "__name__", ""), 0) is target
    )


def is_repeatable(node: Node) -> bool:
    """Whether equal operands give equal results."""
    target = node.target
    if not isinstance(target, OpOverload):
        return True
    known = target.namespace in NAMESPACES and target.overloadpacket not in NEW_MEMORY
    return known and NOT_ALWAYS_EQUAL.isdisjoint(target.tags)


def key_of(node: Node) -> Hashable | None:
    """Equal for nodes that compute the same; None where that cannot be told."""
    try:
        key = (node.target, described(node.args), described(node.kwargs))
        hash(key)
    except TypeError:
        return None
    return key


def described(x: Any) -> Hashable:
    """An argument as what is equal for equal arguments alone: 1, 1.0 and True differ, so do 0.0 and -0.0."""
    if isinstance(x, (list, tuple)):
        return (type(x), *map(described, x))
    if isinstance(x, dict):
        return tuple((name, described(value)) for name, value in sorted(x.items()))
    if isinstance(x, slice):
        return (slice, described(x.start), described(x.stop), described(x.step))
    if isinstance(x, (float, complex)):
        return (type(x), repr(x))
    return (type(x), x)

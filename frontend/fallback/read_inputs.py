"""Says which inputs of a graph of Dynamo's each of its results may be computed from.

    y = x * 2;  y[0] = w;  z = v.sin();  return y, z            y: x and w, z: v

The gradient of an input is None in eager, and not zeros, where no result that has a gradient is computed from it. What is not known counts as read.
"""

import functools
from collections.abc import Iterator
from operator import or_
from typing import Any

import torch
from torch.fx import GraphModule, Node

from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.frontend.torch_compat.dynamo.trees import tree_leaves
from mlirc.frontend.torch_compat.fake_tensors import storage_id

UNKNOWN = -1
"""Stands for the memory of all tensors without a storage, sparse ones: a write to one is one to all."""


@dataclass(frozen=True)
class ReadInputs:
    """Sets of inputs, each as bits of a number: of each result, and of each input once the graph has written to it."""

    of_results: list[int]
    of_inputs: list[int]


def inputs_of_results(gm: GraphModule) -> ReadInputs:
    """In-place work changes what all tensors on the same memory are computed from, from then on."""
    of_node: dict[Node, int] = {}
    of_memory: dict[int, int] = {}
    memory: dict[Node, list[int]] = {}

    def read(node: Any) -> int:
        found = of_node.get(node, 0)
        for key in memory.get(node, ()):
            found |= of_memory.get(key, 0)
        return found

    placeholders = gm.graph.find_nodes(op="placeholder")
    for k, node in enumerate(placeholders):
        of_node[node] = 1 << k
    for node in gm.graph.nodes:
        if node.op == "output":
            break
        memory[node] = list(memory_of(node))
        changed = [node]
        if node.op != "placeholder":
            given = node.all_input_nodes
            of_node[node] = functools.reduce(or_, map(read, given), 0)
            if may_write_elsewhere(node, memory[node]):
                changed += given
        for x in changed:
            for key in memory[x]:
                of_memory[key] = of_memory.get(key, 0) | of_node[node]
    results = tree_leaves(gm.graph.output_node().args[0])
    return ReadInputs([read(x) if isinstance(x, Node) else 0 for x in results], list(map(read, placeholders)))


def memory_of(node: Node) -> Iterator[int]:
    value = node.meta.get("example_value")
    for x in (value,) if isinstance(value, torch.Tensor) else tree_leaves(value):
        if isinstance(x, torch.Tensor):
            try:
                yield storage_id(x)
            except (NotImplementedError, RuntimeError):
                yield UNKNOWN


def may_write_elsewhere(node: Node, memory: list[int]) -> bool:
    """Whether a node may write to memory that its own value, which has `memory`, does not show."""
    if not memory:
        return True
    target = node.target
    return isinstance(target, (torch._ops.HigherOrderOperator, torch._ops.OpOverload, torch._ops.OpOverloadPacket))

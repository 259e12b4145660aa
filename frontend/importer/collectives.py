"""Imports functional collectives, which run while the program goes on, until their `wait_tensor`.

    %1 = "mlircx.aten_effect"(%x) {op = "_c10d_functional.all_gather_into_tensor.default"}
    %2 = "mlircx.aten"(%1, %x) {op = "_c10d_functional.wait_tensor.default", aliases = "0"}

A wait has the collective's operands beside its result: their memory is not used for anything else before. A collective without a wait in the graph
reads a copy, which PyTorch keeps. They stay in the order of the graph, which is the same in all processes.
"""

from typing import Any

import torch
from torch.fx import Node

from mlirc.dialects.core.bindings import ir
from mlirc.frontend.importer import aten_import
from mlirc.frontend.torch_compat.dynamo.trees import tree_leaves

NAMESPACE = "_c10d_functional"
WAIT = "_c10d_functional.wait_tensor.default"
REASON = "a collective"


def is_collective(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and target.namespace == NAMESPACE


def import_collective(importer: Any, node: Node, args: tuple, kwargs: dict) -> Any:
    """The results of a collective, or of a wait."""
    target: Any = node.target
    importer.count(target, REASON)
    promised, objects = node.meta.get("val"), importer.imported.objects
    if str(node.target) == WAIT:
        issued = issued_by(node.args[0])
        read = (
            [x for x in tree_leaves(importer.argument_value(issued.args)) if isinstance(x, ir.Value)] if issued else []
        )
        return aten_import.call_aten(target, args, kwargs, promised, objects, kept=read)
    if not is_waited_for(node):
        args = tuple(copied(x, given, objects) for x, given in zip(args, node.args, strict=True))
    return aten_import.call_aten(target, args, kwargs, promised, objects, effect=True)


def issued_by(result: Any) -> Node | None:
    """The collective that a result is of."""
    while isinstance(result, Node) and not is_collective(result.target):
        result = result.args[0] if result.op == "call_function" and result.args else None
    return result if isinstance(result, Node) and str(result.target) != WAIT else None


def is_waited_for(node: Node) -> bool:
    """Whether all results of a collective are waited for in the graph."""
    results = [node] if isinstance(node.meta.get("val"), torch.Tensor) else list(node.users)
    return bool(results) and all(any(str(user.target) == WAIT for user in result.users) for result in results)


def copied(x: Any, given: Any, objects: list[Any]) -> Any:
    if isinstance(x, ir.Value) and isinstance(given, Node):
        return aten_import.call_aten(torch.ops.aten.clone.default, (x,), {}, given.meta["val"], objects)
    if isinstance(x, (list, tuple)) and isinstance(given, (list, tuple)):
        return [copied(y, g, objects) for y, g in zip(x, given, strict=True)]
    return x

"""Writes an FX graph as text with everything that the importer can see, so that graphs of equal text become equal modules.

    %3 = aten.view.default(%1, [2, "3*s0"]) -> float32 [2, 3*s0] [3*s0, 1] @0 cpu in 1 | File "model.py", line 12, in f

A tensor is its dtype, sizes, strides, storage offset, device, and which storage it is in, numbered as they turn up. Names
of nodes and values of constants are not part of it; the user's source lines are.
"""

import operator
import os
import sys
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch.fx import GraphModule, Node

from mlirc.frontend.errors import NoText, UnsupportedGraph
from mlirc.frontend.graph.source_line import last_line
from mlirc.frontend.importer.sizes import size, storage_offset, tensor_info
from mlirc.frontend.torch_compat.fake_tensors import storage_id

_TORCH = os.path.join(os.path.dirname(torch.__file__), "")
_OF_TORCH = ("aten", "prims")  # operators that come with torch, whose version says what they are
_BY_TEXT = (torch.dtype, torch.device, torch.layout, torch.memory_format)
_BY_REPR = (type(None), bool, int, float, complex, str, type(...))


def graph_text(gm: GraphModule, parameters: Sequence[int]) -> str:
    """The text; `parameters` are the placeholders that are marked as such. Raises NoText."""
    return GraphTextWriter(gm).run(parameters)


def part_text(gm: GraphModule, nodes: Sequence[Node]) -> str:
    """What nodes of a graph of Dynamo's compute, in order, without source lines; all that they use is among them, or a
    placeholder. Raises NoText also for what torch does not come with: it may mean another thing tomorrow."""
    writer = GraphTextWriter(gm, "example_value")
    lines = []
    for node in nodes:
        writer.numbers[node] = len(writer.numbers)
        if node.op == "call_function" and not comes_with_torch(node.target):
            raise NoText(f"a call of {node.target}")
        called = {"call_function": target_text, "call_method": str}.get(node.op)
        lines.append(writer.call(node, f"{node.op} {called(node.target) if called else ''}"))
    return "\n".join(lines)


def comes_with_torch(function: Any) -> bool:
    """Whether torch's version, and its name, say what it does; a function may have taken the name of another."""
    if isinstance(function, torch._ops.OpOverload):
        return function.namespace in _OF_TORCH
    if isinstance(function, torch._ops.OpOverloadPacket):
        return function._qualified_op_name.partition("::")[0] in _OF_TORCH
    module = getattr(function, "__module__", None) or ""
    if isinstance(function, FunctionType):
        if not function.__code__.co_filename.startswith((_TORCH, operator.__file__)):
            return False
        is_closure = "<" in function.__qualname__
        return not is_closure or getattr(sys.modules.get(module), function.__name__, None) is function
    known = module in ("_operator", "math", "builtins") or module.partition(".")[0] == "torch"
    return known and isinstance(function, BuiltinFunctionType)


class GraphTextWriter:
    """`meta` is where a node has the fake tensor that it stands for."""

    def __init__(self, gm: GraphModule, meta: str = "val"):
        self.gm, self.meta = gm, meta
        self.numbers: dict[Node, int] = {}
        self.storages: dict[int, int] = {}

    def run(self, parameters: Sequence[int]) -> str:
        lines = [f"parameters {sorted(parameters)}"]
        for node in self.gm.graph.nodes:
            self.numbers[node] = len(self.numbers)
            lines.append(self.node(node))
        return "\n".join(lines)

    def node(self, node: Node) -> str:
        if node.op == "get_attr":
            what = "constant " + self.meaning(attribute(self.gm, node))
        elif node.op in ("placeholder", "output", "call_function"):
            what = self.call(node, target_text(node.target) if node.op == "call_function" else node.op)
        else:
            raise NoText(f"a node of kind {node.op}")
        return f"%{self.numbers[node]} = {what} | {last_line(node)}"

    def call(self, node: Node, what: str) -> str:
        what += self.value(node.args if node.op != "placeholder" else ()) + self.value(node.kwargs)
        return f"{what} -> {self.meaning(node.meta.get(self.meta)) if node.op != 'output' else ''}"

    def value(self, x: Any) -> str:
        """An argument of a node."""
        if isinstance(x, Node):
            return f"%{self.numbers[x]}"
        if type(x) in _BY_REPR:
            return repr(x)
        if isinstance(x, (list, tuple)):
            left, right = "()" if isinstance(x, tuple) else "[]"
            return left + ", ".join(map(self.value, x)) + right
        if isinstance(x, dict):
            return "{" + ", ".join(f"{self.value(key)}: {self.value(y)}" for key, y in x.items()) + "}"
        if isinstance(x, slice):
            return "slice" + self.value((x.start, x.stop, x.step))
        if isinstance(x, _BY_TEXT):
            return str(x)
        if isinstance(x, (torch._ops.OpOverload, torch._ops.HigherOrderOperator)):
            return target_text(x)
        if isinstance(x, torch.SymInt):
            return f'"{sized(size, x)}"'
        raise NoText(f"an argument of type {type(x).__name__}")

    def meaning(self, x: Any) -> str:
        """What a node stands for: its fake tensor, or whatever else it has in that place."""
        if isinstance(x, torch.Tensor):
            info = sized(tensor_info, x)
            number = self.storages.setdefault(storage_id(x), len(self.storages))
            numbers = " ".join(f"[{', '.join(map(str, values))}]" for values in (info.shape, info.stride))
            return f"{info.dtype} {numbers} @{sized(storage_offset, x)} {info.device} in {number}"
        if isinstance(x, (list, tuple)):
            return "(" + ", ".join(map(self.meaning, x)) + ")"
        if isinstance(x, torch.SymInt):
            return f"int {sized(size, x)}"
        if isinstance(x, torch.SymFloat):
            return "float"
        if type(x) in _BY_REPR:
            return repr(x)
        raise NoText(f"a value of type {type(x).__name__}")


def attribute(gm: GraphModule, node: Node) -> Any:
    """What a get_attr node stands for."""
    value: Any = gm
    for name in str(node.target).split("."):
        value = getattr(value, name)
    return value


def constants(gm: GraphModule) -> list[torch.Tensor]:
    """Tensors of the graph module, one for each node that gets one, in order."""
    values = [attribute(gm, node) for node in gm.graph.find_nodes(op="get_attr")]
    return [value for value in values if isinstance(value, torch.Tensor)]


def target_text(target: Any) -> str:
    """A function by its name; an operator that torch does not come with by its schema too, which may change."""
    if isinstance(target, torch._ops.OpOverload):
        own = target.namespace not in _OF_TORCH
        return f"{target} <{target._schema} {sorted(map(str, target.tags))}>" if own else str(target)
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order.{target.name()}"
    if isinstance(target, torch._ops.OpOverloadPacket):
        return f"packet {target}"
    name = getattr(target, "__qualname__", type(target).__name__)
    return f"{target.__module__}.{target.__name__ if '<' in name else name}"


def sized(convert: Callable, x: Any) -> Any:
    try:
        return convert(x)
    except UnsupportedGraph as error:
        raise NoText(str(error)) from error

"""Writes an FX graph as text with everything that the importer can see, so that graphs of equal text become equal modules.

    %3 = aten.view.default(%1, [2, "3*s0"]) -> float32 [2, 3*s0] [3*s0, 1] @0 cpu in 1 | File "model.py", line 12, in f

A tensor is written as its dtype, sizes, strides, storage offset, device, and the number of its storage, in order of appearance. The text has
the user's source lines. It has no names of nodes and no values of constants.
"""

import operator
import os
import sys
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch.fx import GraphModule, Node

from mlirc.dialects.interpreter.triton_kernels import code_text, known
from mlirc.frontend.errors import NoText, UnsupportedGraph
from mlirc.frontend.graph.source_line import last_line
from mlirc.frontend.importer.bodies import attribute, has_regions
from mlirc.frontend.importer.sizes import size, storage_offset, tensor_info
from mlirc.frontend.importer.triton_call import is_triton_kernel, kernel_text
from mlirc.frontend.torch_compat.fake_tensors import storage_id

_TORCH = os.path.join(os.path.dirname(torch.__file__), "")
_OF_TORCH = ("aten", "prims")  # operators that come with torch, whose version says what they are
_BY_TEXT = (torch.dtype, torch.device, torch.layout, torch.memory_format)
_BY_REPR = (type(None), bool, int, float, complex, str, type(...))


def graph_text(gm: GraphModule, parameters: Sequence[int]) -> str:
    """The text of a graph; `parameters` are the positions of placeholders that hold parameters. Raises NoText."""
    return GraphTextWriter(gm).run(parameters)


def part_text(gm: GraphModule, nodes: Sequence[Node]) -> str:
    """The text of some nodes of Dynamo's graph, in order, without source lines. Their operands are among them, or placeholders. Raises NoText
    also for a function that is not torch's, because its meaning may change."""
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
    """Whether torch's version and the function's name determine what it does. Another function may have taken the name."""
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
    """Writes nodes as text. `meta` is the key of a node's fake tensor in node.meta."""

    def __init__(self, gm: GraphModule, meta: str = "val"):
        self.gm, self.meta = gm, meta
        self.numbers: dict[Node, int] = {}
        self.storages: dict[int, int] = {}
        self.bodies: dict[int, int] = {}  # functions that were written, by id

    def run(self, parameters: Sequence[int]) -> str:
        lines = [f"parameters {sorted(parameters)}"]
        for node in self.gm.graph.nodes:
            self.numbers[node] = len(self.numbers)
            lines.append(self.node(node))
        return "\n".join(lines)

    def node(self, node: Node) -> str:
        if node.op == "get_attr":
            value = attribute(self.gm, node)
            body = isinstance(value, GraphModule) and all(has_regions(user.target) for user in node.users)
            what = self.body(value) if body else f"constant {self.meaning(value)}"
        elif node.op in ("placeholder", "output", "call_function"):
            what = self.call(node, target_text(node.target) if node.op == "call_function" else node.op)
        else:
            raise NoText(f"a node of kind {node.op}")
        return f"%{self.numbers[node]} = {what} | {last_line(node)}"

    def body(self, gm: GraphModule) -> str:
        """The text of a function that an operator takes which becomes an op with regions; of one that was there, its number."""
        if id(gm) in self.bodies:
            return f"function {self.bodies[id(gm)]}"
        self.bodies[id(gm)] = len(self.bodies)
        inner = GraphTextWriter(gm, self.meta)
        inner.storages, inner.bodies = self.storages, self.bodies
        lines = inner.run(()).splitlines()
        return "\n  ".join(["function", *lines])

    def call(self, node: Node, what: str) -> str:
        if "triton_kernel_wrapper_mutation" in str(node.target):
            raise NoText("a Triton kernel of which nobody says what it writes")
        kwargs: Any = named_kernel(node) if is_triton_kernel(node.target) else node.kwargs
        what += self.value(node.args if node.op != "placeholder" else ()) + self.value(kwargs)
        return f"{what} -> {self.meaning(node.meta.get(self.meta)) if node.op != 'output' else ''}"

    def value(self, x: Any) -> str:
        """The text of an argument of a node."""
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
        """The text of a node's value: of its fake tensor, or of what else stands there."""
        if isinstance(x, torch.Tensor):
            info = sized(tensor_info, x)
            if info.layout != "strided":
                return f"{info.dtype} [{', '.join(map(str, info.shape))}] {info.layout} {info.device}"
            number = self.storages.setdefault(storage_id(x), len(self.storages))
            numbers = " ".join(f"[{', '.join(map(str, values))}]" for values in (info.shape, info.stride))
            return f"{info.dtype} {numbers} @{sized(storage_offset, x)} {info.device} in {number}"
        if isinstance(x, (list, tuple)):
            return "(" + ", ".join(map(self.meaning, x)) + ")"
        if isinstance(x, dict):  # what a Triton kernel writes
            return "{" + ", ".join(f"{self.value(key)}: {self.meaning(y)}" for key, y in x.items()) + "}"
        if isinstance(x, torch.SymInt):
            return "ragged size" if x.node.is_nested_int() else f"int {sized(size, x)}"
        if isinstance(x, torch.SymFloat):
            return "float"
        if type(x) in _BY_REPR:
            return repr(x)
        raise NoText(f"a value of type {type(x).__name__}")


def named_kernel(node: Node) -> dict[str, Any]:
    """The arguments of a call of a Triton kernel, with its name, which has a digest of its code, and its constants. Raises NoText."""
    name, constants = kernel_text(dict(node.kwargs))
    if not code_text(known[name]):
        raise NoText("a Triton kernel with functions of Python that choose how it runs")
    return {**node.kwargs, "kernel_idx": name, "constant_args_idx": constants}


def target_text(target: Any) -> str:
    """A function by its name. An operator that is not torch's has its schema too, because that may change."""
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

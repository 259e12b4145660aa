"""Converts a functional ATen graph to JSON data and back, so that a backward graph need not be traced again.

    ["call_function", "add", "aten.add.Tensor", [["node", 0], 1], {}, ["tensor", "float32", [2, 3], [3, 1], 0, "cpu", 0], "File ..."]

Reading it looks up operators by name, and makes fake tensors; nothing is executed. The graph that comes out has the same text
(graph_text.py), names of nodes, and memory shared by the same tensors.
"""

import json
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from mlirc.frontend.errors import NoText
from mlirc.frontend.graph.source_line import last_line
from mlirc.frontend.importer.bodies import SHARED, attribute, is_shared_region
from mlirc.frontend.torch_compat.fake_tensors import FakeTensorMode, storage_id

PLAIN = (type(None), bool, int, str)
BY_NAME = (torch.dtype, torch.layout, torch.memory_format)


def to_bytes(gm: GraphModule, inputs: Sequence[Any]) -> bytes:
    """The graph, and what it is called with where that has other strides. Raises NoText."""
    writer = GraphDataWriter()
    nodes = writer.graph(gm)
    data = {
        "nodes": nodes,
        "functions": writer.functions,
        "inputs": [writer.meaning(x) for x in inputs],
        "storages": writer.sizes,
    }
    return json.dumps(data, allow_nan=False, separators=(",", ":")).encode()


def from_bytes(content: bytes, mode: FakeTensorMode) -> tuple[GraphModule, list[Any]]:
    """Raises what UNREADABLE of cache/entry.py lists, for bytes that `to_bytes` did not give."""
    data = json.loads(content)
    reader = Reader(mode, data["storages"], data["functions"])
    gm = reader.module(data["nodes"])
    return gm, [reader.meaning(x) for x in data["inputs"]]


class GraphDataWriter:
    def __init__(self):
        self.numbers: dict[Node, int] = {}
        self.storages: dict[int, int] = {}
        self.sizes: list[int] = []  # of storages, in bytes
        self.functions: list[list[Any]] = []  # the nodes of functions that operators take
        self.positions: dict[int, int] = {}  # of functions, by id

    def graph(self, gm: GraphModule) -> list[list[Any]]:
        return [self.node(gm, node) for node in gm.graph.nodes]

    def function(self, gm: Any) -> int:
        """The number of a function that a shared region is made of."""
        if not isinstance(gm, GraphModule):
            raise NoText("a tensor of its own")
        if id(gm) not in self.positions:
            numbers, self.numbers = self.numbers, {}
            nodes = self.graph(gm)
            self.numbers = numbers
            self.positions[id(gm)] = len(self.functions)
            self.functions.append(nodes)
        return self.positions[id(gm)]

    def node(self, gm: GraphModule, node: Node) -> list[Any]:
        self.numbers[node] = len(self.numbers)
        if node.op == "get_attr" and all(is_shared_region(user.target) for user in node.users):
            return [node.op, node.name, self.function(attribute(gm, node)), [], {}, None, last_line(node)]
        if node.op == "call_function":
            target = self.target(node.target)
        elif node.op in ("placeholder", "output"):
            target = str(node.target)
        else:
            raise NoText(f"a node of kind {node.op}")
        arguments = [self.value(x) for x in node.args], {key: self.value(x) for key, x in node.kwargs.items()}
        return [node.op, node.name, target, *arguments, self.meaning(node.meta.get("val")), last_line(node)]

    def target(self, target: Any) -> str:
        if target is operator.getitem:
            return "getitem"
        if is_shared_region(target):
            return SHARED
        if isinstance(target, torch._ops.OpOverload):
            return str(target)
        raise NoText(f"a call of {target}")

    def value(self, x: Any) -> Any:
        """An argument of a node."""
        if isinstance(x, Node):
            return ["node", self.numbers[x]]
        if type(x) in PLAIN:
            return x
        if type(x) is float:
            return ["float", x.hex()]
        if type(x) is complex:
            return ["complex", x.real.hex(), x.imag.hex()]
        if isinstance(x, (list, tuple)):
            return ["tuple" if isinstance(x, tuple) else "list", *map(self.value, x)]
        if isinstance(x, BY_NAME):
            return ["torch", str(x).removeprefix("torch.")]
        if isinstance(x, torch.device):
            return ["device", str(x)]
        raise NoText(f"an argument of type {type(x).__name__}")

    def meaning(self, x: Any) -> Any:
        """What a node stands for."""
        if isinstance(x, torch.Tensor):
            if x.layout is not torch.strided or not all(type(n) is int for n in (*x.shape, *x.stride())):
                raise NoText("a tensor without sizes and strides that are known")
            storage = storage_id(x)
            if storage not in self.storages:
                self.storages[storage] = len(self.sizes)
                self.sizes.append(int(x.untyped_storage().nbytes()))
            place = int(x.storage_offset()), str(x.device), self.storages[storage]
            return ["tensor", str(x.dtype).removeprefix("torch."), [*x.shape], [*x.stride()], *place]
        if isinstance(x, (list, tuple)):
            return ["tuple" if isinstance(x, tuple) else "list", *map(self.meaning, x)]
        return self.value(x)


class Reader:
    def __init__(self, mode: FakeTensorMode, sizes: list[int], functions: list[list[Any]]):
        self.graph, self.mode, self.sizes = Graph(), mode, sizes
        self.nodes: list[Node] = []
        self.held: dict[str, GraphModule] = {}  # functions, by the names that the graph has for them
        self.storages: dict[int, torch.UntypedStorage] = {}
        self.functions: list[GraphModule] = []  # each is made of earlier ones
        for nodes in functions:
            self.functions.append(self.module(nodes))

    def module(self, nodes: list[Any]) -> GraphModule:
        self.graph, self.nodes, self.held = Graph(), [], {}
        for node in nodes:
            self.node(*node)
        return GraphModule(self.held, self.graph)

    def node(self, op: str, name: str, target: Any, args: list, kwargs: dict, meaning: Any, line: str) -> None:
        if op == "get_attr":
            self.held[f"function_{target}"] = self.functions[target]
            self.nodes.append(self.graph.create_node(op, f"function_{target}", name=name))
            return
        if op not in ("placeholder", "output", "call_function"):
            raise ValueError(f"a node of kind {op}")
        given = tuple(map(self.value, args)), {key: self.value(x) for key, x in kwargs.items()}
        made = self.graph.create_node(op, operator_of(target) if op == "call_function" else target, *given, name)
        if op != "output":
            made.meta["val"] = self.meaning(meaning)
        if line:
            made.meta["stack_trace"] = line
        self.nodes.append(made)

    def value(self, x: Any) -> Any:
        if not isinstance(x, list):
            return x
        kind, *rest = x
        if kind == "node":
            return self.nodes[rest[0]]
        if kind == "float":
            return float.fromhex(rest[0])
        if kind == "complex":
            return complex(*map(float.fromhex, rest))
        if kind == "torch":
            return named(rest[0], BY_NAME)
        if kind == "device":
            return torch.device(rest[0])
        return {"tuple": tuple, "list": list}[kind](map(self.value, rest))

    def meaning(self, x: Any) -> Any:
        if isinstance(x, list) and x and x[0] in ("tuple", "list"):
            return (tuple if x[0] == "tuple" else list)(map(self.meaning, x[1:]))
        if not isinstance(x, list) or x[0] != "tensor":
            return self.value(x)
        _, dtype, shape, strides, offset, device, number = x
        with self.mode, torch.no_grad():
            if number not in self.storages:
                memory = torch.empty(self.sizes[number], dtype=torch.uint8, device=device)
                self.storages[number] = memory.untyped_storage()
            like = torch.empty(0, dtype=named(dtype, (torch.dtype,)), device=device)
            return like.set_(self.storages[number], offset, shape, strides)  # type: ignore[call-overload]


def operator_of(name: str) -> Any:
    """Raises AttributeError or ValueError where there is no such operator."""
    if name == "getitem":
        return operator.getitem
    if name == SHARED:
        return torch.ops.higher_order.invoke_subgraph
    namespace, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


def named(name: str, kinds: tuple[type, ...]) -> Any:
    found = getattr(torch, name)
    if not isinstance(found, kinds):
        raise ValueError(f"{name} is not what it was")
    return found

"""Splits a graph whose sizes depend on data (`x[mask]`, `nonzero`, `.item()` as a size) into subgraphs, at each such size.

A graph is compiled for sizes that are known when it is called. So Python makes the call whose result has a data-dependent size between
two compiled subgraphs, and that size is an ordinary symbol of the later ones:

before:  y = sin(x);  z = index(y, [y > 0]);  n = sym_size(z, 0);  _assert_scalar(n <= 6);  return relu(z), n
after:   subgraph 0 (x) -> y, y > 0;   call index;   bind u0, assert u0 <= 6;   subgraph 1 (u0, z) -> relu(z);   result u0

An integer of a float of the data is such a size too. Python computes it as eager does, from the item on:

before:  s = item(sum(x));  n = trunc(mul(0.5, s));  return zeros([n]) + x[0]
after:   subgraph 0 (x) -> sum(x);   call item, mul, trunc;   bind ux9ab..;   subgraph 1 (ux9ab.., x) -> zeros([ux9ab..]) + x[0]

Nodes stand as early as their operands allow, calls with effects keep their order, and what writes to arguments is in the last subgraph.
Each subgraph makes its own views, so that no two of its inputs share memory. A backward graph gets such sizes as arguments.
"""

from dataclasses import field
from operator import getitem
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.importer import views
from mlirc.frontend.importer.aten_import import has_effect
from mlirc.frontend.importer.sizes import OF_DATA, named, scalars, size
from mlirc.frontend.torch_compat.aot_autograd.higher_order import with_effects
from mlirc.frontend.torch_compat.dynamo.trees import tree_leaves

aten = torch.ops.aten
CHECKS = (aten._assert_scalar.default, aten.sym_constrain_range.default, aten.sym_constrain_range_for_size.default)


@dataclass
class Subgraph:
    """A part that is compiled.

    graph       its placeholders are `inputs`, its results `outputs`
    inputs      nodes of the whole graph, or sizes
    outputs     nodes of the whole graph
    """

    graph: GraphModule
    inputs: list[Node | Int]
    outputs: list[Node]


@dataclass
class SubgraphSplit:
    """The whole graph as steps, in order: subgraphs, and nodes that are called or checked between them."""

    gm: GraphModule
    steps: list[Subgraph | Node] = field(default_factory=list)
    by_python: set[Node] = field(default_factory=set)  # numbers that are called for between subgraphs


def split(gm: GraphModule) -> SubgraphSplit:
    """The steps. Raises UnsupportedGraph for a graph that cannot be split."""
    placement = _Placement(gm)
    made = SubgraphSplit(gm, by_python=placement.by_python)
    for level in range(placement.last + 1):
        made.steps += [node for node in placement.between if placement.levels[node] == level]
        subgraph = placement.subgraph(level)
        if subgraph is not None:
            made.steps.append(subgraph)
    return made


def is_size(node: Any) -> bool:
    """Whether a node is an integer of sizes, which is computed from symbols where it is needed."""
    return isinstance(node, Node) and isinstance(node.meta.get("val"), (torch.SymInt, int))


def new_symbols(value: Any) -> list[tuple[str, int, int | None]]:
    """(symbol, leaf, dimension) for each symbol that is itself a size or a number in a result; the dimension is None for a number."""
    found = []
    for k, leaf in enumerate(tree_leaves(value)):
        if isinstance(leaf, torch.SymBool):  # a bool of the data: a symbol that is compared with 1
            names = [s.name for s in leaf.node.expr.free_symbols]
            if len(names) == 1 and str(leaf.node.expr) in (f"Eq({names[0]}, 1)", f"Eq(1, {names[0]})"):
                found.append((str(size_symbol(leaf)), k, None))
        for dimension, s in enumerate(leaf.shape) if isinstance(leaf, torch.Tensor) else ((None, leaf),):
            if isinstance(s, torch.SymInt) and s.node.maybe_as_int() is None:
                text = str(size(s))
                if text.isidentifier():
                    found.append((text, k, dimension))
    return found


def size_symbol(value: torch.SymBool) -> Int:
    (symbol,) = value.node.expr.free_symbols
    return symbols.symbol(named(symbol, value.node.shape_env).name)


def _symbols(value: Any) -> set[str]:
    """Names of the size symbols in a node's value."""
    names: set[str] = set()
    for s in scalars(value):
        if isinstance(s, torch.SymInt):
            names |= symbols.free_symbols(size(s))
    return names


class _Placement:
    """levels: node -> the subgraph that it is in, or that it comes right before; between: nodes that are in none."""

    def __init__(self, gm: GraphModule):
        self.gm = gm
        self.levels: dict[Node, int] = {}
        self.between: dict[Node, None] = {}
        self.known: dict[str, int] = {}  # symbol -> the first subgraph that may use it
        self.integers: dict[str, torch.SymInt] = {}
        self.effects = 0
        self.by_python = numbers_of_floats(gm)
        for node in gm.graph.nodes:
            self.place(node)
        self.last = max(self.levels.values(), default=0)
        for node in gm.graph.find_nodes(op="call_function", target=aten.copy_.default):
            self.levels[node] = self.last
        self.users = self.needed()

    def place(self, node: Node) -> None:
        value = node.meta.get("val")
        if node.op == "output":
            return
        level = max((self.levels[n] for n in node.all_input_nodes), default=0)
        for s in scalars(value):
            if isinstance(s, torch.SymInt) and (text := str(size(s))).isidentifier():
                self.integers.setdefault(text, s)
        if node.op != "call_function":
            self.known |= dict.fromkeys(_symbols(value), 0)
            self.levels[node] = 0
            return
        if node.target is with_effects:
            raise UnsupportedGraph("a call with an effect token in a graph whose sizes depend on data")
        names = self.names(node)
        created = names - self.known.keys()
        level = max([level, *(self.known[n] for n in names - created)])
        if node.target in CHECKS:
            self.between[node] = None
        elif created:
            level += 1
            self.create(node, created, level)
        elif node in self.by_python:
            level += any(map(self.inside, node.all_input_nodes))
            self.between[node] = None
        elif node.target is getitem and node.args[0] in self.between:
            self.between[node] = None
        elif acts(node):
            level = self.effects = max(level, self.effects)
        self.levels[node] = level

    def names(self, node: Node) -> set[str]:
        value = node.meta.get("val")
        if node.target in CHECKS:
            value = [x.meta.get("val") if isinstance(x, Node) else x for x in node.args]
        truths = [s for s in scalars(value) if isinstance(s, torch.SymBool) and not is_of_float(s)]
        return _symbols(value) | {name for s in truths for name in truth_symbols(s)}

    def create(self, node: Node, created: set[str], level: int) -> None:
        """Places a call whose result has new symbols."""
        said = {name for name, _, _ in new_symbols(node.meta["val"])}
        if created - said:
            raise UnsupportedGraph(
                f"{node.target} has a size that depends on data, {', '.join(sorted(created - said))} in a formula"
            )
        if node.target is getitem:
            raise UnsupportedGraph(f"a result of {node.args[0]} alone has a size that depends on data")
        if views.is_view(node.target) and self.gm.graph.find_nodes(op="call_function", target=aten.copy_.default):
            raise UnsupportedGraph(
                f"{node.target} views a part whose size depends on data, in a graph that writes to arguments"
            )
        self.known |= dict.fromkeys(created, level)
        self.between[node] = None
        if acts(node):
            self.effects = max(self.effects, level)

    # ---- what each subgraph reads and gives

    def inside(self, node: Node) -> bool:
        return node.op == "call_function" and node not in self.between and not is_size(node) and not is_truth(node)

    def reads(self, level: int) -> tuple[dict[Node, None], dict[Node, None]]:
        """(nodes that are computed in the subgraph, nodes that come into it)."""
        chosen: dict[Node, None] = {}
        inputs: dict[Node, None] = {}

        def require(node: Node) -> None:
            if node in chosen or node in inputs or is_size(node):
                return
            if is_truth(node):
                raise UnsupportedGraph(f"{node} is true or false by data, and an argument of a call")
            again = self.inside(node) and is_viewing(node)
            if node.op == "get_attr" or (self.inside(node) and (self.levels[node] == level or again)):
                chosen[node] = None
                for operand in node.all_input_nodes:
                    require(operand)
            else:
                inputs[node] = None

        for node, at in self.levels.items():
            if at == level and self.inside(node):
                require(node)
        return chosen, inputs

    def needed(self) -> set[Node]:
        """Nodes whose values leave the subgraph that they are in."""
        found = set(self.gm.graph.output_node().all_input_nodes)
        for node in self.between:
            found |= set(node.all_input_nodes)
        for level in range(self.last + 1):
            found |= self.reads(level)[1].keys()
        return found

    def subgraph(self, level: int) -> Subgraph | None:
        chosen, inputs = self.reads(level)
        outputs = [n for n in chosen if n in self.users and self.levels[n] == level and self.inside(n)]
        if not outputs and not any(map(acts, chosen)):
            return None
        graph, copies = Graph(), {}
        names: set[str] = set()
        for node in [*chosen, *inputs]:
            names |= _symbols(node.meta.get("val"))
        passed: list[Node | Int] = []
        for name in sorted(names):
            self.placeholder(graph, self.integers[name])
            passed.append(symbols.symbol(name))
        for node in inputs:
            copies[node] = graph.placeholder(node.name)
            copies[node].meta = dict(node.meta)
            passed.append(node)
        compound = {n: None for c in chosen for n in c.all_input_nodes if is_size(n)}
        for node in compound:
            value = node.meta["val"]
            copies[node] = value if isinstance(value, int) else self.placeholder(graph, value)
            if not isinstance(value, int):
                passed.append(size(value))
        for node in self.gm.graph.nodes:
            if node in chosen:
                copies[node] = graph.node_copy(node, lambda n: copies[n])
        graph.output(tuple(copies[n] for n in outputs))
        return Subgraph(GraphModule(self.gm, graph), passed, outputs)

    def placeholder(self, graph: Graph, value: torch.SymInt) -> Node:
        node = graph.placeholder(f"size_{len(graph.nodes)}")
        node.meta["val"] = value
        return node


def is_truth(node: Node) -> bool:
    return isinstance(node.meta.get("val"), (bool, torch.SymBool))


def is_viewing(node: Node) -> bool:
    """Whether a node views another one's memory, or is a part of what does."""
    source = node.args[0] if node.args else None
    if node.target is getitem:
        return isinstance(source, Node) and is_viewing(source)
    return views.is_view(node.target)


def acts(node: Node) -> bool:
    """Whether a call has effects. Such calls keep their order."""
    target: Any = node.target
    of_scalars = is_size(node) or is_truth(node) or isinstance(node.meta.get("val"), torch.SymFloat)
    return node.op == "call_function" and target is not getitem and not of_scalars and has_effect(target)


def truth_symbols(value: torch.SymBool) -> set[str]:
    """Names of the symbols in a condition on sizes."""
    return {symbol.name for symbol in named(value.node.expr, value.node.shape_env).free_symbols}


def is_of_float(value: torch.SymBool) -> bool:
    """Whether a condition is one of a float of the data, which only Python evaluates."""
    found = named(value.node.expr, value.node.shape_env).free_symbols
    return any(symbol.name.startswith("z") for symbol in found)


def numbers_of_floats(gm: GraphModule) -> set[Node]:
    """The integers and truth values that are no size expressions, and the floats and integers that they are computed from."""
    found: set[Node] = set()
    pending = [node for node in gm.graph.nodes if has_no_expression(node)]
    while pending:
        node = pending.pop()
        if node in found or node.op != "call_function":
            continue
        found.add(node)
        pending += [n for n in node.all_input_nodes if isinstance(n.meta.get("val"), (torch.SymFloat, torch.SymBool))]
    return found


def has_no_expression(node: Node) -> bool:
    """Whether a node is a number that is computed from a float of the data, and that sizes or checks depend on."""
    value = node.meta.get("val")
    if isinstance(value, torch.SymInt):
        return str(size(value)) in OF_DATA
    if isinstance(value, torch.SymFloat):
        return any(user.target in CHECKS for user in node.users)
    return isinstance(value, torch.SymBool) and is_of_float(value)

"""Runs a graph in subgraphs (subgraphs.py): compiled subgraphs, and between them the calls and checks that determine sizes."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from operator import getitem
from typing import Any, TypeGuard

import sympy
import torch
from torch.fx import GraphModule, Node

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.frontend.cache.graph_text import attribute
from mlirc.frontend.data_sizes.subgraphs import CHECKS, Subgraph, SubgraphSplit, is_size, is_truth, new_symbols, split
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.importer.aten_import import operator_text
from mlirc.frontend.importer.sizes import expression, named, size
from mlirc.frontend.statistics import GraphReport
from mlirc.frontend.torch_compat.dynamo.trees import tree_leaves, tree_map

Values = dict[Node, Any]
Numbers = dict[str, int]
Step = Callable[[Values, Numbers], None]
Read = Callable[[Values, Numbers], Any]

OPERATORS = (torch._ops.OpOverload, torch._ops.HigherOrderOperator)
COMPARISONS: dict[Any, Callable[[int, int], bool]] = {
    sympy.Eq: lambda a, b: a == b,
    sympy.Ne: lambda a, b: a != b,
    sympy.Lt: lambda a, b: a < b,
    sympy.Le: lambda a, b: a <= b,
    sympy.Gt: lambda a, b: a > b,
    sympy.Ge: lambda a, b: a >= b,
}


class Parted:
    """A graph in steps: compiled subgraphs, and calls and checks between them. Writes the steps into the report. Raises UnsupportedGraph
    where the graph cannot be split."""

    def __init__(self, gm: GraphModule, report: GraphReport):
        self.made = split(gm)
        between = [n for n in self.made.steps if isinstance(n, Node)]
        self.steps: dict[Node, Step] = {
            n: _check(self.made, n) if n.target in CHECKS else _call(self.made, n) for n in between
        }
        results: Any = gm.graph.output_node().args[0]
        self.reads = [_read(self.made, x) for x in results]
        targets: list[Any] = [n.target for n in between]
        calls = Counter(
            operator_text(target) for target in targets if isinstance(target, OPERATORS) and target not in CHECKS
        )
        report.aten = {name: (count, "a size is known when it has run") for name, count in calls.items()}
        report.subgraphs = len(self.made.steps) - len(between)

    def compiled(
        self,
        parameters: Sequence[int],
        compile_subgraph: Callable[[GraphModule, int, list[int]], Callable[[list], list]],
    ) -> Callable[[list], list]:
        """The whole graph as a callable of AOTAutograd's boxed convention.

        parameters        positions of the placeholders that hold parameters
        compile_subgraph  (graph, number of the subgraph, positions of parameters among its inputs) -> callable
        """
        placeholders = self.made.gm.graph.find_nodes(op="placeholder")
        fixed = {placeholders[k] for k in parameters}
        steps: list[Step] = [_binding(node) for node in placeholders]
        numbers = count()
        for step in self.made.steps:
            if isinstance(step, Node):
                steps.append(self.steps[step])
            else:
                run = compile_subgraph(step.graph, next(numbers), [k for k, x in enumerate(step.inputs) if x in fixed])
                steps.append(_run_subgraph(step, run))
        last = _last_uses(self.made, len(placeholders))
        drops = [tuple(n for n in last if last[n] == k) for k in range(len(steps))]
        return _in_order(placeholders, steps, drops, self.reads)


def _in_order(
    placeholders: list[Node], steps: list[Step], drops: list[tuple[Node, ...]], reads: list[Read]
) -> Callable[[list], list]:
    """Runs the steps in order. `drops` are, for each step, the values that no later step uses."""

    def call(args: list) -> list:
        values: Values = dict(zip(placeholders, args, strict=True))
        numbers: Numbers = {}
        args.clear()
        for step, dropped in zip(steps, drops, strict=True):
            step(values, numbers)
            for node in dropped:
                del values[node]
        return [read(values, numbers) for read in reads]

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def _last_uses(made: SubgraphSplit, first: int) -> dict[Node, int]:
    """The last step that uses each held value that is no result; steps count from `first` on."""
    last: dict[Node, int] = {}
    for k, step in enumerate(made.steps):
        used = [*step.inputs, *step.outputs] if isinstance(step, Subgraph) else [step, *step.all_input_nodes]
        last |= dict.fromkeys((n for n in used if isinstance(n, Node) and not _is_computed(made, n)), k + first)
    for node in made.gm.graph.output_node().all_input_nodes:
        last.pop(node, None)
    return last


def _is_computed(made: SubgraphSplit, node: Node) -> bool:
    """Whether a node's value is computed from sizes or is a constant: a size, a comparison of sizes, a graph constant, a check."""
    if node in made.by_python:
        return False
    argument = node.op == "placeholder"
    return (not argument and (is_size(node) or is_truth(node))) or node.op == "get_attr" or node.target in CHECKS


def _binding(node: Node) -> Step:
    """A function that binds symbols to the sizes of an argument."""
    found = new_symbols(node.meta.get("val"))

    def bind(values: Values, numbers: Numbers) -> None:
        for name, _, dimension in found:
            value = values[node]
            numbers[name] = value if dimension is None else value.shape[dimension]

    return bind


def _run_subgraph(subgraph: Subgraph, run: Callable[[list], list]) -> Step:
    inputs = [_number(x) if not isinstance(x, Node) else _value(x) for x in subgraph.inputs]
    outputs = subgraph.outputs

    def step(values: Values, numbers: Numbers) -> None:
        values.update(zip(outputs, run([read(values, numbers) for read in inputs]), strict=True))

    return step


def _call(made: SubgraphSplit, node: Node) -> Step:
    target: Any = node.target
    found = new_symbols(node.meta["val"]) if target is not getitem else []
    is_node = lambda x: isinstance(x, (Node, torch.SymInt))
    leaves = [x for x in tree_leaves((node.args, node.kwargs), is_leaf=is_node) if is_node(x)]
    reads = {x: _read(made, x) for x in leaves if isinstance(x, Node)}
    if len(reads) < len(set(map(id, leaves))):
        raise UnsupportedGraph(f"{target} has a size that is no node of the graph")

    def step(values: Values, numbers: Numbers) -> None:
        known = {x: read(values, numbers) for x, read in reads.items()}
        args, kwargs = tree_map(lambda x: known[x] if isinstance(x, Node) else x, (node.args, node.kwargs))
        made_now = values[node] = target(*args, **kwargs)
        told = tree_leaves(made_now)
        for name, leaf, dimension in found:
            numbers[name] = int(told[leaf] if dimension is None else told[leaf].shape[dimension])

    return step


def _check(made: SubgraphSplit, node: Node) -> Step:
    target: Any = node.target
    reads = [_argument(made, x) for x in node.args]
    kwargs = {key: _argument(made, x) for key, x in node.kwargs.items()}

    def step(values: Values, numbers: Numbers) -> None:
        target(*(read(values, numbers) for read in reads), **{k: read(values, numbers) for k, read in kwargs.items()})

    return step


def _is_condition(x: Any) -> TypeGuard[Node]:
    return isinstance(x, Node) and isinstance(x.meta.get("val"), torch.SymBool)


def _truth(node: Node) -> Read:
    value = node.meta["val"]
    holds = condition(named(value.node.expr, value.node.shape_env))
    return lambda values, numbers: holds(numbers)


def condition(expr: Any) -> Callable[[Numbers], bool]:
    """A condition on sizes as a function of the symbols' values. Raises UnsupportedGraph where size expressions cannot express it."""
    if expr in (sympy.true, sympy.false):
        return lambda numbers: bool(expr)
    if isinstance(expr, (sympy.And, sympy.Or)):
        parts = [condition(x) for x in expr.args]
        fold = all if isinstance(expr, sympy.And) else any
        return lambda numbers: fold(part(numbers) for part in parts)
    if isinstance(expr, sympy.Not):
        part = condition(expr.args[0])
        return lambda numbers: not part(numbers)
    compare = COMPARISONS.get(type(expr))
    if compare is None:
        raise UnsupportedGraph(f"the condition {expr} is none that mlirc can evaluate")
    left, right = map(expression, expr.args)
    return lambda numbers: compare(symbols.evaluate(left, numbers), symbols.evaluate(right, numbers))


def _argument(made: SubgraphSplit, x: Any) -> Read:
    if isinstance(x, Node) and not (is_size(x) or _is_condition(x) or x in made.by_python):
        raise UnsupportedGraph(f"{x} is checked, and is no number")
    return _read(made, x)


def _read(made: SubgraphSplit, x: Any) -> Read:
    """A function that reads a node's value, or a constant, at run time."""
    if not isinstance(x, Node):
        return lambda values, numbers: x
    if is_size(x):
        return _number(size(x.meta["val"]))
    if x in made.by_python:
        return _value(x)
    if _is_condition(x):
        return _truth(x)
    if x.op == "get_attr":
        constant = attribute(made.gm, x)
        return lambda values, numbers: constant
    if is_truth(x):
        constant = x.meta["val"]
        return lambda values, numbers: constant
    return _value(x)


def _value(node: Node) -> Read:
    return lambda values, numbers: values[node]


def _number(value: Int) -> Read:
    if isinstance(value, int):
        return lambda values, numbers: value
    name = str(value)
    if name.isidentifier():
        return lambda values, numbers: numbers[name]
    return lambda values, numbers: symbols.evaluate(value, numbers)

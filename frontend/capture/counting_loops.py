"""Loops that carry Python integers carry 0-d tensors instead: an integer of data is a symbol, which no loop of a compiled graph can hold.

before:  out = while_loop(condition, body, (0, x), ())          body(i, x): return (i + 1, x * i)       i is a SymInt
after:   out = while_loop(condition, body, (full((), 0), x), ())                                       i is a tensor of int64

Only counters whose last value nobody reads are carried so: what a body gives for one is a counter and a number, or a number. Within a
body a counter may be compared, and may meet other integers and elements of float32, float64 and int64, where PyTorch computes the same
with a 0-d tensor as with a number.
"""

import operator
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from mlirc.codegen.process.signal_handlers import raise_of_handler
from mlirc.frontend.capture.nested_regions import attribute
from mlirc.frontend.torch_compat.dynamo.lazy_graph import copied

COMPARISONS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
WITH_ELEMENTS = (operator.add, operator.sub, operator.mul, *COMPARISONS)
OF_INTEGERS = (*WITH_ELEMENTS, operator.floordiv, operator.mod)
DTYPES = (torch.float32, torch.float64, torch.int64)
LARGE = 1 << 31  # a step of less overflows after more calls than a program makes


def carry_tensors(gm: GraphModule) -> None:
    """Rewrites a graph of Dynamo's. A failure leaves it as it was."""
    loops = [node for node in gm.graph.nodes if counters_of(gm, node)]
    if not loops:
        return
    before = copied(gm.graph)
    try:
        for node in loops:
            rewrite(gm, node, counters_of(gm, node))
        gm.graph.lint()
    except Exception as error:
        raise_of_handler(error)
        gm.graph = before
    gm.recompile()


def counters_of(gm: GraphModule, node: Node) -> list[int]:
    """The positions of the integers that a loop carries; none where one is no counter."""
    target: Any = node.target
    if not (isinstance(target, torch._ops.HigherOrderOperator) and target.name() == "while_loop") or node.kwargs:
        return []
    condition, body, carried, _ = node.args
    positions = [k for k, x in enumerate(carried) if type(x) is int and abs(x) < LARGE]  # type: ignore[arg-type]
    if any(user.target is not operator.getitem or (user.args[1] in positions and user.users) for user in node.users):
        return []  # what is read of a counter is an integer of data
    for function in (condition, body):
        region = attribute(gm, str(function.target))  # type: ignore[union-attr]
        if not isinstance(region, GraphModule) or not counts(region, positions, function is body):
            return []
    return positions


def counts(region: GraphModule, positions: list[int], is_body: bool) -> bool:
    """Whether a function only counts with the integers at these positions."""
    placeholders = region.graph.find_nodes(op="placeholder")
    integers = {placeholders[k] for k in positions}
    counters = set(integers)
    for node in region.graph.nodes:
        if not integers & set(node.all_input_nodes):
            continue
        if node.op == "output":
            results: Any = node.args[0] if isinstance(node.args[0], (tuple, list)) else node.args
            given = [results[k] for k in positions] if is_body else []
            others = {x for k, x in enumerate(results) if not (is_body and k in positions)}
            compared = {x for x in integers if isinstance(x.meta.get("example_value"), torch.SymBool)}
            return all(x in counters or type(x) is int for x in given) and not others & (integers - compared)
        if node.op != "call_function" or node.kwargs or len(node.args) != 2:
            return False
        kinds = [kind_of(x, integers) for x in node.args]
        if "other" in kinds or node.target not in (WITH_ELEMENTS if "elements" in kinds else OF_INTEGERS):
            return False
        if node.target in (operator.floordiv, operator.mod) and not (type(node.args[1]) is int and node.args[1] > 0):
            return False
        if "elements" not in kinds:
            integers.add(node)
            if is_step(node, kinds) and counters & set(node.all_input_nodes):
                counters.add(node)
    return True


def is_step(node: Node, kinds: list[str]) -> bool:
    """Whether an integer and a number are added, or a number is subtracted."""
    return (node.target is operator.add and "number" in kinds) or (node.target is operator.sub and kinds[1] == "number")


def kind_of(x: Any, integers: set[Node]) -> str:
    if type(x) is int and abs(x) < LARGE:
        return "number"
    if not isinstance(x, Node):
        return "other"
    value = x.meta.get("example_value")
    if x in integers:
        return "other" if isinstance(value, torch.SymBool) else "integer"
    return "elements" if isinstance(value, torch.Tensor) and value.dtype in DTYPES else "other"


def rewrite(gm: GraphModule, node: Node, positions: list[int]) -> None:
    condition, body, carried, others = node.args
    with gm.graph.inserting_before(node):
        starts = [zero_dimensional(gm.graph, x) if k in positions else x for k, x in enumerate(carried)]  # type: ignore[arg-type]
        functions = []
        for function in (condition, body):
            region = attribute(gm, str(function.target))  # type: ignore[union-attr]
            made = GraphModule(region, copied(region.graph))
            if function is body:
                give_tensors(made.graph, positions)
                made.recompile()
            name = f"{function.target}_of_tensors"  # type: ignore[union-attr]
            gm.add_submodule(name, made)
            functions.append(gm.graph.get_attr(name))
        node.args = (*functions, tuple(starts), others)
        for name in ("example_value", "unbacked_bindings"):  # where its integers are symbols
            node.meta.pop(name, None)
    for user in list(node.users):
        if user.args[1] in positions:
            gm.graph.erase_node(user)
    for function in (condition, body):
        if not function.users:  # type: ignore[union-attr]
            gm.graph.erase_node(function)  # type: ignore[arg-type]


def give_tensors(graph: Graph, positions: list[int]) -> None:
    """A body gives new tensors for its counters: neither numbers nor what it was given."""
    output = graph.output_node()
    results: Any = list(output.args[0])  # type: ignore[arg-type]
    with graph.inserting_before(output):
        for k in positions:
            given = results[k]
            if type(given) is int:
                results[k] = zero_dimensional(graph, given)
            elif given.op == "placeholder" or results.count(given) > 1:
                results[k] = graph.call_method("clone", (given,))
    output.args = (tuple(results),)


def zero_dimensional(graph: Graph, number: int) -> Node:
    return graph.call_function(torch.full, ((), number), {"dtype": torch.int64})

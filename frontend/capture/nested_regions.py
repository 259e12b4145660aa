"""Puts the bodies of nested_compile_region where they are called, so that their operators are compiled with all others.

before:  out = invoke_subgraph(body, "name", x, w);  y = out[0]        body(a, b): return (relu(a @ b),)
after:   y = relu(x @ w)

A region only says that its code is worth compiling once. It is done before AOTAutograd, which then sees what shares memory and what needs
a gradient. Other operators with bodies (cond, while_loop, scan, map) become ops with regions (importer/regions.py).
"""

from operator import getitem
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from mlirc.codegen.process.signal_handlers import raise_of_handler
from mlirc.frontend.capture.aot_autograd import copied


def inline_regions(gm: GraphModule) -> None:
    """Rewrites a graph of Dynamo's. A failure leaves it as it was."""
    if not any(map(is_region, gm.graph.nodes)):
        return
    before = copied(gm.graph)
    try:
        while regions := [node for node in gm.graph.nodes if is_region(node)]:  # one may be within another
            for node in regions:
                inline(gm, node)
        gm.graph.eliminate_dead_code(is_impure_node=lambda node: node.op != "get_attr")
    except Exception as error:
        raise_of_handler(error)
        gm.graph = before
    gm.recompile()


def is_region(node: Node) -> bool:
    target: Any = node.target
    return isinstance(target, torch._ops.HigherOrderOperator) and target.name() == "invoke_subgraph"


def inline(gm: GraphModule, node: Node) -> None:
    """Replaces one call by what its body does."""
    body, _, *given = node.args
    assert isinstance(body, Node)
    region: GraphModule = attribute(gm, str(body.target))
    values: dict[Node, Any] = dict(zip(region.graph.find_nodes(op="placeholder"), given, strict=True))
    results: Any = None
    with gm.graph.inserting_before(node):
        for inner in region.graph.nodes:
            if inner.op == "output":
                results = torch.fx.map_arg(inner.args[0], values.__getitem__)
            elif inner.op == "get_attr":
                values[inner] = gm.graph.get_attr(held(gm, attribute(region, str(inner.target))))
                values[inner].meta = dict(inner.meta)
            elif inner.op != "placeholder":
                values[inner] = gm.graph.node_copy(inner, values.__getitem__)
    for user in list(node.users):
        if user.target is not getitem:
            raise AssertionError(f"{user} takes all results of {node}")
        replace(gm.graph, user, results[user.args[1]])
    gm.graph.erase_node(node)


def replace(graph: Graph, node: Node, value: Any) -> None:
    """Makes all users of a node use a value, which may be a number."""
    if isinstance(value, Node):
        node.replace_all_uses_with(value)
    else:
        for user in list(node.users):
            user.args, user.kwargs = torch.fx.map_arg((user.args, user.kwargs), lambda n: value if n is node else n)
    graph.erase_node(node)


def attribute(gm: GraphModule, name: str) -> Any:
    value: Any = gm
    for part in name.split("."):
        value = getattr(value, part)
    return value


def held(gm: GraphModule, value: Any) -> str:
    """The name by which a graph's module holds a value."""
    number = 0
    while hasattr(gm, f"region_{number}"):
        if getattr(gm, f"region_{number}") is value:
            return f"region_{number}"
        number += 1
    setattr(gm, f"region_{number}", value)
    return f"region_{number}"

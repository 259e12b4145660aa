"""Puts the steps of an associative scan where the operator is called, as eager makes them: each combines all neighbours at once.

before:  (y,) = associative_scan(combine, [x], ())                                              x: [5, ...]
after:   a = combine(x[0:-1:2], x[1::2])          of pairs: [2, ...], scanned in the same way
         b = cat(x[0:1], combine(a, x[2::2]))     [3, ...]
         y = b[0], a[0], b[1], a[1], b[2]

The operator is that of `combine_mode="pointwise"`, which takes tensors of a GPU alone; "generic" is written out by PyTorch. Lengths are
numbers: with a symbol the operator stays, and runs in eager. So it does where a gradient may be computed, for which PyTorch has a formula
of its own: it is not the gradient of these steps unless the function is associative and its values do not depend on each other.
"""

from collections.abc import Callable, Sequence
from functools import partial
from operator import getitem
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from mlirc.codegen.process.signal_handlers import raise_of_handler
from mlirc.frontend.capture.aot_autograd import copied
from mlirc.frontend.capture.nested_regions import attribute, replace_results, results_of_copy

NAME = "associative_scan"
Combine = Callable[[Sequence[Node], Sequence[Node]], list[Node]]


def write_out_scans(gm: GraphModule) -> None:
    """Rewrites a graph of Dynamo's. A failure leaves it as it was."""
    scans = [node for node in gm.graph.nodes if is_scan(node)]
    if not scans:
        return
    before = copied(gm.graph)
    try:
        for node in scans:
            write_out(gm, node)
        gm.graph.eliminate_dead_code(is_impure_node=lambda node: node.op != "get_attr")
    except Exception as error:
        raise_of_handler(error)
        gm.graph = before
    gm.recompile()


def is_scan(node: Node) -> bool:
    """Whether a node scans tensors of a length that is known, and no gradient of it is computed."""
    target: Any = node.target
    if not isinstance(target, torch._ops.HigherOrderOperator) or target.name() != NAME:
        return False
    _, scanned, others = given_to(node)
    values = [x.meta["example_value"] for x in (*scanned, *others) if isinstance(x, Node)]
    return isinstance(length(node), int) and not any(isinstance(x, torch.Tensor) and x.requires_grad for x in values)


def length(node: Node) -> Any:
    _, scanned, _ = given_to(node)
    return scanned[0].meta["example_value"].shape[0]


def given_to(node: Node) -> tuple[Any, ...]:
    """The function, what is scanned, and what else the function takes."""
    return node.args


def write_out(gm: GraphModule, node: Node) -> None:
    body, scanned, others = given_to(node)
    region = attribute(gm, str(body.target))

    def combine(first: Sequence[Node], second: Sequence[Node]) -> list[Node]:
        return list(results_of_copy(gm, region, [*first, *second, *others]))

    with gm.graph.inserting_before(node):
        results = steps(gm.graph, list(scanned), length(node), combine)
    replace_results(gm.graph, node, results)


def steps(graph: Graph, values: list[Any], n: int, combine: Combine) -> list[Node]:
    """The scan of tensors of length n."""
    if n < 2:
        return [graph.call_method("clone", (x,)) for x in values]
    part = partial(of_each, graph)
    odd = steps(graph, combine(part(values, 0, -1, 2), part(values, 1, None, 2)), n // 2, combine)
    even = part(values, 0, 1)
    if n > 2:
        more = combine(part(odd, 0, -1) if n % 2 == 0 else odd, part(values, 2, None, 2))
        even = [graph.call_function(torch.cat, (list(pair),)) for pair in zip(even, more, strict=True)]
    pairs = zip(part(even, 0, n // 2), odd, strict=True)
    joined = [graph.call_function(torch.stack, (list(pair), 1)) for pair in pairs]
    joined = [graph.call_method("flatten", (x, 0, 1)) for x in joined]
    if n % 2 == 0:
        return joined
    last = part(even, n // 2, None)
    return [graph.call_function(torch.cat, (list(pair),)) for pair in zip(joined, last, strict=True)]


def of_each(graph: Graph, values: Sequence[Any], first: int, end: int | None, step: int | None = None) -> list[Node]:
    """The same part of each tensor's first dimension."""
    return [graph.call_function(getitem, (x, slice(first, end, step))) for x in values]

"""Puts the steps of an associative scan where the operator is called, as eager makes them: each combines all neighbours at once.

before:  (y,) = associative_scan(combine, [x], ())                                              x: [5, ...]
after:   a = combine(x[0:-1:2], x[1::2])          of pairs: [2, ...], scanned in the same way
         b = cat(x[0:1], combine(a, x[2::2]))     [3, ...]
         y = b[0], a[0], b[1], a[1], b[2]

The operator is that of `combine_mode="pointwise"`, which takes tensors of a GPU alone; "generic" is written out by PyTorch. Where a gradient is
computed, AOTAutograd takes PyTorch's formula for it, which is not the gradient of these steps unless the function is associative and its
values do not depend on each other: then the steps are put into the graphs that it traced. Lengths are numbers: how many steps there are
depends on them. With a symbol the operator stays, and runs in eager.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule, Node, Proxy
from torch.fx.proxy import GraphAppendingTracer

from mlirc.codegen.process.signal_handlers import raise_of_handler
from mlirc.frontend.capture.nested_regions import attribute, replace_results, results_of_copy
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.torch_compat.dynamo.lazy_graph import copied
from mlirc.frontend.torch_compat.dynamo.symbolic_shapes import make_fx
from mlirc.frontend.torch_compat.fake_tensors import detect_fake_mode

NAME = "associative_scan"
Combine = Callable[[Sequence[Any], Sequence[Any]], list[Any]]


# ---- in a graph of Dynamo's


def write_out_scans(gm: GraphModule) -> None:
    """Rewrites a graph of Dynamo's. A failure leaves it as it was."""
    scans = [node for node in gm.graph.nodes if is_scan(node, "example_value")]
    if not scans:
        return
    before = copied(gm.graph)
    try:
        for node in scans:
            (scan_row_major if needs_gradients(node) else write_out)(gm, node)
        gm.graph.eliminate_dead_code(is_impure_node=lambda node: node.op != "get_attr")
    except Exception as error:
        raise_of_handler(error)
        gm.graph = before
    gm.recompile()


def is_scan(node: Node, meaning: str) -> bool:
    """Whether a node scans tensors of a length that is known; `meaning`: the name under which a node has its fake tensor."""
    target: Any = node.target
    if not isinstance(target, torch._ops.HigherOrderOperator) or target.name() != NAME:
        return False
    _, scanned, _ = given_to(node)
    return isinstance(scanned[0].meta[meaning].shape[0], int)


def needs_gradients(node: Node) -> bool:
    _, scanned, others = given_to(node)
    values = [x.meta["example_value"] for x in (*scanned, *others) if isinstance(x, Node)]
    return any(isinstance(x, torch.Tensor) and x.requires_grad for x in values)


def given_to(node: Node) -> tuple[Any, ...]:
    """The function, what is scanned, and what else the function takes."""
    return node.args


def scan_row_major(gm: GraphModule, node: Node) -> None:
    """Copies what is scanned where it is not row-major, as the results are in eager: AOTAutograd promises the strides of what is scanned."""
    body, scanned, others = given_to(node)
    if scanned[0].meta["example_value"].shape[0] > 1:
        with gm.graph.inserting_before(node):
            copies = [gm.graph.call_method("contiguous", (x,)) for x in scanned]
        for x, copy in zip(scanned, copies, strict=True):
            copy.meta = x.meta | {"example_value": x.meta["example_value"].contiguous()}
        node.args = (body, copies, others)


def write_out(gm: GraphModule, node: Node) -> None:
    body, scanned, others = given_to(node)
    region, proxy = attribute(gm, str(body.target)), partial(Proxy, tracer=GraphAppendingTracer(gm.graph))

    def combine(first: Sequence[Proxy], second: Sequence[Proxy]) -> list[Proxy]:
        return [*map(proxy, results_of_copy(gm, region, [*(x.node for x in (*first, *second)), *others]))]

    with gm.graph.inserting_before(node):
        results = steps([*map(proxy, scanned)], scanned[0].meta["example_value"].shape[0], combine)
    replace_results(gm.graph, node, [x.node for x in results])


# ---- in a graph of AOTAutograd's


def expand_scans(gm: GraphModule) -> None:
    """Rewrites a graph of AOTAutograd's."""
    scans = [node for node in gm.graph.nodes if is_scan(node, "val")]
    for node in scans:
        expand(gm, node)
    if scans:
        gm.graph.eliminate_dead_code()
        gm.recompile()


def expand(gm: GraphModule, node: Node) -> None:
    """Puts the steps in place of a call, and copies where that was promised with other strides."""
    from mlirc.frontend.capture.flex_attention import inlined, replace_items

    traced = traced_steps(gm, node)
    with gm.graph.inserting_before(node):
        results = list(inlined(gm, node, traced))
        for k, promised in enumerate(node.meta["val"]):
            if results[k].meta["val"].stride() != promised.stride():
                results[k] = gm.graph.call_function(torch.ops.aten.clone.default, (results[k],))
                results[k].meta = {**node.meta, "val": promised}
    replace_items(node, results)
    gm.graph.erase_node(node)


def traced_steps(gm: GraphModule, node: Node) -> GraphModule:
    """The steps as a graph, whose placeholders stand for `inputs_of` the node."""
    from mlirc.frontend.capture.flex_attention import inputs_of

    body, scanned, others = given_to(node)
    region, inputs = attribute(gm, str(body.target)), inputs_of(gm, node)
    values = [x.meta["val"] for x in inputs]

    def run(*given: Any) -> tuple:
        known = dict(zip(inputs, given, strict=True))
        rest = [known[x] if isinstance(x, Node) else x for x in others]
        combine = lambda first, second: list(region(*first, *second, *rest))
        return tuple(steps([known[x] for x in scanned], known[scanned[0]].shape[0], combine))

    mode = detect_fake_mode(values)
    if mode is None:
        raise UnsupportedGraph("its tensors are no fake tensors")
    with mode, torch.no_grad():
        return make_fx(run)(*values)


# ---- the steps


def steps(values: list[Any], n: int, combine: Combine) -> list[Any]:
    """The scan of tensors of length n, or of proxies of them."""
    if n < 2:
        return [x.clone() for x in values]
    odd = steps(combine(part(values, 0, -1, 2), part(values, 1, None, 2)), n // 2, combine)
    even = part(values, 0, 1)
    if n > 2:
        more = combine(part(odd, 0, -1) if n % 2 == 0 else odd, part(values, 2, None, 2))
        even = [torch.cat([x, y]) for x, y in zip(even, more, strict=True)]
    joined = [torch.stack([x, y], 1).flatten(0, 1) for x, y in zip(part(even, 0, n // 2), odd, strict=True)]
    return joined if n % 2 == 0 else [torch.cat([x, y]) for x, y in zip(joined, part(even, n // 2, None), strict=True)]


def part(values: Sequence[Any], first: int, end: int | None, step: int | None = None) -> list[Any]:
    """x[first:end:step] of each tensor x."""
    return [x[first:end:step] for x in values]

"""Analyses an attention mask of Dynamo's graph: imports its part of the graph and asks element_expressions.py which keys it hides."""

import torch
from torch.fx import Graph, GraphModule, Node

from mlirc.dialects.core.context import context
from mlirc.dialects.core.kernel_forms import broadcast_map
from mlirc.dialects.core.symbols import Int
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.importer.importer import import_graph
from mlirc.frontend.torch_compat.dynamo.symbolic_shapes import make_fx
from mlirc.lowering.analysis.element_expressions import ALWAYS, Elements
from mlirc.lowering.analysis.index_maps import identity


def meaning(gm: GraphModule, part: list[Node], mask: Node, q: tuple[Int, ...], k: tuple[Int, ...]) -> bool | None:
    """False: everything; True: for each query the keys up to its own position; None: something else, or not known.

    part   what the mask is computed from, in order, and the mask
    q, k   the sizes of query and key, four each
    """
    traced = trace(gm, part, mask)
    space = (*q[:3], k[2])
    index = tuple(0 if n == 1 else d for n, d in zip(space, identity(4), strict=True))
    with context():
        try:
            module = import_graph(traced).module
        except UnsupportedGraph:
            return None
        (value,) = list(module.body.operations[0].regions[0].blocks[0].operations)[-1].operands
        known = Elements({f"d{d}": n for d, n in enumerate(space)}).seen(value, broadcast_map(value, index))
    if known is None:
        return None
    condition, _ = known  # a row that sees no key is neither form
    return False if condition == ALWAYS else True if condition == {index[2] - index[3]} else None


def trace(gm: GraphModule, nodes: list[Node], mask: Node) -> GraphModule:
    """The ATen graph of the mask, from the sizes that it depends on. Nothing in it writes to memory: see is_overwritten."""
    graph, copies, sizes = Graph(), {}, []
    for node in nodes:
        if node.op in ("call_function", "call_method"):
            copies[node] = graph.node_copy(node, lambda x: copies[x])
        else:
            copies[node] = graph.placeholder(node.name)
            sizes.append(node.meta["example_value"])
    graph.output((copies[mask],))
    part = GraphModule(gm, graph)
    with mask.meta["example_value"].fake_mode, torch.no_grad():
        return make_fx(part)(*sizes)

"""Writes out `fill_diagonal_` in an exported program, which keeps it as one operator (taken_functions/filled_diagonals.py has the reason).

before:  y = aten.fill_diagonal_(x, 0)
after:   d = aten.diagonal(x);  aten.fill_.Scalar(d, 0);  y = aten.alias(x)
"""

from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node

from mlirc.frontend.capture.taken_functions.filled_diagonals import GAPS, fills
from mlirc.frontend.errors import UnsupportedGraph

aten = torch.ops.aten


def with_diagonals(program: ExportedProgram) -> ExportedProgram:
    """The program without `fill_diagonal_`; the user's own stays as it is. Raises UnsupportedGraph for one in a function that an
    operator takes, and for one that goes on beyond the last column of rows with gaps between them."""
    found = [module for module, nodes in fills(program.graph_module) if nodes]
    if not found:
        return program
    if any(module is not program.graph_module for module in found):
        raise UnsupportedGraph("fill_diagonal_ in a function that an operator takes")
    graph, copies = Graph(), {}
    for node in program.graph.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    gm = GraphModule(program.graph_module, graph)
    for _, nodes in fills(gm):
        for node in nodes:
            write_out(node)
    return ExportedProgram(
        gm,
        graph,
        program.graph_signature,
        program.state_dict,
        program.range_constraints,
        program.module_call_graph,
        program.example_inputs,
        program.constants,
        verifiers=program.verifiers,
    )


def write_out(node: Node) -> None:
    """Makes of one `fill_diagonal_` a write to a view; the node becomes another view of its operand, and keeps its name."""
    x, value, *wrap = node.args
    assert isinstance(x, Node)
    fake: Tensor = x.meta["val"]

    def call(target: Any, *args: Any) -> Node:
        made = node.graph.call_function(target, args)
        made.meta = {**node.meta, "val": target(*(a.meta["val"] if isinstance(a, Node) else a for a in args))}
        return made

    with node.graph.inserting_before(node):
        if (any(wrap) or node.kwargs.get("wrap")) and fake.dim() == 2 and fake.shape[0] > fake.shape[1] + 1:
            if not fake.is_contiguous():
                raise UnsupportedGraph(GAPS)
            rows, columns = map(int, fake.shape)
            written = call(
                aten.slice.Tensor, call(aten.view.default, x, [rows * columns]), 0, 0, rows * columns, columns + 1
            )
        else:
            written = call(aten.diagonal.default, x)
            while written.meta["val"].dim() > 1:
                written = call(aten.diagonal.default, written, 0, 0, -1)
        call(aten.fill_.Scalar, written, value)
    node.target, node.args, node.kwargs = aten.alias.default, (x,), {}

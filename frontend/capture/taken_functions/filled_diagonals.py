"""Writes to diagonals, relative to where a tensor begins: `fill_diagonal_` as PyTorch takes it apart counts from the storage's start.

before:  y = x.fill_diagonal_(0)          AOTAutograd: as_strided(x, [n], [n + 1], offset of the x that was traced)
after:   y = fill_diagonal_(x, 0)         AOTAutograd: diagonal(x)

No guard holds an input's storage offset: what counts from the storage's start writes beside an input that begins elsewhere.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

GAPS = "fill_diagonal_ with wrap=True writes into the gaps between rows"
METHOD = "fill_diagonal_"
FUNCTIONS = (Tensor.fill_diagonal_, torch.ops.aten.fill_diagonal_, torch.ops.aten.fill_diagonal_.default)


def write_out_diagonals(gm: GraphModule) -> None:
    """Rewrites a graph of Dynamo's in place, and the functions that its operators take."""
    for module, writes in fills(gm):
        for node in writes:
            node.op, node.target = "call_function", fill_diagonal_
        if writes:
            module.recompile()


def fills_gaps(gm: GraphModule) -> str | None:
    """The reason, where a diagonal may go on beyond the last column, and not in the next row."""
    if any(map(leaves_rows, (node for _, nodes in fills(gm) for node in nodes))):
        return GAPS
    return None


def fills(gm: GraphModule) -> Iterator[tuple[GraphModule, list[Node]]]:
    for module in gm.modules():
        if isinstance(module, GraphModule):
            yield module, [x for x in module.graph.nodes if is_write(x)]


def is_write(node: Node) -> bool:
    if node.op == "call_method":
        return node.target == METHOD
    return node.op == "call_function" and node.target in FUNCTIONS


def leaves_rows(node: Node) -> bool:
    wrap = node.args[2] if len(node.args) > 2 else node.kwargs.get("wrap", False)
    given = node.args[0] if node.args else node.kwargs["self"]
    x = given.meta.get("example_value") if isinstance(given, Node) else None
    return bool(wrap) and not (isinstance(x, Tensor) and (x.dim() > 2 or x.is_contiguous()))


def fill_diagonal_(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """torch.Tensor.fill_diagonal_. self: [rows, columns], or more dimensions, all of one size; with `wrap` the diagonal of a tall matrix
    begins anew a row after its last column."""
    if wrap and self.dim() == 2 and self.shape[0] > self.shape[1] + 1:
        self.view(-1)[:: self.shape[1] + 1].fill_(fill_value)
        return self
    diagonal = self.diagonal()
    while diagonal.dim() > 1:
        diagonal = diagonal.diagonal(0, 0, -1)
    diagonal.fill_(fill_value)
    return self

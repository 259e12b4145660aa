"""Finds calls whose indices a kernel might not check, because the result may have no elements. ATen runs these calls.

A kernel checks an index where a point of the result reads it. `torch.ones(0, 5).index_select(1, torch.tensor([7]))` has no points, but raises in
eager. Eager has no single rule: `index_select` refuses each index into an empty tensor, `x[i]` only one along a dimension of size 0.
"""

from typing import Any

import torch
from torch.fx import Node

aten = torch.ops.aten

READERS = (aten.index.Tensor, aten._unsafe_index.Tensor, aten.index_select.default, aten.embedding.default)
REASON = "what it reads may be empty: eager checks the indices then too"


def may_be_unread(node: Node) -> bool:
    """Whether the call reads a tensor that has no elements at some sizes that pass the guards."""
    if node.target not in READERS or not isinstance(node.args[0], Node):
        return False
    source: Any = node.args[0].meta.get("val")
    return isinstance(source, torch.Tensor) and any(map(may_be_zero, source.shape))


def may_be_zero(size: Any) -> bool:
    if isinstance(size, int):
        return size == 0
    expr = size.node.expr
    return not bool(size.node.shape_env.bound_sympy(expr).lower > 0)

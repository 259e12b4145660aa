"""Finds calls that eager refuses where a tensor has no elements, and a kernel would not. ATen runs these calls, where a tensor may be empty.

An index: a kernel checks one where a point of the result reads it. `torch.ones(0, 5).index_select(1, torch.tensor([7]))` has no points, but raises
in eager. Eager has no single rule: `index_select` refuses each index into an empty tensor, `x[i]` only one along a dimension of size 0.

An extreme: `amax`, `argmax` and the like of no elements raise, and a kernel would give the value that its loop begins with, -inf or inf. The
meta functions of `amax` and `argmax` refuse a known size 0, those of `max` and `min` do not, and none refuses a symbol.
"""

from typing import Any

import torch
from torch.fx import Node

aten = torch.ops.aten

READERS = (
    *(aten.index.Tensor, aten._unsafe_index.Tensor, aten.index_select.default, aten.embedding.default),
    *(aten.scatter.value, aten.scatter.src, aten.scatter_add.default),
)
OF_ALL = (aten.max.default, aten.min.default)
ALONG = (
    *(aten.max.dim, aten.min.dim, aten.amax.default, aten.amin.default),
    *(aten.aminmax.default, aten.argmax.default, aten.argmin.default),
)
NO_EXTREME = "it may have no elements, of which eager gives no extreme"
UNREAD = "what it reads may be empty: eager checks the indices then too"


def refusal(node: Node) -> str:
    """Why no kernel computes the call, or ""."""
    return UNREAD if may_be_unread(node) else NO_EXTREME if may_have_no_elements(node) else ""


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


def may_have_no_elements(node: Node) -> bool:
    """Whether the call takes an extreme of no elements at some sizes that pass the guards."""
    if node.target not in (*OF_ALL, *ALONG) or not isinstance(node.args[0], Node):
        return False
    x: Any = node.args[0].meta.get("val")
    if not isinstance(x, torch.Tensor):
        return False
    dims: Any = None
    if node.target in ALONG:
        dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    if dims is None or dims == []:
        return any(map(may_be_zero, x.shape))
    rows = [dims] if isinstance(dims, int) else dims
    return x.dim() > 0 and any(may_be_zero(x.shape[d]) for d in rows)

"""Finds calls of amax, argmax and the like over rows that may have no elements. ATen runs these calls: it raises an error for no
elements, and a kernel would give the value that its loop begins with, -inf or inf.

Tracing does not refuse all of them. The meta functions of `amax` and `argmax` refuse a known size 0, those of `max` and `min` do not, and none
refuses a symbol.
"""

from typing import Any

import torch
from torch.fx import Node

from mlirc.frontend.importer.unread_indices import may_be_zero

aten = torch.ops.aten

OF_ALL = (aten.max.default, aten.min.default)
ALONG = (
    *(aten.max.dim, aten.min.dim, aten.amax.default, aten.amin.default),
    *(aten.aminmax.default, aten.argmax.default, aten.argmin.default),
)
REASON = "it may have no elements, of which eager gives no extreme"


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

"""Detects operands that eager's kernel refuses although the meta function takes them, so that compiled code raises as eager does.

A dimension that a tensor has not: of `torch.cummin(x, -3)` of a tensor without dimensions the fake one says nothing, and rules take
dimensions modulo the rank. A layout: `aten.native_group_norm` of a transposed tensor. A divisor: of integers eager raises
where it is 0. A size that PyTorch's guards hold at 1 or more divides in a kernel, `places % x.shape[0]`; by one that may be 0 ATen divides.
An output padding of a transposed convolution that is as large as its stride and dilation.
"""

from functools import cache
from typing import Any

import torch
from torch.fx import Node

from mlirc.frontend.importer.empty_operands import may_be_zero
from mlirc.frontend.strides.dimension_order import channels_last, equal_where_walked, is_row_major
from mlirc.frontend.torch_compat.dynamo.trees import tree_leaves

aten = torch.ops.aten

REASON = "eager refuses its dimension, or the layout of its operand"
CONTIGUOUS = (aten.native_group_norm.default,)  # take rows, or channels last, of their first operand
BETWEEN = (aten.stack.default, aten.unsqueeze.default)  # count places between dimensions, one more than these
WHOLE = "input_sizes"  # the argument of gradients of views that has the sizes of the viewed tensor, which the dimension is one of
PADS = "eager refuses an output padding that is neither below the stride nor below the dilation"
ZERO_DIVISOR = "an integer division by a size that may be 0"
DIVISIONS = (
    *(aten.remainder.Tensor, aten.remainder.Scalar, aten.remainder.Scalar_Tensor),
    *(aten.fmod.Tensor, aten.fmod.Scalar),
    *(aten.floor_divide.default, aten.floor_divide.Scalar),
    *(aten.div.Tensor_mode, aten.div.Scalar_mode),
)


def refused(node: Node) -> bool:
    """Whether an argument is a dimension beyond the rank of the first tensor, or of what a gradient of a view is a gradient of, or that
    tensor is not contiguous and must be."""
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    if target in CONTIGUOUS:
        return not _is_contiguous(node.args[0])
    if not dimensions(target):
        return False
    given = [node.args[k] if k < len(node.args) else node.kwargs.get(name) for k, name in dimensions(target)]
    chosen = [d for d in tree_leaves(given) if type(d) is int]
    if not chosen or not node.args:
        return False
    if (sizes := _argument(node, WHOLE)) is not None:
        return not all(-len(sizes) <= d < len(sizes) for d in chosen)
    fakes = [x.meta.get("val") for x in tree_leaves(node.args[0]) if isinstance(x, Node)]
    ranks = [x.dim() for x in fakes if isinstance(x, torch.Tensor)]
    if not ranks:
        return False
    count = max(ranks) + 1 if target in BETWEEN else max(*ranks, 1)
    return not all(-count <= d < count for d in chosen)


def _argument(node: Node, name: str) -> Any:
    """The argument of that name, or None."""
    target: Any = node.target
    given = zip((a.name for a in target._schema.arguments), node.args, strict=False)
    return {**dict(given), **node.kwargs}.get(name)


def _is_contiguous(given: Any) -> bool:
    x = given.meta.get("val") if isinstance(given, Node) else None
    if not isinstance(x, torch.Tensor) or is_row_major(x.shape, x.stride()):
        return True
    return x.dim() in (4, 5) and equal_where_walked(x.shape, x.stride(), channels_last(x.shape))


def pads_too_much(node: Node) -> bool:
    """Whether a convolution is a transposed one, and an output padding is not known to be below its stride or dilation."""
    settings: Any = node.args[3:8]
    stride, _, dilation, transposed, more = settings
    count = max(map(len, (stride, dilation, more)))
    below = zip(*(list(x) * (count if len(x) == 1 else 1) for x in (more, stride, dilation)), strict=True)
    return bool(transposed) and not all(
        type(m) is int and (m == 0 or any(type(n) is int and m < n for n in up)) for m, *up in below
    )


@cache
def dimensions(target: torch._ops.OpOverload) -> tuple[tuple[int, str], ...]:
    """Positions and names of the arguments that are dimensions."""
    return tuple(
        (k, a.name) for k, a in enumerate(target._schema.arguments) if a.name in ("dim", "dims", "dim0", "dim1")
    )


def may_divide_by_zero(node: Node) -> bool:
    """Whether the call's results are integers, and its divisor is a symbol that may be 0 at some sizes that pass the guards."""
    if node.target not in DIVISIONS or len(node.args) < 2 or not isinstance(node.args[1], Node):
        return False
    divisor: Any = node.args[1].meta.get("val")
    result: Any = node.meta.get("val")
    if isinstance(divisor, torch.Tensor) or (isinstance(result, torch.Tensor) and result.dtype.is_floating_point):
        return False
    return not isinstance(divisor, torch.SymInt) or may_be_zero(divisor)

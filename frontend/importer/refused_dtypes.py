"""Detects dtypes, and numbers for a dtype, that a kernel refuses although its meta function accepts them, so that compiled code raises as eager does.

Asked of elementwise operators of integers, booleans and complex numbers, and of those of bits; of elementwise operators,
losses and softmaxes with floats of several dtypes; and of all operators with a number beyond a float dtype's range. The
operator itself is called once for each combination (strides/kernel_dtypes.py). Norms have a rule of their own
(need_dtypes_of_norms): what their meta functions say of statistics is not always so.
"""

import math
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_aggregate

from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.strides.kernel_dtypes import dtypes_of, dtypes_of_kernel, is_elementwise, may_be_tried
from mlirc.frontend.torch_compat.dynamo.trees import tree_leaves


def refused(node: Node) -> bool:
    """Whether eager's kernel raises for the dtypes and numbers of a call. Raises UnsupportedGraph where its results have other
    dtypes than the fake tensors promise: what follows in the graph relies on those."""
    target: Any = node.target
    fakes = [x.meta.get("val") for x in node.all_input_nodes]
    tensors = [x for x in fakes if isinstance(x, torch.Tensor)]
    beyond = _has_number_beyond(node, tensors)
    mixed = len({x.dtype for x in tensors if x.is_floating_point()}) > 1
    if not may_be_tried(target, tensors, any_operator=beyond):
        return False
    if not beyond and not mixed and not (is_elementwise(target) and _may_refuse(target, tensors)):
        return False
    args, kwargs = map_aggregate((node.args, node.kwargs), lambda x: x.meta.get("val") if isinstance(x, Node) else x)  # type: ignore[misc]
    found, promised = dtypes_of_kernel(target, args, kwargs), dtypes_of(node.meta.get("val"))
    if found is not None and found != promised:
        raise UnsupportedGraph(f"{target} gives {found} for operands of these dtypes, where {promised} is promised")
    return found is None


def _may_refuse(target: Any, tensors: list[torch.Tensor]) -> bool:
    """Kernels take all floats, but for those of bits."""
    return not all(x.is_floating_point() for x in tensors) or "bitwise" in target._schema.name


def _has_number_beyond(node: Node, tensors: list[torch.Tensor]) -> bool:
    """Whether a finite number of the call overflows a float dtype of its tensors: `clamp(x, 1e300)` of float32."""
    most = min((torch.finfo(x.dtype).max for x in tensors if x.is_floating_point()), default=math.inf)
    numbers = [x for x in tree_leaves((node.args, node.kwargs)) if isinstance(x, int | float)]
    return any(most < abs(x) < math.inf for x in numbers)

"""Detects dtypes, and numbers for a dtype, that a kernel refuses although its meta function accepts them, so that compiled code raises as eager does.

Asked of elementwise operators of integers, booleans and complex numbers, and of those of bits; of elementwise operators,
losses and softmaxes with floats of several dtypes; and of all operators with a number beyond a float dtype's range. The
operator itself is called once for each combination (strides/kernel_dtypes.py). Norms have a rule of their own
(need_dtypes_of_norms): what their meta functions say of statistics is not always so.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_aggregate

from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.strides.kernel_dtypes import dtypes_of, dtypes_of_kernel, is_elementwise, may_be_tried

LEAST = 240.0
"""The largest number of the float dtype with the smallest one, float8_e4m3fnuz: what is not larger overflows none."""


def refused(node: Node) -> bool:
    """Whether eager's kernel raises for the dtypes and numbers of a call. Raises UnsupportedGraph where its results have other
    dtypes than the fake tensors promise: what follows in the graph relies on those."""
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    fakes = [x.meta.get("val") for x in node.all_input_nodes]
    tensors = [x for x in fakes if isinstance(x, torch.Tensor)]
    beyond = _has_number_beyond(node, tensors)
    mixed = len({x.dtype for x in tensors if x.is_floating_point()}) > 1
    if not beyond and not mixed and not (_may_refuse(node, tensors) and is_elementwise(target)):
        return False
    if not may_be_tried(target, tensors, any_operator=beyond):
        return False
    args, kwargs = map_aggregate((node.args, node.kwargs), lambda x: x.meta.get("val") if isinstance(x, Node) else x)  # type: ignore[misc]
    found, promised = dtypes_of_kernel(target, args, kwargs), dtypes_of(node.meta.get("val"))
    if found is not None and found != promised:
        raise UnsupportedGraph(f"{target} gives {found} for operands of these dtypes, where {promised} is promised")
    return found is None


def _may_refuse(node: Node, tensors: list[torch.Tensor]) -> bool:
    """Kernels take all floats, but for those of bits and some special functions of half types, and numbers, but for booleans (`x - True`)."""
    target: Any = node.target
    floats = all(x.is_floating_point() for x in tensors)
    bits = any(word in target._schema.name for word in ("bitwise", "__and__", "__or__", "__xor__", "shift__"))
    special = target._schema.name.startswith("aten::special_") and any(x.dtype.itemsize == 2 for x in tensors)
    return not floats or bits or special or any(x is True or x is False for x in node.args)


def _has_number_beyond(node: Node, tensors: list[torch.Tensor]) -> bool:
    """Whether a finite number of the call overflows a float dtype of its tensors: `clamp(x, 1e300)` of float32."""
    large = [x for x in _numbers((node.args, node.kwargs)) if LEAST < abs(x) < math.inf]
    if not large:
        return False
    most = min((torch.finfo(x.dtype).max for x in tensors if x.is_floating_point()), default=math.inf)
    return any(most < abs(x) for x in large)


def _numbers(x: Any) -> Iterator[int | float]:
    """The numbers among a call's arguments."""
    if isinstance(x, (int, float)):
        yield x
    elif isinstance(x, (list, tuple)):
        for y in x:
            yield from _numbers(y)
    elif isinstance(x, dict):
        yield from _numbers(list(x.values()))

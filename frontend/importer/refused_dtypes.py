"""Dtypes that an operator's kernel refuses though its meta function takes them: what raises in eager raises in a compiled graph.

Asked of elementwise operators of integers, booleans and complex numbers, and of those of bits: the operator itself is called once for
each combination of dtypes, with one element.
"""

from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_aggregate

from mlirc.frontend.torch_compat.fake_tensors import unset_fake_temporarily

aten = torch.ops.aten

UNTAGGED = (aten.log_sigmoid_forward.default, aten.hardswish.default, aten.argmax.default, aten.argmin.default)
_known: dict[str, bool] = {}


def refused(node: Node) -> bool:
    """Whether eager's kernel on a CPU raises for the dtypes of a call."""
    target: Any = node.target
    if not _is_elementwise(target):
        return False
    fakes = [x.meta.get("val") for x in node.all_input_nodes]
    tensors = [x for x in fakes if isinstance(x, torch.Tensor)]
    if not tensors or any(x.device.type != "cpu" for x in tensors):
        return False
    if all(x.is_floating_point() for x in tensors) and "bitwise" not in target._schema.name:
        return False
    key = f"{target}{map_aggregate((node.args, node.kwargs), _shown)}"
    if key not in _known:
        _known[key] = _raises(node)
    return _known[key]


def _is_elementwise(target: Any) -> bool:
    if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
        return False
    if torch.Tag.nondeterministic_seeded in target.tags:
        return False
    return torch.Tag.pointwise in target.tags or target in UNTAGGED


def _shown(x: Any) -> Any:
    if isinstance(x, Node):
        value = x.meta.get("val")
        return f"{value.dtype}[{value.dim()}]" if isinstance(value, torch.Tensor) else type(value).__name__
    return x


def _one(x: Any) -> Any:
    value = x.meta.get("val") if isinstance(x, Node) else x
    if isinstance(value, torch.Tensor):
        return torch.ones((1,) * value.dim(), dtype=value.dtype)
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return {torch.SymInt: 1, torch.SymFloat: 1.0}.get(type(value), True)
    return value


def _raises(node: Node) -> bool:
    try:
        with unset_fake_temporarily(), torch.no_grad():
            args, kwargs = map_aggregate((node.args, node.kwargs), _one)  # type: ignore[misc]
            node.target(*args, **kwargs)  # type: ignore[operator]
    except Exception:
        return True
    return False

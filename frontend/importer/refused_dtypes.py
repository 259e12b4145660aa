"""Detects dtypes, and numbers for a dtype, that a kernel refuses although its meta function accepts them, so that compiled code raises as eager does.

Asked of elementwise operators of integers, booleans and complex numbers, and of those of bits; of elementwise operators,
losses and softmaxes with floats of several dtypes; and of all operators with a number beyond a float dtype's range. The
operator itself is called once for each combination: with one element, or, where it is not elementwise, with zeros of the
graph's own sizes, if they are few. Norms have a rule of their own (need_dtypes_of_norms): what their meta functions say of
statistics is not always so.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_aggregate

from mlirc.codegen.process.signal_handlers import raise_of_handler
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.torch_compat.dynamo.trees import tree_leaves
from mlirc.frontend.torch_compat.fake_tensors import unset_fake_temporarily

aten = torch.ops.aten

UNTAGGED = (
    aten.log_sigmoid_forward.default,
    aten.hardswish.default,
    aten.argmax.default,
    aten.argmin.default,
    aten.elu_backward.default,
    aten.hardshrink_backward.default,
    aten.hardtanh_backward.default,
    aten.leaky_relu_backward.default,
    aten.softplus_backward.default,
    aten.softshrink_backward.default,
)
WHOLE = ("loss", "softmax", "cross_entropy")  # in names of operators that are tried with whole tensors
MOST = 2**20  # elements of operands
_known: dict[str, list[torch.dtype] | None] = {}


def refused(node: Node) -> bool:
    """Whether eager's kernel raises for the dtypes and numbers of a call. Raises UnsupportedGraph where its results have other
    dtypes than the fake tensors promise: what follows in the graph relies on those."""
    target: Any = node.target
    if not _may_be_tried(target):
        return False
    elementwise = torch.Tag.pointwise in target.tags or target in UNTAGGED
    fakes = [x.meta.get("val") for x in node.all_input_nodes]
    tensors = [x for x in fakes if isinstance(x, torch.Tensor)]
    if not tensors or not {x.device.type for x in tensors} <= {"cpu", "cuda"}:
        return False
    beyond = _has_number_beyond(node, tensors)
    mixed = len({x.dtype for x in tensors if x.is_floating_point()}) > 1
    if not elementwise and not beyond and not (mixed and any(word in target._schema.name for word in WHOLE)):
        return False
    if not elementwise and sum(map(elements, tensors)) > MOST:
        return False
    if (
        not mixed
        and not beyond
        and all(x.is_floating_point() for x in tensors)
        and "bitwise" not in target._schema.name
    ):
        return False
    # a quotient of integers is a number of the default dtype
    key = f"{target} {torch.get_default_dtype()} {map_aggregate((node.args, node.kwargs), _shown if elementwise else _shown_whole)}"
    if key not in _known:
        _known[key] = _dtypes(node, _one if elementwise else _zeros)
    found, promised = _known[key], _dtypes_of(node.meta.get("val"))
    if found is not None and found != promised:
        raise UnsupportedGraph(f"{target} gives {found} for operands of these dtypes, where {promised} is promised")
    return found is None


def _may_be_tried(target: Any) -> bool:
    if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
        return False
    return torch.Tag.nondeterministic_seeded not in target.tags


def _has_number_beyond(node: Node, tensors: list[torch.Tensor]) -> bool:
    """Whether a finite number of the call overflows a float dtype of its tensors: `clamp(x, 1e300)` of float32."""
    most = min((torch.finfo(x.dtype).max for x in tensors if x.is_floating_point()), default=math.inf)
    numbers = [x for x in tree_leaves((node.args, node.kwargs)) if isinstance(x, int | float)]
    return any(most < abs(x) < math.inf for x in numbers)


def elements(x: torch.Tensor) -> int:
    """How many the tensor has where the graph was traced; too many where that is not known."""
    return math.prod(known(n) for n in x.shape)


def known(n: Any) -> int:
    """A size where the graph was traced."""
    if isinstance(n, int):
        return n
    return MOST + 1 if n.node.hint is None else int(n.node.hint)


def _shown(x: Any) -> Any:
    if isinstance(x, Node):
        value = x.meta.get("val")
        return (
            f"{value.dtype}[{value.dim()}] {value.device.type}"
            if isinstance(value, torch.Tensor)
            else type(value).__name__
        )
    return x


def _shown_whole(x: Any) -> Any:
    value = x.meta.get("val") if isinstance(x, Node) else x
    return (
        f"{value.dtype}{list(map(known, value.shape))} {value.device.type}"
        if isinstance(value, torch.Tensor)
        else _shown(x)
    )


def _zeros(x: Any) -> Any:
    value = x.meta.get("val") if isinstance(x, Node) else x
    if isinstance(value, torch.Tensor):
        return torch.zeros([known(n) for n in value.shape], dtype=value.dtype, device=value.device)
    return known(value) if isinstance(value, torch.SymInt) else _one(value)


def _one(x: Any) -> Any:
    value = x.meta.get("val") if isinstance(x, Node) else x
    if isinstance(value, torch.Tensor):
        return torch.ones((1,) * value.dim(), dtype=value.dtype, device=value.device)
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return {torch.SymInt: 1, torch.SymFloat: 1.0}.get(type(value), True)
    return value


def _dtypes(node: Node, operand: Callable[[Any], Any]) -> list[torch.dtype] | None:
    """Of the results; None where the call raises."""
    try:
        with unset_fake_temporarily(), torch.no_grad():
            args, kwargs = map_aggregate((node.args, node.kwargs), operand)  # type: ignore[misc]
            return _dtypes_of(node.target(*args, **kwargs))  # type: ignore[operator]
    except Exception as error:
        raise_of_handler(error)
        return None


def _dtypes_of(results: Any) -> list[torch.dtype]:
    return [x.dtype for x in tree_leaves(results) if isinstance(x, torch.Tensor)]

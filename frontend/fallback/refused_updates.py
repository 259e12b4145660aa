"""Runs a graph in eager that updates a tensor in place by a result that its dtype cannot hold, which eager refuses.

    a.mul_(2.5)  a of int64        RuntimeError: result type Float can't be cast to the desired output type Long

PyTorch's fake tensors take such an update for a cast, and so does the graph that AOTAutograd makes of it. The update itself is called with
one element in each operand. Only elementwise operators are asked: they draw no random numbers.
"""

import operator
from functools import cache
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_aggregate

from mlirc.codegen.process import background
from mlirc.codegen.process.signal_handlers import raise_of_handler
from mlirc.frontend.strides.kernel_dtypes import is_elementwise, made, one_element

OPERATORS = (
    operator.iadd,
    operator.isub,
    operator.imul,
    operator.itruediv,
    operator.ifloordiv,
    operator.imod,
    operator.ipow,
    operator.iand,
    operator.ior,
    operator.ixor,
    operator.ilshift,
    operator.irshift,
)
EXTREMES = {torch.sym_max: max, torch.sym_min: min}
REFUSED = "can't be cast to the desired output type"  # in what eager raises


def refused_update(gm: GraphModule) -> str | None:
    """The reason, where eager raises at an update of the graph of Dynamo's, or of a function that one of its operators takes."""
    graphs = (x.graph for x in gm.modules() if isinstance(x, GraphModule))
    nodes = (node for graph in graphs for node in graph.nodes if may_lose_values(node))
    return next(
        (f"eager refuses an update in place: {why}" for node in nodes if (why := refusal(node)) is not None), None
    )


def with_pythons_extremes(gm: GraphModule) -> GraphModule:
    """A graph that runs in eager, in which the larger of an integer and a float is the one or the other, as in Python: Dynamo's is a float, by
    which eager would refuse an update of integers that it allows."""
    changed = False
    for part in (x for x in gm.modules() if isinstance(x, GraphModule)):
        for node in part.graph.nodes:
            python: Any = EXTREMES.get(node.target) if node.op == "call_function" else None
            if python is not None and len({is_integer(value_of(x)) for x in node.args}) > 1:
                node.target, changed = python, True
        if changed:
            part.recompile()
    return gm


def is_integer(x: Any) -> bool:
    return isinstance(x, int | torch.SymInt)


def may_lose_values(node: Node) -> bool:
    """Whether a node updates tensors in place, elementwise, and operands are of another kind of number than a tensor that it may write:
    its first argument, or what follows `out=`."""
    if node.op not in ("call_function", "call_method") or not is_update(node):
        return False
    written: Any = node.kwargs.get("out", node.args[0] if node.args else None)
    values = map(value_of, written if isinstance(written, list | tuple) else [written])
    dtypes = [x.dtype for x in values if isinstance(x, torch.Tensor)]
    if not dtypes or all(x.is_complex for x in dtypes):
        return False
    if not all(x.is_floating_point or x.is_complex for x in dtypes):
        return True
    return any(kind_is_complex(value_of(x)) for x in (*node.all_input_nodes, *node.args, *node.kwargs.values()))


def is_update(node: Node) -> bool:
    target: Any = node.target
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if target in OPERATORS:
        return True
    in_place = name.endswith("_") and not name.endswith("__")
    if not in_place and "out" not in node.kwargs:
        return False
    return has_elementwise(name.removesuffix("_"))


@cache
def has_elementwise(name: str) -> bool:
    """Whether an overload of aten's operator of this name is elementwise, or takes lists of tensors."""
    packet = None if name.startswith("_foreach_") else getattr(torch.ops.aten, name, None)
    overloads = [] if packet is None else [getattr(packet, x) for x in packet.overloads()]
    return name.startswith("_foreach_") or any(map(is_elementwise, overloads))


def refusal(node: Node) -> str | None:
    """What the node's call raises of dtypes with one element in each operand."""
    args, kwargs = map_aggregate((node.args, node.kwargs), lambda x: one_element(value_of(x)))  # type: ignore[misc]
    return background.apart(raised, node.target, args, kwargs)


def raised(target: Any, args: Any, kwargs: Any) -> str | None:
    try:
        with torch.no_grad():
            args, kwargs = made((args, kwargs))
            call = getattr(args[0], target) if isinstance(target, str) else target
            call(*args[isinstance(target, str) :], **kwargs)
    except Exception as error:
        raise_of_handler(error)
        return str(error) if REFUSED in str(error) else None
    return None


def kind_is_complex(x: Any) -> bool:
    return x.is_complex() if isinstance(x, torch.Tensor) else isinstance(x, complex)


def value_of(x: Any) -> Any:
    return x.meta.get("example_value") if isinstance(x, Node) else x

"""The gradient of nearest upsampling by whole factors is a sum, not a scatter.

PyTorch traces upsampling as an index by places that a graph computes from positions: 0, 0, 1, 1, 2, 2, ... Its gradient adds each element to
its place, one after the other, at 3.5 ns an element on a CPU. Places that are known and repeat each index equally often say which
elements are added up.
"""

import math
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from mlirc.frontend.partition.activation_compression import Builder
from mlirc.frontend.torch_compat.fake_tensors import unset_fake_temporarily

aten = torch.ops.aten
ZEROS = (aten.new_zeros.default, aten.zeros.default, aten.zeros_like.default)
MOST = 1 << 16  # elements of a tensor of places


def sum_repeats(joint: GraphModule) -> None:
    """
    before:  %dx = _unsafe_index_put(zeros [N, C, H, W], [None, None, %rows, %columns], %dy, True)
    after:   %dx = sum(view(%dy, [N, C, H, k, W, l]), [3, 5])          where %rows is 0, ..., 0, 1, ..., 1, ..., each k times
    """
    for node in joint.graph.find_nodes(op="call_function", target=aten._unsafe_index_put.default):
        zeros, indices, values, accumulates = [*node.args, False][:4]
        if not accumulates or not isinstance(zeros, Node) or zeros.target not in ZEROS:
            continue
        shape, given = node.meta["val"].shape, values.meta["val"]  # type: ignore[union-attr]
        lead = len(shape) - len([x for x in indices if x is not None])  # type: ignore[union-attr]
        fits = list(indices[:lead]) == [None] * lead and given.dim() == len(shape) == len(indices)  # type: ignore[index, arg-type]
        if not fits or not all(isinstance(n, int) and n > 0 for n in (*shape[lead:], *given.shape[lead:])):
            continue
        with unset_fake_temporarily():
            repeats = [repeats_of(x, d, shape, given.shape) for d, x in enumerate(indices) if x is not None]  # type: ignore[arg-type]
        if all(repeats):
            replace(node, lead, [n for n in repeats if n])


def repeats_of(index: Any, d: int, shape: torch.Size, given: torch.Size) -> int | None:
    """How often each index of dimension `d` follows itself, where `index` has all in order; else None."""
    value = index.meta["val"]
    others = [n for k, n in enumerate((1,) * (len(shape) - value.dim()) + tuple(value.shape)) if k != d]
    if set(others) - {1} or given[d] % shape[d] != 0 or value.dtype not in (torch.int64, torch.int32):
        return None
    places = known(index, {})
    if places is None:
        return None
    repeats = given[d] // shape[d]
    expected = torch.arange(shape[d], dtype=places.dtype).repeat_interleave(repeats)
    return repeats if torch.equal(places.flatten(), expected) else None


def known(node: Any, values: dict[Node, torch.Tensor | None]) -> torch.Tensor | None:
    """What a node gives, where that is small and known; computed on a CPU."""
    if node in values:
        return values[node]
    values[node] = None
    value = node.meta.get("val")
    if (
        node.op != "call_function"
        or not isinstance(value, torch.Tensor)
        or not isinstance(node.target, torch._ops.OpOverload)
    ):
        return None
    if not all(isinstance(n, int) for n in value.shape) or math.prod(value.shape) > MOST:
        return None
    if node.target._schema.is_mutable or torch.Tag.nondeterministic_seeded in node.target.tags:
        return None
    operands = {x: known(x, values) for x in node.all_input_nodes}
    if any(x is None for x in operands.values()):
        return None
    args, kwargs = map_arg((node.args, node.kwargs), lambda x: operands[x])
    if "device" in kwargs:
        kwargs = kwargs | {"device": torch.device("cpu"), "pin_memory": False}
    made = node.target(*args, **kwargs)
    values[node] = made if isinstance(made, torch.Tensor) else None
    return values[node]


def replace(node: Node, lead: int, repeats: list[int]) -> None:
    result, values = node.meta["val"], node.args[2]
    b = Builder(node, node)
    sizes: list[Any] = [n if isinstance(n, int) else b.size(values, d) for d, n in enumerate(result.shape[:lead])]
    for n, count in zip(result.shape[lead:], repeats, strict=True):
        sizes += [n, count]
    made = b(aten.sum.dim_IntList, b(aten.view.default, values, sizes), [lead + 1 + 2 * k for k in range(len(repeats))])
    if made.meta["val"].stride() != result.stride():
        made = b(aten.clone.default, made, memory_format=torch.contiguous_format)
    if made.meta["val"].stride() == result.stride() and made.meta["val"].dtype == result.dtype:
        node.replace_all_uses_with(made)
        node.graph.erase_node(node)

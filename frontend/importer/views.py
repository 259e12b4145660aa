"""Imports view operators of ATen as `mlirc.view`: sizes, strides and offset from PyTorch's fake tensors, and the index map by operator."""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import TensorInfo
from mlirc.frontend.strides.dimension_order import viewed_strides

aten = torch.ops.aten


def dim(position: int) -> Int:
    return symbols.symbol(f"d{position}")


def reshape_map(source: Sequence[Int], result: Sequence[Int]) -> list[Int] | None:
    """The source's index for each index of the result, both in row-major logical order; None where no grouping of the sizes matches.

    Sizes are split into the smallest groups of equal product, so that [2, 128, 768] -> [256, 768] gives d0//128, d0 % 128, d1.
    """
    if 0 in (*source, *result):
        return None  # no element, no index
    ranges = {f"d{k}": n for k, n in enumerate(result)}
    index: list[Int] = [0] * len(source)
    i = j = 0
    while i < len(source) or j < len(result):
        i0, j0 = i, j
        a = source[i] if i < len(source) else 1
        b = result[j] if j < len(result) else 1
        i, j = min(i + 1, len(source)), min(j + 1, len(result))
        while a != b:
            if _smaller(a, b) and i < len(source):
                a, i = a * source[i], i + 1
            elif j < len(result):
                b, j = b * result[j], j + 1
            elif i < len(source):
                a, i = a * source[i], i + 1
            else:
                return None
        linear: Int = 0
        for k in range(j0, j):
            linear = linear * result[k] + (dim(k) if result[k] != 1 else 0)
        running: Int = 1
        for k in reversed(range(i0, i)):
            outermost = all(source[m] == 1 for m in range(i0, k))
            part = symbols.floordiv(linear, running, ranges)
            index[k] = 0 if source[k] == 1 else part if outermost else symbols.mod(part, source[k], ranges)
            running = running * source[k]
    return index


def _smaller(a: Int, b: Int) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    if isinstance(a, int) != isinstance(b, int):
        return isinstance(a, int)
    return symbols.known_nonnegative(b - a)


def _permute(source, result, x, dims):
    index: list[Int] = [0] * len(source)
    for position, d in enumerate(dims):
        index[d % len(source)] = dim(position)
    return index


def _transpose(source, result, x, dim0, dim1):
    order = list(range(len(source)))
    if order:
        a, b = dim0 % len(order), dim1 % len(order)
        order[a], order[b] = order[b], order[a]
    return _permute(source, result, x, order)


def _t(source, result, x):
    return _permute(source, result, x, reversed(range(len(source))))


def _expand(source, result, x, size, implicit=False):
    lead = len(result) - len(source)
    return [0 if n == 1 else dim(lead + d) for d, n in enumerate(source)]


def _slice(stride, offset, x, d=0, start=None, end=None, step=1):
    d %= len(stride)
    first = _first(stride[d], offset)
    return None if first is None else [dim(k) * step + first if k == d else dim(k) for k in range(len(stride))]


def _select(stride, offset, x, d, position):
    d %= len(stride)
    first = _first(stride[d], offset)
    return None if first is None else [first if k == d else dim(k if k < d else k - 1) for k in range(len(stride))]


def _first(stride: Int, offset: Int) -> Int | None:
    """The index at which a slice of a dimension starts, from the view's offset, because `start` may be negative or clamped."""
    if stride == 0:
        return 0  # every index is the same element
    return symbols.floordiv(offset, stride) if symbols.mod(offset, stride) == 0 else None


def _identity(source, result, *args, **kwargs):
    return [dim(k) for k in range(len(source))]


def _reshape(source, result, *args, **kwargs):
    return reshape_map(source, result)


MAPS: dict[Any, Callable[..., list[Int] | None]] = {
    aten.permute.default: _permute,
    aten.transpose.int: _transpose,
    aten.t.default: _t,
    aten.expand.default: _expand,
    aten.alias.default: _identity,
    aten.detach.default: _identity,
    aten.lift_fresh.default: _identity,
    aten.view.default: _reshape,
    aten._unsafe_view.default: _reshape,
    aten._reshape_alias.default: _reshape,
    aten.unsqueeze.default: _reshape,
    aten.squeeze.default: _reshape,
    aten.squeeze.dim: _reshape,
    aten.squeeze.dims: _reshape,
}
PARTS: dict[Any, Callable[..., list[Int] | None]] = {aten.slice.Tensor: _slice, aten.select.int: _select}
# no alias in their schema, yet their result is the operand's memory wherever its strides allow it
UNMARKED = (
    aten._unsafe_view.default,
    aten.unsafe_split.Tensor,
    aten.unsafe_split_with_sizes.default,
    aten.unsafe_chunk.default,
)
# reinterpret bits, or set flags that strided memory does not show: ATen calls that alias their operand
NOT_STRIDED = (
    aten.view.dtype,
    aten._conj.default,
    aten._neg_view.default,
    aten.view_as_real.default,
    aten.view_as_complex.default,
)
# their result is a copy of the operand's storage as it lies, with the operand's strides and offset in it
SCATTERS = (
    aten.as_strided_scatter.default,
    aten.select_scatter.default,
    aten.slice_scatter.default,
    aten.diagonal_scatter.default,
)


def is_view(target: Any) -> bool:
    """Whether each result of the operator is its first operand's memory with other sizes, strides and offset."""
    if target in UNMARKED:
        return True
    return isinstance(target, torch._ops.OpOverload) and target.is_view and target not in NOT_STRIDED


def is_refused(node: Node) -> bool:
    """Whether eager refuses a view, because its operand's memory has no strides for these sizes. A fake tensor has some that are wrong, then.

    With symbolic sizes it is not known, and not asked."""
    if node.target not in (aten.view.default, aten._unsafe_view.default):
        return False
    source, made = node.args[0].meta["val"], node.meta["val"]  # type: ignore[union-attr]
    numbers = (*source.shape, *source.stride(), *made.shape)
    return all(type(n) is int for n in numbers) and viewed_strides(source.shape, source.stride(), made.shape) is None


def viewed(node: Node) -> Node | None:
    """The node whose memory this node's result shares: the operand of a view, split or aliasing ATen call; None for any other node."""
    if node.op != "call_function":
        return None
    target: Any = node.target
    source = node.args[0] if node.args else None
    if target is operator.getitem:
        return viewed(source) if isinstance(source, Node) else None
    shows = target in UNMARKED or (isinstance(target, torch._ops.OpOverload) and target.is_view)
    return source if shows and isinstance(source, Node) else None


def shown_behind_a_number(node: Node) -> Node | None:
    """The tensor that an `as_strided` of one element reads, where the result has more elements: the one that the element was taken of.

    A view of the element alone would repeat it.
    """
    source: Any = node.args[0]
    if node.target is not aten.as_strided.default or source.meta["val"].shape:
        return None
    while source.op == "call_function" and source.target not in NOT_STRIDED and not source.meta["val"].shape:
        if (behind := viewed(source)) is None:
            break
        source = behind
    return source


def counts_from_storage(node: Node) -> bool:
    """Whether `as_strided` or `as_strided_copy` counts from the storage's start, which a graph does not know.

    No guard holds an input's storage offset, which may differ between calls. An empty tensor has no address.
    """
    if node.target not in (aten.as_strided.default, aten.as_strided_copy.default):
        return False
    source: Any = node.args[0]
    if 0 in source.meta["val"].shape:
        return True
    while (behind := source.args[0] if source.target in SCATTERS else viewed(source)) is not None:
        source = behind
    if not source.meta["val"].shape:  # nobody knows what memory lies behind it
        return True
    absolute = len(node.args) > 3 or "storage_offset" in node.kwargs
    return source.op != "call_function" and absolute


def index_map(
    target: Any, source: TensorInfo, result: TensorInfo, offset: Int, args: tuple, kwargs: dict
) -> list[Int] | None:
    """The operand's index for each index of the result (size expressions in d0, d1, ...); None where no expression gives it.

    `offset` is the distance, in elements, from the operand's first element to the result's.
    """
    if target in PARTS:
        return PARTS[target](source.stride, offset, *args, **kwargs)
    rule = MAPS.get(target)
    return rule(source.shape, result.shape, *args, **kwargs) if rule else None


def diagonal_start(offset: Int, info: TensorInfo) -> Int:
    """How far from its operand a diagonal begins: eager's without elements begins where the operand does, which its fake tensor does not say."""
    return offset if offset == 0 else offset * symbols.minimum(info.shape[-1], 1)


SPLITS = (
    aten.split.Tensor,
    aten.split_with_sizes.default,
    aten.chunk.default,
    aten.unsafe_split.Tensor,
    aten.unsafe_split_with_sizes.default,
    aten.unsafe_chunk.default,
)


def part_map(target: Any, source, result, args: tuple, kwargs: dict, start: Int) -> tuple[list[Int] | None, Int]:
    """The index map of one result of split, chunk or unbind, and the start of the next result along the dimension."""
    if target in SPLITS:
        d = (args[2] if len(args) > 2 else kwargs.get("dim", 0)) % len(source)
        index = [dim(k) + start if k == d else dim(k) for k in range(len(source))]
        return index, start + result[d]
    if target is aten.unbind.int:
        d = (args[1] if len(args) > 1 else kwargs.get("dim", 0)) % len(source)
        return [start if k == d else dim(k if k < d else k - 1) for k in range(len(source))], start + 1
    return None, start

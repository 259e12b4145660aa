"""Moves elements of complex tensors as pairs of real ones, which kernels fuse and write in place.

before:  %z = zeros([8, 9], complex64);  %s = slice_scatter(%z, %w, 1, 0, 6);  %i = fft_c2r(%s)
after:   %z = full([8, 9, 2], 0.0);  %s = slice_scatter(%z, view_as_real(%w), 1, 0, 6);  %i = fft_c2r(view_as_complex(%s))

What is written to slices of a complex tensor is the whole tensor, copied, in a functional graph. A chain is rewritten where it makes more
copies than it has ends, or a clone. parts.py has chains that compute; of sums and negatives ATen's kernels give other signs of zeros
than real ones.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node

from mlirc.frontend.capture.complex.chains import PART, VIEWS, ChainRewriter, rewrite_chains
from mlirc.frontend.strides.dimension_order import row_major
from mlirc.frontend.strides.dimension_order import same as same_size

aten = torch.ops.aten


def pair_complex(gm: GraphModule) -> None:
    """Rewrites an ATen graph in place."""
    rewrite_chains(gm, moves, may_end, gains, PairsRewriter)


def moves(node: Node) -> bool:
    """Whether a rule has it: all tensors are complex ones of one dtype, in the memory of a CPU as they are."""
    value = node.meta.get("val")
    if node.target not in RULES or not isinstance(value, torch.Tensor):
        return False
    values: list[Any] = [value, *(x.meta.get("val") for x in node.all_input_nodes)]
    tensors = [x for x in values if isinstance(x, torch.Tensor)]
    if len({x.dtype for x in tensors}) != 1 or value.dtype not in PART:
        return False
    if not all(x.layout is torch.strided and x.device.type == "cpu" for x in tensors):
        return False
    if any(x.is_conj() or x.is_neg() for x in tensors):
        return False
    if node.kwargs and node.target not in ZEROS and node.target is not aten.clone.default:
        return False  # rules take what stands by position
    return node.target not in ALLOWED or ALLOWED[node.target](node)


def may_end(node: Node, chosen: set[Node]) -> bool:
    """Whether others may read the node's result, which is then made row-major, in memory of its own."""
    return all(user in chosen for user in node.users) or (node.target not in VIEWS and is_as_new(node.meta["val"]))


def is_as_new(x: torch.Tensor) -> bool:
    """Whether its strides are those of a new row-major tensor, in dimensions of size 1 too."""
    empty = any(isinstance(n, int) and n == 0 for n in x.shape)
    return not empty and all(map(same_size, x.stride(), row_major(x.shape)))


def gains(chain: list[Node]) -> bool:
    inside = set(chain)
    read = {x for node in chain for x in complex_operands(node) if x not in inside}
    written = [node for node in chain if any(user not in inside for user in node.users)]
    copied = sum(0 if node.target in VIEWS else 1 + (node.target in TWICE) for node in chain)
    if any(node.target is aten.clone.default for node in chain):
        return (
            True  # ATen copies what lies transposed one number after another, and its format is for Python alone to say
        )
    return copied > sum(x.target is not aten.view_as_complex.default for x in read) + len(written)


def complex_operands(node: Node) -> list[Node]:
    """The tensors whose elements the node reads."""
    if node.target in ZEROS:
        return []
    return [x for x in node.all_input_nodes if isinstance(x.meta.get("val"), torch.Tensor)]


class PairsRewriter(ChainRewriter):
    def one(self, node: Node) -> None:
        made = self.known[node] = RULES[node.target](self, node, *node.args)
        if self.is_read_outside(node):
            self.give_away(node, self.as_new(made))

    def as_new(self, x: Node) -> Node:
        return x if is_as_new(x.meta["val"]) else self.row_major(x)

    def pairs(self, x: Node) -> Node:
        """A real tensor with a dimension of 2 more, the last."""
        if x not in self.known:
            made_of_pairs = x.target is aten.view_as_complex.default
            self.known[x] = x.args[0] if made_of_pairs else self.call(aten.view_as_real.default, x)  # pyright: ignore[reportArgumentType]
        return self.known[x]


# ---- the last dimension, with the parts of its numbers in it: a mask of its elements then holds for whole vectors


def flat(rewrite: PairsRewriter, x: Node) -> Node:
    *sizes, last = x.meta["val"].shape
    return rewrite.call(aten.view.default, rewrite.as_new(rewrite.pairs(x)), [*sizes, 2 * last])


def unflat(rewrite: PairsRewriter, x: Node) -> Node:
    *sizes, last = x.meta["val"].shape
    return rewrite.call(aten.view.default, x, [*sizes, last // 2, 2])


def bounds_of(node: Node, sizes: Any, dim: int, rest: Any) -> tuple[int, int] | None:
    """Where a slice of the last dimension begins and ends in a flat tensor; None for other slices, steps and symbols."""
    start, end, step = (*rest, *(None, None, None)[len(rest) :])
    known = all(type(n) is int for n in (*sizes, start or 0, end or 0))
    if node.target not in SLICES or step not in (None, 1) or not known or dim % len(sizes) != len(sizes) - 1:
        return None
    first, last, _ = slice(start, end).indices(sizes[-1])
    return 2 * first, 2 * max(first, last)


def rank(x: Node) -> int:
    return x.meta["val"].dim()


def same(rewrite: PairsRewriter, node: Node, *args: Any) -> Node:
    """The operator itself, without dimensions among its arguments."""
    pairs = [rewrite.pairs(x) if is_tensor(x) else x for x in args]
    return rewrite.call(node.target, *pairs, **node.kwargs)


def is_tensor(x: Any) -> bool:
    return isinstance(x, Node) and isinstance(x.meta.get("val"), torch.Tensor)


def along(rewrite: PairsRewriter, node: Node, x: Node, dim: int = 0, *rest: Any) -> Node:
    extent = rank(x) + (node.target is aten.unsqueeze.default)
    return rewrite.call(node.target, rewrite.pairs(x), dim % extent, *rest)


def scattered(rewrite: PairsRewriter, node: Node, x: Node, source: Node, dim: int = 0, *rest: Any) -> Node:
    bounds = bounds_of(node, x.meta["val"].shape, dim, rest)
    if bounds:
        return unflat(rewrite, rewrite.call(node.target, flat(rewrite, x), flat(rewrite, source), rank(x) - 1, *bounds))
    return rewrite.call(node.target, rewrite.pairs(x), rewrite.pairs(source), dim % rank(x), *rest)


def grown(rewrite: PairsRewriter, node: Node, x: Node, sizes: Any, dim: int, *rest: Any) -> Node:
    """slice_backward and select_backward."""
    bounds = bounds_of(node, sizes, dim, rest)
    if bounds:
        whole = [*sizes[:-1], 2 * sizes[-1]]
        return unflat(rewrite, rewrite.call(node.target, flat(rewrite, x), whole, rank(x) - 1, *bounds, 1))
    return rewrite.call(node.target, rewrite.pairs(x), [*sizes, 2], dim % rank(node), *rest)


def sized(rewrite: PairsRewriter, node: Node, x: Node, sizes: Any) -> Node:
    pairs = rewrite.pairs(x)
    return rewrite.call(node.target, rewrite.as_new(pairs) if node.target is aten.view.default else pairs, [*sizes, 2])


def permuted(rewrite: PairsRewriter, node: Node, x: Node, dims: Any) -> Node:
    return rewrite.call(node.target, rewrite.pairs(x), [*(dim % rank(x) for dim in dims), rank(x)])


def joined(rewrite: PairsRewriter, node: Node, tensors: Any, dim: int = 0) -> Node:
    return rewrite.call(node.target, [rewrite.pairs(x) for x in tensors], dim % rank(node))


def rolled(rewrite: PairsRewriter, node: Node, x: Node, shifts: Any, dims: Any = ()) -> Node:
    return rewrite.call(node.target, rewrite.pairs(x), shifts, [dim % rank(x) for dim in dims])


def padded(rewrite: PairsRewriter, node: Node, x: Node, pad: Any, *value: Any) -> Node:
    if all(type(n) is int for n in (*x.meta["val"].shape, *pad)):
        before, behind, *rest = pad
        whole = [2 * before, 2 * behind, *rest]
        return unflat(rewrite, rewrite.call(node.target, flat(rewrite, x), whole, 0.0))
    return rewrite.call(node.target, rewrite.pairs(x), [0, 0, *pad], 0.0)


def zeros(rewrite: PairsRewriter, node: Node, sizes: Any) -> Node:
    value = node.meta["val"]
    return rewrite.call(aten.full.default, [*sizes, 2], 0.0, dtype=PART[value.dtype], device=value.device)


ZEROS = {aten.zeros.default, aten.new_zeros.default, aten.zeros_like.default, aten.new_empty_strided.default}
SLICES = {aten.slice_scatter.default, aten.slice_backward.default}
TWICE = {aten.slice_backward.default, aten.select_backward.default}  # write zeros, then a part of these
TYPE = {"dtype", "layout", "device"}
ROW_MAJOR = (None, torch.contiguous_format, torch.preserve_format)
RULES: dict[Any, Callable[..., Node]] = {
    **dict.fromkeys([aten.view.default, aten.expand.default], sized),
    aten.permute.default: permuted,
    **dict.fromkeys([aten.unsqueeze.default, aten.squeeze.dim, aten.select.int, aten.slice.Tensor], along),
    **dict.fromkeys([aten.clone.default, aten.copy.default], same),
    **dict.fromkeys([aten.slice_scatter.default, aten.select_scatter.default], scattered),
    **dict.fromkeys([aten.slice_backward.default, aten.select_backward.default], grown),
    aten.cat.default: joined,
    aten.roll.default: rolled,
    aten.constant_pad_nd.default: padded,
    aten.zeros.default: zeros,
    aten.new_zeros.default: lambda rewrite, node, x, sizes: zeros(rewrite, node, sizes),
    aten.new_empty_strided.default: lambda rewrite, node, x, sizes, strides: zeros(rewrite, node, sizes),
    aten.zeros_like.default: same,
}
ALLOWED: dict[Any, Callable[[Node], bool]] = {
    aten.clone.default: lambda node: node.kwargs.get("memory_format") in ROW_MAJOR,
    aten.copy.default: lambda node: (
        len(node.args) == 2 and all(map(is_tensor, node.args))
    ),  # a number is no pair of itself
    aten.zeros_like.default: lambda node: node.kwargs.get("memory_format") in ROW_MAJOR and not set(node.kwargs) & TYPE,
    aten.cat.default: lambda node: len({rank(x) for x in node.all_input_nodes if is_tensor(x)}) == 1,
    aten.roll.default: lambda node: len(node.args) > 2 and bool(node.args[2]),
    aten.constant_pad_nd.default: lambda node: not any(node.args[2:]),
    aten.squeeze.dim: lambda node: node.args[0].meta["val"].dim() > 0,  # pyright: ignore[reportAttributeAccessIssue,reportOptionalMemberAccess]
}
"""Beside an operator, which of its calls a rule has."""

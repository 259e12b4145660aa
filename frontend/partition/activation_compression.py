"""Compresses what a forward graph saves for its backward graph on a GPU: PyTorch's partitioner, which counts bytes, saves the small
form, and the backward graph computes the rest from it.

    the index that a max_pool took     its place in the window: 1 byte, not 8
    what a relu gave                   whether it is 0: 1 byte, where nothing but the relu's gradient needs it

An input of the graph is saved as it is: autograd's node of the backward graph is connected to the inputs that it saves, and raises
PyTorch's error where a gradient's own gradient is asked for. Without that connection the answer would be that there is none.
"""

import math
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node

from mlirc.frontend.partition import recomputation

aten = torch.ops.aten
MOST = 128  # places in a window that 8 bits number
POOLS = {  # the gradient's arguments (grad, x, window, stride, padding, dilation, ceil_mode, index)
    aten.max_pool2d_with_indices_backward.default: aten.max_pool2d_with_indices.default,
}


def save_less(joint: GraphModule) -> None:
    """Rewrites a joint graph."""
    for backward, forward in POOLS.items():
        for node in joint.graph.find_nodes(op="call_function", target=backward):
            save_places(node, forward)
    for node in joint.graph.find_nodes(op="call_function", target=aten.threshold_backward.default):
        save_mask(node)


def save_places(backward: Node, forward: OpOverload) -> None:
    """
    before:  %dx = max_pool2d_with_indices_backward(%grad, %x, ..., %index)
    after:   %place = the row and the column of %index in the window, as int8
             %dx = max_pool2d_with_indices_backward(%grad, zeros like %x, ..., %place as an index)

    Nothing else uses %index: another use would have it saved beside.
    """
    index: Any = backward.args[-1]
    made: Any = index.args[0]
    value, x = index.meta["val"], backward.args[1]
    if made.target is not forward or len(index.users) != 1 or not isinstance(x, Node) or shows_input(x):
        return
    lists = [list(given) for given in backward.args[2:6]]  # type: ignore[union-attr, arg-type]
    window, stride, padding, dilation = [given * 2 if len(given) == 1 else given for given in lists]
    sizes = [*value.shape, *x.meta["val"].shape]
    known = all(isinstance(n, int) and n > 0 for n in sizes)
    if not recomputation.is_on_gpu(value) or not known or math.prod(window) > MOST:
        return
    (rows, columns), width = value.shape[-2:], sizes[-1]

    def starts(b: Builder, dtype: torch.dtype) -> tuple[Node, Node]:
        """The first row and the first column of each window."""
        top = b.starts(rows, (stride or window)[0], padding[0], dtype)
        return b(aten.view.default, top, [rows, 1]), b.starts(columns, (stride or window)[1], padding[1], dtype)

    b = Builder(index.next, index)
    top, left = starts(b, torch.int64)
    row = b.divided(b(aten.sub.Tensor, b.divided(index, width), top), dilation[0])
    column = b.divided(b(aten.sub.Tensor, b(aten.remainder.Scalar, index, width), left), dilation[1])
    place = b(aten.add.Tensor, b(aten.mul.Scalar, row, window[1]), column)
    saved = b(aten._to_copy.default, place, dtype=torch.int8)
    b = Builder(backward, backward)
    narrow = torch.int32 if math.prod(sizes[-2:]) < 1 << 31 else torch.int64  # a GPU computes 64 bits in several steps
    again = b(aten._to_copy.default, saved, dtype=narrow)
    top, left = starts(b, narrow)
    row = b(aten.add.Tensor, b(aten.mul.Scalar, b.divided(again, window[1]), dilation[0]), top)
    column = b(aten.add.Tensor, b(aten.mul.Scalar, b(aten.remainder.Scalar, again, window[1]), dilation[1]), left)
    wide = b(aten._to_copy.default, b(aten.add.Tensor, b(aten.mul.Scalar, row, width), column), dtype=torch.int64)
    backward.replace_input_with(index, wide)
    image = x.meta["val"]  # of which the gradient needs sizes alone
    backward.replace_input_with(x, b(aten.full.default, [*image.shape], 0.0, dtype=image.dtype, device=image.device))


def save_mask(backward: Node) -> None:
    """
    before:  %dx = threshold_backward(%grad, %y, 0)                     %y: what a relu gave
    after:   %none = %y <= 0    %dx = where(%none, 0, %grad)            of which %none is saved, if %y is not for another reason
    """
    grad, y, threshold = backward.args
    if not isinstance(grad, Node) or not isinstance(y, Node) or shows_input(y):
        return
    gradient, value = grad.meta["val"], y.meta["val"]
    if not recomputation.is_on_gpu(value) or gradient.dtype != value.dtype or not value.dtype.is_floating_point:
        return
    none = Builder(y.next, y)(aten.le.Scalar, y, threshold)
    b = Builder(backward, backward)
    zero = b(aten.full.default, [], 0.0, dtype=value.dtype, device=value.device)
    backward.replace_all_uses_with(b(aten.where.self, none, zero, grad))
    backward.graph.erase_node(backward)


def shows_input(node: Node) -> bool:
    """Whether it is an input of the graph, or a view of one."""
    from mlirc.frontend.importer.views import viewed  # needs MLIR, which a warm start does not import

    base: Node | None = node
    while base is not None and base.op != "placeholder":
        base = viewed(base)
    return base is not None


class Builder:
    """Writes nodes before the node `at`, of which is known what is known of the node `like`."""

    def __init__(self, at: Node, like: Node):
        self.at, self.like = at, like

    def __call__(self, target: OpOverload, *args: Any, **options: Any) -> Node:
        with self.at.graph.inserting_before(self.at):
            return recomputation.call(self.like, target, *args, **options)

    def size(self, x: Any, dim: int) -> Node:
        """A size that is a symbol."""
        with self.at.graph.inserting_before(self.at):
            made = self.at.graph.call_function(aten.sym_size.int, (x, dim))
        made.meta["val"] = x.meta["val"].shape[dim]
        return made

    def divided(self, x: Node, number: int) -> Node:
        return x if number == 1 else self(aten.div.Scalar_mode, x, number, rounding_mode="floor")

    def starts(self, count: int, stride: int, padding: int, dtype: torch.dtype) -> Node:
        """The indices at which windows begin along a dimension."""
        number = self(aten.arange.default, count, device=self.like.meta["val"].device, dtype=dtype)
        return self(aten.sub.Scalar, self(aten.mul.Scalar, number, stride), padding)

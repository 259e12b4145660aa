"""Gradients of reflection and replication pads: an element of the image asks the places around it that show it, one dimension after another.

before:  replication_pad1d_backward(%grad: [8, 13], %x: [8, 10], [1, 2])
after:   %grad[:, 1:11], and to its first column %grad[:, 0:1].sum(1) is added, to its last %grad[:, 11:13].sum(1)
"""

from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ext, ir
from mlirc.dialects.core.dialect import Op, attribute_value, create, imports
from mlirc.dialects.core.graph_builder import NotOurs
from mlirc.dialects.core.import_arguments import need_floats
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, opmath, type_of
from mlirc.dialects.ops.movement.concat_pad import both, constant_pad
from mlirc.dialects.ops.movement.reindex import places

aten = torch.ops.aten


class UnpadReflected(Op, name="unpad_reflected", traits=[ext.Pure]):
    """The gradient of a reflection pad along one dimension: `low` elements before the image and `high` after it; a negative number cuts off.

    x      [..., low + n + high, ...]
    out    [..., n, ...]: the sum of the places that show an element, which are at most three
    """

    x: ext.Operand[Any]
    dim: Any
    low: Any
    high: Any
    out: ext.Result[Any]

    @staticmethod
    def kernel(make, op):
        x, info = op.operands[0], info_of(op.results[0])
        dim, low, high = (attribute_value(op.attributes[name]) for name in ("dim", "low", "high"))
        k = make(info.shape, label="unpad_reflected")
        at, n, padded = k.dims[dim], info.shape[dim], info_of(x).shape[dim]
        parts: list[tuple[Int, Int, Int]] = [(at + low, 0, padded)]  # a place, and the range that it has to be in
        if low > 0:
            parts.insert(
                0, (low - at, 0, symbols.minimum(low, padded))
            )  # the mirror, which shows the first element once
        if high > 0:
            parts.append((low + 2 * (n - 1) - at, low + n, padded))
        total = k.constant(0.0, opmath(info.dtype))  # to which -0.0 is added
        for place, first, end in parts:
            mask = both(k, k.ge(k.size(place), k.size(first)), k.lt(k.size(place), k.size(end)))
            total = k.add(total, k.read(x, [place if d == dim else i for d, i in enumerate(k.dims)], mask=mask))
        return k.finish([(total, k.dims, info)])


@imports(
    aten.reflection_pad1d_backward.default,
    aten.reflection_pad2d_backward.default,
    aten.reflection_pad3d_backward.default,
)
def reflection_pad_backward(g, grad, x, padding):
    def unpadded(grad: ir.Value, dim: int, n: Int, low: int, high: int) -> ir.Value:
        info = info_of(grad)
        shape = (*info.shape[:dim], n, *info.shape[dim + 1 :])
        result = type_of(TensorInfo(opmath(info.dtype), shape, device=info.device))
        return create("unpad_reflected", [grad], [result], {"dim": dim, "low": low, "high": high}).out

    return each_dimension(grad, x, padding, unpadded)


@imports(
    aten.replication_pad1d_backward.default,
    aten.replication_pad2d_backward.default,
    aten.replication_pad3d_backward.default,
)
def replication_pad_backward(g, grad, x, padding):
    def unpadded(grad: ir.Value, dim: int, n: Int, low: int, high: int) -> ir.Value:
        info, left = info_of(grad), n + min(low, 0) + min(high, 0)
        if not symbols.known_nonnegative(left):
            raise NotOurs("the gradient of a pad that cuts off more than the image has")
        inside = g.narrow(grad, dim, max(low, 0), left)
        if min(low, high) < 0:  # such a pad cuts off, and what it cut off has no gradient
            inside = constant_pad(g, inside, [0, 0] * (info.rank - 1 - dim) + [max(-low, 0), max(-high, 0)])
        total = g.add(g.cast(inside, opmath(info.dtype)), 0.0)  # eager's sum begins with 0.0
        place = g.iota((n, *(1,) * (info.rank - 1 - dim)), places(1)[0])
        for count, start, edge in ((low, 0, 0), (high, low + n, n - 1)):
            if count > 0:
                shown = g.reduce("sum", g.narrow(grad, dim, start, count), (dim,), True, opmath(info.dtype))
                total = g.add(total, g.select(g.eq(place, g.size(edge)), shown, 0.0))
        return total

    return each_dimension(grad, x, padding, unpadded)


def each_dimension(grad: ir.Value, x: ir.Value, padding: list[Int], unpadded: Any) -> ir.Value:
    """`padding` is before and after the last dimension, before and after the one before it, and so on."""
    need_floats(grad, x)
    if not all(isinstance(n, int) for n in padding):
        raise NotOurs("the gradient of a pad of symbolic size")
    info = info_of(grad)
    if info.rank > 3 and info.stride[1] == 1 and info.shape[1] != 1:
        raise NotOurs("the gradient of a pad of channels-last images: ATen adds whole pixels")
    shape = info_of(x).shape
    for k in range(len(padding) // 2):
        dim, (low, high) = len(shape) - 1 - k, padding[2 * k : 2 * k + 2]
        if low or high:
            grad = unpadded(grad, dim, shape[dim], low, high)
    return grad

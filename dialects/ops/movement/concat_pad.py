"""Concatenation and padding: cat, stack, constant padding, and the functional forms of writing into a part.

Each is one kernel that reads the parts where they lie, under masks.
"""

from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ext, ir
from mlirc.dialects.core.dialect import Op, attribute_value, create, imports
from mlirc.dialects.core.graph_builder import NotOurs, constant_text, read_constant
from mlirc.dialects.core.import_arguments import dimension, need_fits, need_kernel_dtypes, need_shape, on_device
from mlirc.dialects.core.kernel_forms import operand
from mlirc.dialects.core.symbols import Expr, Int, known_nonnegative, symbol
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, type_of
from mlirc.dialects.ops.movement.reindex import places, reindex

aten = torch.ops.aten


class Concat(Op, traits=[ext.Pure]):
    """The operands one after the other along `dim`. Same dtype, same other sizes."""

    @staticmethod
    def kernel(make, op):
        info, dim = info_of(op.results[0]), attribute_value(op.attributes["dim"])
        k = make(info.shape, label="cat")
        at = k.size(k.dims[dim])
        parts, masks = [], []
        start = 0
        inside = None  # whether `at` is at the start of the part or past it; None: it is
        for position, x in enumerate(op.operands):
            end = start + info_of(x).shape[dim]
            last = position == len(op.operands) - 1
            before_end = None if last else k.lt(at, k.size(end))
            mask = before_end if inside is None else inside if last else k.logical_and(inside, before_end)
            map_ = [d - start if e == dim else d for e, d in enumerate(k.dims)]
            parts.append(k.read(x, map_, mask=mask))
            masks.append(before_end)
            inside = None if last else k.ge(at, k.size(end))
            start = end
        value = parts.pop()
        masks.pop()
        for part, mask in zip(reversed(parts), reversed(masks), strict=True):
            value = k.select(mask, part, value)
        return k.finish([(value, k.dims, info)])


class Concat2(Concat, name="cat2"):
    x: ext.Operand[Any]
    y: ext.Operand[Any]
    dim: Any
    out: ext.Result[Any]


class Concat3(Concat, name="cat3"):
    x: ext.Operand[Any]
    y: ext.Operand[Any]
    z: ext.Operand[Any]
    dim: Any
    out: ext.Result[Any]


class Concat4(Concat, name="cat4"):
    x: ext.Operand[Any]
    y: ext.Operand[Any]
    z: ext.Operand[Any]
    w: ext.Operand[Any]
    dim: Any
    out: ext.Result[Any]


class Pad(Op, name="pad", traits=[ext.Pure]):
    """x with `value` around it: `low` is how much goes before each dimension, "0, 2"; a negative one crops."""

    x: ext.Operand[Any]
    low: ir.StringAttr
    value: ir.StringAttr
    out: ext.Result[Any]

    @staticmethod
    def kernel(make, op):
        x, info = op.operands[0], info_of(op.results[0])
        low = symbols.parse_list(attribute_value(op.attributes["low"]))
        k = make(info.shape, label="pad")
        map_ = [d - before for d, before in zip(k.dims, low, strict=True)]
        mask = None
        for at, before, size, padded in zip(map_, low, info_of(x).shape, info.shape, strict=True):
            if not known_nonnegative(before * -1):
                mask = both(k, mask, k.ge(k.size(at), 0))
            if not known_nonnegative(size + before - padded):
                mask = both(k, mask, k.lt(k.size(at), k.size(size)))
        value = k.read(x, map_, mask=mask)
        if mask is not None:
            value = k.select(
                mask, value, k.constant(read_constant(attribute_value(op.attributes["value"])), info.dtype)
            )
        return k.finish([(value, k.dims, info)])


class SliceScatter(Op, name="slice_scatter", traits=[ext.Pure]):
    """x, in which x[start], x[start + step], ... along `dim` are the elements of `src`."""

    x: ext.Operand[Any]
    src: ext.Operand[Any]
    dim: Any
    start: ir.StringAttr
    step: ir.StringAttr
    out: ext.Result[Any]

    @staticmethod
    def kernel(make, op):
        x, src = op.operands
        info, dim = info_of(x), attribute_value(op.attributes["dim"])
        start, step = (symbols.parse(attribute_value(op.attributes[name])) for name in ("start", "step"))
        k = make(info.shape, label="slice_scatter")
        distance, reach = k.dims[dim] - start, info_of(src).shape[dim] * step
        mask = k.lt(k.size(distance), k.size(reach))
        if start != 0:
            mask = both(k, mask, k.ge(k.size(distance), 0))
        if step != 1:
            mask = both(k, mask, k.eq(k.size(symbols.mod(distance, step)), 0))
        map_ = [symbols.floordiv(distance, step) if d == dim else at for d, at in enumerate(k.dims)]
        value = k.select(mask, k.read(src, map_, mask=mask), operand(k, x, k.dims))
        return k.finish([(value, k.dims, info_of(op.results[0]))])


def both(k, mask, other):
    """Where `mask` and `other` are both true; a `mask` of None is true everywhere."""
    return other if mask is None else k.logical_and(mask, other)


@imports(aten.cat.default)
def cat(g, tensors, dim=0):
    dtype = g.out.dtype
    need_kernel_dtypes(dtype, *tensors)
    # an empty 1-d tensor goes with any shape: PyTorch skips it
    tensors = [g.cast(x, dtype) for x in tensors if info_of(x).shape != (0,) or g.out.rank == 1]
    return concatenate(g, tensors, dimension(dim, g.out.rank))


@imports(aten.stack.default)
def stack(g, tensors, dim=0):
    dtype = g.out.dtype
    need_kernel_dtypes(dtype, *tensors)
    dim = dimension(dim, g.out.rank)
    return concatenate(g, [g.unsqueeze(g.cast(x, dtype), dim) for x in tensors], dim)


def concatenate(g, tensors, dim):
    """mlirc.cat2 to cat4 of tensors of one dtype; NotOurs for more of them."""
    if len(tensors) == 1:
        return g.copy(tensors[0])
    info = info_of(tensors[0])
    total = sum((info_of(x).shape[dim] for x in tensors[1:]), info.shape[dim])
    shape = (*info.shape[:dim], total, *info.shape[dim + 1 :])
    if (turn := cyclic_parts(tensors, dim)) is not None:
        whole, first = turn
        map_: list = places(info.rank)
        map_[dim] = symbols.mod(map_[dim] + first, info_of(whole).shape[dim])
        return reindex(whole, shape, map_)
    if not 2 <= len(tensors) <= 4:
        raise NotOurs(f"a concatenation of {len(tensors)} tensors: copying them one by one is faster than masks")
    result = type_of(TensorInfo(info.dtype, shape, device=info.device))
    return create(f"cat{len(tensors)}", tensors, [result], {"dim": dim}).out


def cyclic_parts(tensors, dim):
    """The tensor that the operands are parts of, and where in it the first one begins; None where one does not begin where the one before it
    ends. The end of the tensor is its beginning.

    before:  cat((x[6:], x, x[:3]))      x: [8]
    after:   x at (d0 + 6) mod 8

    The size is a number: processors have no instruction for a vector's remainders of a symbol.
    """
    for whole in (tensors[0], viewed(tensors[0])):
        starts = [None if whole is None else start_in(whole, x, dim) for x in tensors]
        if None in starts:
            continue
        size = info_of(whole).shape[dim]
        if not isinstance(size, int):
            continue
        ends = [start + info_of(x).shape[dim] for x, start in zip(tensors, starts, strict=True)]
        if size != 0 and all(symbols.mod(a - b, size) == 0 for a, b in zip(starts[1:], ends, strict=False)):
            return whole, starts[0]
    return None


def start_in(whole, x, dim):
    """Where `x`, a part of `whole` along `dim`, begins there; None where it is no such part."""
    if x == whole:
        return 0
    of = viewed(x)
    if of is None or of != whole:
        return None
    index = symbols.parse_list(attribute_value(x.owner.attributes["map"]))
    plain = places(info_of(x).rank)
    if len(index) != len(plain) or any(i != d for k, (i, d) in enumerate(zip(index, plain, strict=True)) if k != dim):
        return None
    start = index[dim] - plain[dim]
    return None if symbols.free_symbols(start) & {str(d) for d in plain} else start


def viewed(x):
    """The operand of a view; None for another value."""
    if isinstance(x.owner, ir.Block) or x.owner.operation.name != "mlirc.view":
        return None
    return x.owner.operands[0]


@imports(aten.constant_pad_nd.default)
def constant_pad(g, x, pad, value=0):
    """`pad` is before and after the last dimension, before and after the one before it, and so on."""
    need_kernel_dtypes(x)
    if isinstance(value, (ir.Value, Expr)):
        raise NotOurs("padding with a number that is an input")
    info = info_of(x)
    need_fits(value, info.dtype)
    low, shape = [0] * info.rank, list(info.shape)
    for k in range(len(pad) // 2):
        dim = info.rank - 1 - k
        if not known_nonnegative(shape[dim] + sum(symbols.minimum(n, 0) for n in pad[2 * k : 2 * k + 2])):
            raise NotOurs("padding that may cut off more elements than there are, which eager refuses")
        low[dim] = pad[2 * k]
        shape[dim] = shape[dim] + pad[2 * k] + pad[2 * k + 1]
    result = type_of(TensorInfo(info.dtype, tuple(shape), device=info.device))
    attributes = {"low": symbols.print_list(low), "value": constant_text(value, info.dtype)}
    return create("pad", [x], [result], attributes).out


@imports(aten.slice_scatter.default)
def slice_scatter(g, x, src, dim=0, start=None, end=None, step=1):
    """The length of `src` says where the slice ends, and, with the end, where one starts whose start is a symbol of unknown sign."""
    need_kernel_dtypes(x, src)
    info = info_of(x)
    dim, start = dimension(dim, info.rank), 0 if start is None else start
    size = info.shape[dim]
    taken: Int = info_of(src).shape[dim] if dim < info_of(src).rank else 0
    if isinstance(start, int) and start < 0:
        start = symbols.maximum(size + start, 0)
    elif not known_nonnegative(start):
        if step != 1 or not (end is None or isinstance(end, int) or known_nonnegative(end)):
            raise NotOurs(f"a slice that starts at {start}, which may be negative")
        start = symbols.maximum(_end(end, size) - taken, 0)  # where nothing is taken, any start will do
    if isinstance(start, int) and isinstance(size, int) and isinstance(end, int | None) and isinstance(step, int):
        taken = len(range(size)[start:end:step])
    need_shape(src, (*info.shape[:dim], taken, *info.shape[dim + 1 :]), "a slice")
    attributes = {"dim": dim, "start": str(symbols.minimum(start, size)), "step": str(step)}
    result = type_of(TensorInfo(info.dtype, info.shape, device=info.device))
    return create("slice_scatter", [x, on_device(g.cast(src, info.dtype), info.device)], [result], attributes).out


def _end(end: Int | None, size: Int) -> Int:
    """Where a slice ends: an index of 0 to `size`."""
    if end is None or end == 2**63 - 1:
        return size
    return symbols.maximum(size + end, 0) if isinstance(end, int) and end < 0 else symbols.minimum(end, size)


@imports(aten.select_scatter.default)
def select_scatter(g, x, src, dim, index):
    need_kernel_dtypes(x, src)
    info = info_of(x)
    dim = dimension(dim, info.rank)
    if isinstance(index, int) and index < 0:
        index = index + info.shape[dim]
    elif not known_nonnegative(index):
        raise NotOurs(f"a selection at {index}, which may be negative")
    need_shape(src, (*info.shape[:dim], *info.shape[dim + 1 :]), "a selection")
    place = g.iota((info.shape[dim], *(1,) * (info.rank - 1 - dim)), symbol("d0"))
    return g.select(g.eq(place, index), g.unsqueeze(on_device(g.cast(src, info.dtype), info.device), dim), x)


@imports(aten.slice_backward.default)
def slice_backward(g, grad, sizes, dim, start, end, step):
    return slice_scatter(g, zeros(g, grad, sizes), grad, dim, start, end, step)


@imports(aten.select_backward.default)
def select_backward(g, grad, sizes, dim, index):
    return select_scatter(g, zeros(g, grad, sizes), grad, dim, index)


def zeros(g, like, sizes):
    """Zeros that take no memory."""
    need_kernel_dtypes(like)
    return g.expand(g.constant(0, info_of(like).dtype), sizes)

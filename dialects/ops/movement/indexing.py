"""Reads at indices that are data: index, index_select, embedding, gather. Every index is checked, as in eager."""

from collections.abc import Sequence
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ext, ir
from mlirc.dialects.core.dialect import Op, attribute_value, create, imports
from mlirc.dialects.core.graph_builder import NotOurs, broadcast_shape
from mlirc.dialects.core.import_arguments import dimension, need_kernel_dtypes, on_device
from mlirc.dialects.core.index_errors import RUNTIME
from mlirc.dialects.core.kernel_forms import broadcast_map
from mlirc.dialects.core.symbols import symbol
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, type_of

aten = torch.ops.aten
INDEX_DTYPES = (torch.int64, torch.int32)


class Indexed(Op, traits=[ext.Pure]):
    """x[i, :, j] and its like: the dimensions `dims` of x are replaced by those that the index tensors broadcast to.

    dims     the indexed dimensions, "0, 2": one for each index tensor
    place    where the broadcast dimensions stand in the result
    wraps    whether negative indices count from the end
    message  of the IndexError (index_errors.py); {index}, {size} and {dim} may stand in it ({dim} as eager counts: among those indexed)
    """

    @staticmethod
    def kernel(make, op):
        x, *indices = op.operands
        info = info_of(op.results[0])
        attributes = {name: attribute_value(op.attributes[name]) for name in ("dims", "place", "wraps", "message")}
        k = make(info.shape, label=type(op).mnemonic)
        first, last = attributes["place"], attributes["place"] + max(info_of(i).rank for i in indices)
        at = symbols.parse_numbers(attributes["dims"])
        scalars = [
            k.check_index(
                k.read(index, broadcast_map(index, k.dims[first:last])),
                info_of(x).shape[dim],
                attributes["wraps"],
                attributes["message"].replace("{dim}", str(number)),
            )
            for number, (index, dim) in enumerate(zip(indices, at, strict=True))
        ]
        others = iter(k.dims[:first] + k.dims[last:])
        map_ = [symbol(f"i{at.index(d)}") if d in at else next(others) for d in range(info_of(x).rank)]
        return k.finish([(k.read(x, map_, scalars, widen=False), k.dims, info)])


class Index(Indexed, name="index"):
    x: ext.Operand[Any]
    i: ext.Operand[Any]
    dims: ir.StringAttr
    place: Any
    wraps: Any
    message: ir.StringAttr
    out: ext.Result[Any]


class Index2(Indexed, name="index2"):
    x: ext.Operand[Any]
    i: ext.Operand[Any]
    j: ext.Operand[Any]
    dims: ir.StringAttr
    place: Any
    wraps: Any
    message: ir.StringAttr
    out: ext.Result[Any]


class Index3(Indexed, name="index3"):
    x: ext.Operand[Any]
    i: ext.Operand[Any]
    j: ext.Operand[Any]
    k: ext.Operand[Any]
    dims: ir.StringAttr
    place: Any
    wraps: Any
    message: ir.StringAttr
    out: ext.Result[Any]


class Gather(Op, name="gather", traits=[ext.Pure]):
    """The element of x at its own index, but for dimension `dim`, where it is index's element."""

    x: ext.Operand[Any]
    index: ext.Operand[Any]
    dim: Any
    message: ir.StringAttr
    out: ext.Result[Any]

    @staticmethod
    def kernel(make, op):
        x, index = op.operands
        info = info_of(op.results[0])
        dim, message = attribute_value(op.attributes["dim"]), attribute_value(op.attributes["message"])
        k = make(info.shape, label="gather")
        place = k.check_index(k.read(index, k.dims), info_of(x).shape[dim], False, message.replace("{dim}", str(dim)))
        map_ = [symbol("i0") if d == dim else at for d, at in enumerate(k.dims)]
        return k.finish([(k.read(x, map_, [place], widen=False), k.dims, info)])


@imports(aten.index.Tensor, aten._unsafe_index.Tensor)
def index(g, x, indices):
    given = [(dim, i) for dim, i in enumerate(indices) if i is not None]
    dims = [dim for dim, _ in given]
    adjacent = bool(dims) and dims == list(range(dims[0], dims[0] + len(dims)))
    message = "index {index} is out of bounds for dimension {dim} with size {size}"
    return indexed(x, dims, [i for _, i in given], dims[0] if adjacent else 0, True, message)


@imports(aten.index_select.default)
def index_select(g, x, dim, index):
    rank = info_of(x).rank
    if not rank:
        raise NotOurs("index_select of a 0-d tensor")
    if info_of(index).rank > 1:
        raise NotOurs("eager refuses an index that is no vector")
    index = index if info_of(index).rank else g.unsqueeze(index, 0)
    dim = dimension(dim, rank)
    message = "index out of range in self"
    if dim == 1 and info_of(x).device == "cpu":  # a kernel of its own in eager
        message = RUNTIME + "INDICES element is out of DATA bounds, id={index} axis_dim={size}"
    return indexed(x, [dim], [index], dim, False, message)


@imports(aten.embedding.default)
def embedding(g, weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    return indexed(weight, [0], [indices], 0, False, "index out of range in self")


def indexed(x: ir.Value, dims: Sequence[int], indices: Sequence[ir.Value], place: int, wraps: bool, message: str):
    need_kernel_dtypes(x)
    if not 1 <= len(indices) <= 3:
        raise NotOurs(f"an index of {len(indices)} tensors")
    for i in indices:
        if info_of(i).dtype not in INDEX_DTYPES:
            raise NotOurs(f"an index of {info_of(i).dtype}: how many elements it takes depends on data")
    info = info_of(x)
    indices = [on_device(i, info.device) for i in indices]
    rest = [n for d, n in enumerate(info.shape) if d not in dims]
    shape = (*rest[:place], *broadcast_shape([info_of(i).shape for i in indices]), *rest[place:])
    attributes = {"dims": symbols.print_list(dims), "place": place, "wraps": wraps, "message": message}
    name = ("index", "index2", "index3")[len(indices) - 1]
    result = type_of(TensorInfo(info.dtype, shape, device=info.device))
    return create(name, [x, *indices], [result], attributes).out


@imports(aten.gather.default)
def gather(g, x, dim, index, *, sparse_grad=False):
    message = "index {index} is out of bounds for dimension {dim} with size {size}"
    return gather_along(x, dim, index, RUNTIME + message)


def gather_along(x: ir.Value, dim: int, index: ir.Value, message: str) -> ir.Value:
    need_kernel_dtypes(x)
    info, at = info_of(x), info_of(index)
    if info.rank != at.rank or not info.rank or at.dtype not in INDEX_DTYPES:
        raise NotOurs(f"a gather from rank {info.rank} with an index of {at.dtype} and rank {at.rank}")
    result = type_of(TensorInfo(info.dtype, at.shape, device=info.device))
    return create("gather", [x, index], [result], {"dim": dimension(dim, info.rank), "message": message}).out

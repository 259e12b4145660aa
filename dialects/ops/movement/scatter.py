"""Writes at indices that are data, where each row along the dimension has one: one-hot rows, gradients of a gather of one element.

Such a write is a choice at each element, which fuses with what is computed of it. All others are ATen's.
"""

from typing import Any

import torch

from mlirc.dialects.core.bindings import ext, ir
from mlirc.dialects.core.dialect import Op, attribute_value, create, imports
from mlirc.dialects.core.graph_builder import NotOurs
from mlirc.dialects.core.import_arguments import dimension, need_fits, need_kernel_dtypes
from mlirc.dialects.core.index_errors import RUNTIME
from mlirc.dialects.core.kernel_forms import operand
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, type_of
from mlirc.dialects.ops.movement.indexing import INDEX_DTYPES

aten = torch.ops.aten
MESSAGE = RUNTIME + "index {index} is out of bounds for dimension {dim} with size {size}"


class ScatterOne(Op, name="scatter_one", traits=[ext.Pure]):
    """x, but src where the index along dimension `dim` is index's; with `adds` their sum.

    x           [..., N, ...]
    index, src  [..., 1, ...], src also a number
    """

    x: ext.Operand[Any]
    index: ext.Operand[Any]
    src: ext.Operand[Any]
    dim: Any
    adds: Any
    message: ir.StringAttr
    out: ext.Result[Any]

    @staticmethod
    def kernel(make, op):
        x, index, src = op.operands
        info = info_of(op.results[0])
        dim, message = attribute_value(op.attributes["dim"]), attribute_value(op.attributes["message"])
        k = make(info.shape, label="scatter_one")
        row = [0 if d == dim else at for d, at in enumerate(k.dims)]
        chosen = k.check_index(k.read(index, row), info.shape[dim], False, message.replace("{dim}", str(dim)))
        value, kept = operand(k, src, row), operand(k, x, k.dims)
        if attribute_value(op.attributes["adds"]):
            value = k.add(kept, value)
        return k.finish([(k.select(k.eq(k.size(k.dims[dim]), chosen), value, kept), k.dims, info)])


@imports(aten.scatter.value)
def scatter_value(g, x, dim, index, value):
    dtype = info_of(x).dtype
    if isinstance(value, complex) or (isinstance(value, ir.Value) and not dtype.is_floating_point):
        raise NotOurs("a number that another dtype may not hold")
    need_fits(value, dtype)
    return scatter_one(g, x, dim, index, value)


@imports(aten.scatter.src)
def scatter_src(g, x, dim, index, src):
    return scatter_one(g, x, dim, index, src)


@imports(aten.scatter_add.default)
def scatter_add(g, x, dim, index, src):
    if info_of(x).dtype == torch.bool:
        raise NotOurs("sums of truth values")
    return scatter_one(g, x, dim, index, src, adds=True)


def scatter_one(g: Any, x: ir.Value, dim: int, index: ir.Value, src: Any, adds: bool = False) -> ir.Value:
    need_kernel_dtypes(x)
    info, at = info_of(x), info_of(index)
    if not info.rank or at.rank != info.rank or at.dtype not in INDEX_DTYPES:
        raise NotOurs(f"a scatter into rank {info.rank} with an index of {at.dtype} and rank {at.rank}")
    dim = dimension(dim, info.rank)
    one = (*info.shape[:dim], 1, *info.shape[dim + 1 :])
    if at.shape != one:
        raise NotOurs("a scatter of any number of elements into a row")
    if is_argument(x):
        raise NotOurs("a scatter into an argument, which may be updated in place")
    if not isinstance(src, ir.Value) or not info_of(src).rank:
        src = g.cast(src, info.dtype)
    elif info_of(src).shape != one or info_of(src).dtype != info.dtype:
        raise NotOurs("a scatter of a part of its source")
    result = type_of(TensorInfo(info.dtype, info.shape, device=info.device))
    attributes = {"dim": dim, "adds": adds, "message": MESSAGE}
    return create("scatter_one", [x, index, src], [result], attributes).out


def is_argument(x: ir.Value) -> bool:
    """Whether it is an argument of the function, or a view of one."""
    while not isinstance(x.owner, ir.Block) and x.owner.name == "mlirc.view":
        x = x.owner.operands[0]
    return isinstance(x.owner, ir.Block)

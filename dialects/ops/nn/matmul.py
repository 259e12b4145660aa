"""Matmuls, plain and batched, outer products, and cross products. Views of the operands (transposes, broadcasts) go along as they are."""

import torch

from mlirc.dialects.core.dialect import create, imports
from mlirc.dialects.core.graph_builder import NotOurs, broadcast_shape
from mlirc.dialects.core.import_arguments import need_floats, need_kernel_dtypes
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, opmath, type_of
from mlirc.dialects.ops.movement.reindex import roll
from mlirc.dialects.ops.rows.reduction import squeeze

aten = torch.ops.aten


@imports(aten.mm.default, aten.bmm.default)
def matmul(g, x, y):
    return matmul_op("matmul", [x, y])


@imports(aten.addmm.default, aten.baddbmm.default)
def addmm(g, bias, x, y, *, beta=1, alpha=1):
    if not (isinstance(beta, (int, float)) and isinstance(alpha, (int, float)) and beta == 1 and alpha == 1):
        raise NotOurs(f"a matmul with beta = {beta} and alpha = {alpha}")
    return matmul_op("addmm", [bias, x, y])


@imports(aten.addr.default)
def addr(g, x, column, row, *, beta=1, alpha=1):
    """beta * x + alpha * (the products [N, M] of a column [N] and a row [M]); x is broadcast, and not read where beta is 0."""
    dtype = g.promote(x, column, row)
    if not all(isinstance(n, int) or (isinstance(n, float) and dtype.is_floating_point) for n in (beta, alpha)):
        raise NotOurs(f"a sum of {dtype} with beta = {beta} and alpha = {alpha}")
    if dtype == torch.bool:
        raise NotOurs("products of booleans")
    x, column, row = (g.cast(v, opmath(dtype)) for v in (x, g.unsqueeze(column, 1), g.unsqueeze(row, 0)))
    product = g.mul(g.mul(column, alpha), row)
    return g.cast(product if beta == 0 else g.add(g.mul(x, beta), product), dtype)


@imports(aten.mv.default)
def mv(g, x, y):
    return squeeze(g, matmul_op("matmul", [x, g.unsqueeze(y, 1)]), (1,))


def matmul_op(name, operands):
    need_floats(*operands)
    infos = [info_of(v) for v in operands]
    if len({info.dtype for info in infos}) > 1:
        raise NotOurs("a matmul of different dtypes")
    x, y = infos[-2:]
    if 0 in (*x.shape, *y.shape):
        raise NotOurs("a matmul of empty matrices")
    shape = (*x.shape[:-1], y.shape[-1])
    assert broadcast_shape([shape, infos[0].shape if name == "addmm" else ()]) == shape
    return create(name, operands, [type_of(TensorInfo(x.dtype, shape, device=x.device))]).out


@imports(aten.linalg_cross.default)
def cross(g, x, y, dim=-1):
    """Products of vectors, 3 elements along `dim`: x[1] y[2] - x[2] y[1] and so on around. Other dimensions are broadcast."""
    if g.info(x).dtype != g.info(y).dtype:
        raise NotOurs("a cross product of two dtypes")  # eager raises
    need_kernel_dtypes(x)
    x, y = g.widen(x, y)
    x1, x2, y1, y2 = (roll(g, value, (-shift,), (dim,)) for value in (x, y) for shift in (1, 2))
    return g.sub(g.mul(x1, y2), g.mul(x2, y1))

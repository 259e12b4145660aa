"""Matmuls, plain and batched. Views of the operands (transposes, broadcasts) go along as they are."""

import torch

from mlirc.dialects.core.dialect import create, imports
from mlirc.dialects.core.graph_builder import NotOurs, broadcast_shape
from mlirc.dialects.core.import_arguments import need_floats
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, type_of
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

"""Weight normalisation: a weight from its direction and its length, as in `weight_norm`."""

import torch

from mlirc.dialects.core.dialect import imports
from mlirc.dialects.core.graph_builder import NotOurs
from mlirc.dialects.core.tensor_types import info_of


@imports(torch.ops.aten._weight_norm_interface.default)
def weight_norm(g, v, length, dim=0):
    """v * (length / norm) and the norm over all dimensions but `dim`, of the shape of `length`."""
    info = info_of(v)
    if {info.dtype, info_of(length).dtype} - {torch.float32, torch.float64} or info_of(length).rank != info.rank:
        raise NotOurs("the norm of weights of half types")
    squares = g.reduce("sum", g.mul(v, v), [d for d in range(info.rank) if d != dim % info.rank], True)
    norm = g.sqrt(squares)
    return g.mul(v, g.div(length, norm)), norm

"""Weight normalisation: a weight from its direction and its length, as in `weight_norm`."""

import torch

from mlirc.dialects.core.dialect import imports
from mlirc.dialects.core.graph_builder import NotOurs
from mlirc.dialects.core.tensor_types import info_of


@imports(torch.ops.aten._weight_norm_interface.default)
def weight_norm(g, v, length, dim=0):
    """v * (length / norm) and the norm over all dimensions but `dim`, of the shape of `length`."""
    need_whole_floats(v, length)
    norm = g.sqrt(g.reduce("sum", g.mul(v, v), others(v, dim), True))
    return g.mul(v, g.div(length, norm)), norm


@imports(torch.ops.aten._weight_norm_interface_backward.default)
def weight_norm_backward(g, grad, v, length, norm, dim):
    """The gradients by v and by `length`, from that by the weight, and the norm that the forward saved."""
    need_whole_floats(v, length)
    by_length = g.div(g.reduce("sum", g.mul(grad, v), others(v, dim), True), norm)
    scale = g.div(length, norm)
    return g.sub(g.mul(scale, grad), g.mul(v, g.div(g.mul(scale, by_length), norm))), by_length


def need_whole_floats(v, length):
    if {info_of(v).dtype, info_of(length).dtype} - {torch.float32, torch.float64} or info_of(length).rank != info_of(
        v
    ).rank:
        raise NotOurs("the norm of weights of half types")


def others(v, dim):
    """All dimensions but `dim`."""
    rank = info_of(v).rank
    return [d for d in range(rank) if d != dim % rank]

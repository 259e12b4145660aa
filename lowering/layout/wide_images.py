"""Rows [N, C, W] as images of one row, [N, C, 1, W], for convolutions."""

from dataclasses import replace

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.dialects.core.symbols import symbol
from mlirc.dialects.core.tensor_types import TensorInfo, info_of


def of_rank(x: ir.Value, rank: int) -> ir.Value:
    """[N, C, W] as [N, C, 1, W], or the other way round; or `x`."""
    info = info_of(x)
    if info.rank == rank or info.rank < 3:
        return x
    d = [symbol(f"d{k}") for k in range(rank)]
    (n, c, *_, w), (sn, sc, *_, sw) = info.shape, info.stride
    if rank == 3:
        return GraphBuilder(info).view(x, (n, c, w), (sn, sc, sw), [d[0], d[1], 0, d[2]])
    return GraphBuilder(info).view(x, (n, c, 1, w), (sn, sc, sw * w, sw), [d[0], d[1], d[3]])


def as_wide(info: TensorInfo) -> TensorInfo:
    """The shape of images or weights [N, C, W] as [N, C, 1, W]."""
    if info.rank != 3:
        return info
    (n, c, w), (sn, sc, sw) = info.shape, info.stride
    return replace(info, shape=(n, c, 1, w), stride=(sn, sc, sw * w, sw))

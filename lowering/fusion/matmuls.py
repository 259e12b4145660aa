"""Legality of fusion with matmuls and depthwise convolutions, whose inner loops are generated as a whole and must stay as they are.

MATMULS STAY: what is merged with one computes on its finished elements (an epilogue), not on what it multiplies.
"""

from mlirc.dialects.core.symbols import Int
from mlirc.lowering.analysis.index_maps import dims_in, linearized_dims
from mlirc.lowering.fusion.align import Alignment
from mlirc.lowering.fusion.body import Body, factor_read


def stays_matmul(producer: Body, consumer: Body, aligned: Alignment) -> bool:
    """Whether a matmul, joined with a kernel that follows it, is still one: nothing else runs along its inner
    dimensions, and those of its columns are not split. Of a depthwise convolution, none is."""
    if consumer.contraction is not None:
        return False
    if producer.contraction is None:
        return True
    space = aligned.parallel + aligned.inner
    inner = set(range(len(aligned.parallel), len(space)))
    if inner & dims_in(aligned.consumer):
        return False
    divided = {d for read in producer.reads for e in read.map for d in divided_dims(e, producer)}
    return all(len(linearized_dims(aligned.producer[d], space) or ()) <= 1 for d in divided | column_dims(producer))


def column_dims(body: Body) -> frozenset[int]:
    """The parallel dimensions that the second factor of a matmul has to itself; all those of a depthwise convolution."""
    if body.matmul is None:
        return frozenset(range(len(body.parallel)))
    x, y = map(factor_read, body.matmul.operands[0].operands)
    return y.dims - x.dims - body.inner_dims


def divided_dims(expr: Int, body: Body) -> frozenset[int]:
    """The dimensions in an index that is more than a sum of strides."""
    return dims_in((expr,)) if linearized_dims(expr, body.space) is None else frozenset()

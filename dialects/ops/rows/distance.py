"""Distances between rows, torch.cdist on a CPU where eager computes it without a matmul, and of two tensors, torch.dist.

No tensor of all differences is made: fusion reduces them where they are computed. The gradients of order 1 and 2 are ATen's: a kernel that
reduces along the other rows takes 1.1 to 2.3 times its time.
"""

import math

import torch

from mlirc.dialects.core.dialect import imports
from mlirc.dialects.core.graph_builder import NotOurs
from mlirc.dialects.ops.rows.reduction import vector_norm

aten = torch.ops.aten


@imports(aten._cdist_forward.default)
def cdist(g, x, y, p, compute_mode=None):
    """The p-norms [..., P, R] of the differences between the rows of x [..., P, M] and of y [..., R, M]. Batches are broadcast."""
    difference = differences(g, x, y, p)
    size = g.abs(difference)
    if p == 0:
        is_counted = g.cast(g.ne(size, 0.0), g.info(size).dtype)
        return g.reduce("sum", g.select(g.isnan(size), size, is_counted), (-1,))
    if p == 1:
        return g.reduce("sum", size, (-1,))
    if p == 2:
        return g.sqrt(g.reduce("sum", g.mul(size, size), (-1,)))
    return g.pow(g.reduce("sum", g.pow(size, p), (-1,)), 1 / p)


@imports(aten._cdist_backward.default)
def cdist_backward(g, grad, x, y, p, distance):
    """The gradient [..., P, M] of x, for each batch of the distances [..., P, R]; `grad` is like `distance`."""
    if p in (1, 2):
        raise NotOurs("the gradient of distances of order 1 or 2, where ATen's kernel takes less")
    difference = differences(g, x, y, p)
    if p == 0:
        return g.fill(0.0, g.out.shape, g.out.dtype)
    grad, distance = g.unsqueeze(grad, -1), g.unsqueeze(distance, -1)
    sign, size = g.sign(difference), g.abs(difference)
    slope = g.mul(grad, g.mul(sign, g.pow(g.div(size, distance), p - 1)))
    slope = g.select(g.eq(difference if p < 1 else distance, 0.0), 0.0, slope)  # the slope at 0 is taken to be 0
    return g.reduce("sum", slope, (-2,))


def differences(g, x, y, p):
    """The differences [..., P, R, M] of each row of x [..., P, M] and each row of y [..., R, M]."""
    dtypes = {g.info(x).dtype, g.info(y).dtype}
    if dtypes not in ({torch.float32}, {torch.float64}):
        raise NotOurs(f"distances of {' and '.join(sorted(map(str, dtypes)))}")
    if g.info(x).device != "cpu":
        raise NotOurs("distances on a GPU, where ATen has a kernel for them")
    if p == math.inf:
        raise NotOurs("the largest difference, where eager passes over NaN")
    return g.sub(g.unsqueeze(x, -2), g.unsqueeze(y, -3))


@imports(aten.dist.default)
def dist(g, x, y, p=2):
    """The p-norm of the difference of all elements. Shapes are broadcast."""
    return vector_norm(g, g.sub(x, y), p)

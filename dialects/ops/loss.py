"""Losses between a tensor and its target, and their gradients."""

import torch

from mlirc.dialects.dialect import imports
from mlirc.dialects.import_arguments import need_floats
from mlirc.dialects.ops.reduction import mean

aten = torch.ops.aten
NONE, MEAN, SUM = range(3)  # ATen's numbers for `reduction`


def reduced(g, loss, reduction):
    if reduction == NONE:
        return loss
    return mean(g, loss, None) if reduction == MEAN else g.reduce("sum", loss, None)


def spread(g, grad, x, reduction):
    """The gradient of each element's loss: for a mean, an equal share."""
    return g.div(grad, g.size(g.info(x).numel, g.info(x).dtype)) if reduction == MEAN else grad


def difference(g, x, target):
    need_floats(x, target)
    x, target = g.widen(x, target)
    return g.sub(x, target)


@imports(aten.mse_loss.default)
def mse_loss(g, x, target, reduction=MEAN):
    d = difference(g, x, target)
    return reduced(g, g.mul(d, d), reduction)


@imports(aten.mse_loss_backward.default)
def mse_loss_backward(g, grad, x, target, reduction):
    d = difference(g, x, target)
    (grad,) = g.widen(grad)
    return g.mul(spread(g, grad, d, reduction), g.mul(d, 2.0))


@imports(aten.smooth_l1_loss.default)
def smooth_l1_loss(g, x, target, reduction=MEAN, beta=1.0):
    """d*d / (2*beta) near 0, and |d| - beta/2 from beta on."""
    size = g.abs(difference(g, x, target))
    near = g.div(g.mul(g.mul(size, 0.5), size), beta)
    return reduced(g, g.select(g.lt(size, beta), near, g.sub(size, g.mul(0.5, beta))), reduction)


@imports(aten.smooth_l1_loss_backward.default)
def smooth_l1_loss_backward(g, grad, x, target, reduction, beta):
    d = difference(g, x, target)
    (grad,) = g.widen(grad)
    slope = g.select(g.lt(g.abs(d), beta), g.div(d, beta), g.sign(d))
    return g.mul(slope, spread(g, grad, d, reduction))


@imports(aten.huber_loss.default)
def huber_loss(g, x, target, reduction=MEAN, delta=1.0):
    """d*d / 2 near 0, and delta * (|d| - delta/2) beyond delta."""
    size = g.abs(difference(g, x, target))
    far = g.mul(g.sub(size, g.mul(0.5, delta)), delta)
    return reduced(g, g.select(g.le(size, delta), g.mul(g.mul(size, 0.5), size), far), reduction)


@imports(aten.huber_loss_backward.default)
def huber_loss_backward(g, grad, x, target, reduction, delta):
    d = difference(g, x, target)
    (grad,) = g.widen(grad)
    slope = g.select(g.le(g.abs(d), delta), d, g.mul(g.sign(d), delta))
    return g.mul(slope, spread(g, grad, d, reduction))

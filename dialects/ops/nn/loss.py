"""Losses and their gradients. `reduction` is ATen's number: 0 none, 1 mean, 2 sum. Half types compute in float32."""

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.dialect import imports
from mlirc.dialects.core.graph_builder import NotOurs, broadcast_shape
from mlirc.dialects.core.import_arguments import need_floats, need_shape
from mlirc.dialects.core.symbols import symbol
from mlirc.dialects.core.tensor_types import info_of, opmath
from mlirc.dialects.ops.movement.indexing import gather_along, indexed
from mlirc.dialects.ops.rows.group_norm import append_ones
from mlirc.dialects.ops.rows.reduction import mean, squeeze

aten = torch.ops.aten
NONE, MEAN, SUM = 0, 1, 2


def widened(g, *values):
    """Floating-point operands in the dtype that eager computes in."""
    need_floats(*values)
    return g.widen(*values)


def reduced(g, loss, reduction):
    if reduction == NONE:
        return loss
    return mean(g, loss, None) if reduction == MEAN else g.reduce("sum", loss, None)


def by_element(g, grad, x, y, reduction):
    """The gradient by each element's own loss."""
    if reduction != MEAN:
        return grad
    elements = symbols.product(broadcast_shape([info_of(x).shape, info_of(y).shape]))
    return g.div(grad, g.size(elements, info_of(grad).dtype))


@imports(aten.mse_loss.default)
def mse_loss(g, x, y, reduction=MEAN):
    x, y = widened(g, x, y)
    rest = g.sub(x, y)
    return reduced(g, g.mul(rest, rest), reduction)


@imports(aten.mse_loss_backward.default)
def mse_loss_backward(g, grad, x, y, reduction):
    """2 (x - y) grad; of a mean 2/n first, as in eager, so that no product overflows whose quotient does not."""
    grad, x, y = widened(g, grad, x, y)
    two = g.constant(2.0, info_of(x).dtype)
    return g.mul(g.mul(g.sub(x, y), by_element(g, two, x, y, reduction)), grad)


@imports(aten.smooth_l1_loss.default)
def smooth_l1_loss(g, x, y, reduction=MEAN, beta=1.0):
    """Squares below a distance of `beta`, distances above."""
    if not beta >= 0:
        raise NotOurs("eager refuses a beta that is negative or NaN, which the meta function takes")
    x, y = widened(g, x, y)
    distance = g.abs(g.sub(x, y))
    if beta == 0:
        return reduced(g, distance, reduction)
    square = g.div(g.mul(g.mul(distance, 0.5), distance), beta)
    return reduced(g, g.select(g.lt(distance, beta), square, g.sub(distance, 0.5 * beta)), reduction)


@imports(aten.smooth_l1_loss_backward.default)
def smooth_l1_loss_backward(g, grad, x, y, reduction, beta):
    grad, x, y = widened(g, grad, x, y)
    grad, rest = by_element(g, grad, x, y, reduction), g.sub(x, y)
    inside = g.div(g.mul(grad, rest), beta) if beta else g.mul(grad, 0.0)
    return outside_interval(g, rest, beta, grad, inside)


@imports(aten.huber_loss.default)
def huber_loss(g, x, y, reduction=MEAN, delta=1.0):
    """Squares up to a distance of `delta`, distances beyond."""
    if info_of(x).dtype != info_of(y).dtype:
        raise NotOurs("of two dtypes PyTorch promises another result than its kernel gives")
    x, y = widened(g, x, y)
    distance = g.abs(g.sub(x, y))
    square = g.mul(g.mul(distance, 0.5), distance)
    return reduced(g, g.select(g.le(distance, delta), square, g.mul(g.sub(distance, 0.5 * delta), delta)), reduction)


@imports(aten.huber_loss_backward.default)
def huber_loss_backward(g, grad, x, y, reduction, delta):
    grad, x, y = widened(g, grad, x, y)
    grad, rest = by_element(g, grad, x, y, reduction), g.sub(x, y)
    return outside_interval(g, rest, delta, g.mul(grad, delta), g.mul(grad, rest))


def outside_interval(g, rest, limit, slope, inside):
    """-slope from -limit down, slope from limit up, `inside` between them."""
    return g.select(g.le(rest, -limit), g.neg(slope), g.select(g.ge(rest, limit), slope, inside))


@imports(aten.binary_cross_entropy_with_logits.default)
def binary_cross_entropy_with_logits(g, x, y, weight=None, positive=None, reduction=MEAN):
    """(1 - y)*x - (1 + (positive - 1)*y) * log(sigmoid(x)), times the weight."""
    x, y = widened(g, x, y)
    log_sigmoid = g.sub(g.minimum(x, 0.0), g.log1p(g.exp(g.neg(g.abs(x)))))
    if positive is not None:
        positive = g.cast(positive, info_of(x).dtype)
        log_sigmoid = g.mul(g.add(g.mul(g.sub(positive, 1.0), y), 1.0), log_sigmoid)
    loss = g.sub(g.mul(g.sub(1.0, y), x), log_sigmoid)
    return reduced(g, loss if weight is None else g.mul(loss, g.cast(weight, info_of(x).dtype)), reduction)


@imports(aten.soft_margin_loss.default)
def soft_margin_loss(g, x, y, reduction=MEAN):
    """log(1 + exp(-y*x)): infinite where exp is, as in eager."""
    x, y = widened(g, x, y)
    return reduced(g, g.log1p(g.exp(g.mul(g.neg(y), x))), reduction)


@imports(aten.soft_margin_loss_backward.default)
def soft_margin_loss_backward(g, grad, x, y, reduction):
    grad, x, y = widened(g, grad, x, y)
    z = g.exp(g.mul(g.neg(y), x))
    slope = g.div(g.mul(g.neg(y), z), g.add(z, 1.0))
    return g.mul(slope, by_element(g, grad, x, y, reduction))


# ---- negative log-likelihood: x [N, C, ...] holds log-probabilities, target [N, ...] classes


def check_classes(x, target, weight):
    need_floats(x)
    info = info_of(x)
    if (
        info_of(target).dtype not in (torch.int64, torch.uint8)
        or info_of(target).rank != info.rank - 1
        or info.rank < 2
    ):
        raise NotOurs(f"classes of {info_of(target).dtype}, or of an example that is no batch")
    need_shape(target, (info.shape[0], *info.shape[2:]), "classes", tied=info.rank < 4)
    need_shape(weight, info.shape[1:2], "weights of classes")
    if info_of(x).shape[1] == 0:
        raise NotOurs("no classes: what is ignored has none to stand for it")


@imports(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)
def nll_loss(g, x, target, weight, reduction, ignore_index):
    check_classes(x, target, weight)
    dtype = opmath(info_of(x).dtype)
    counted = g.ne(target, ignore_index)
    safe = g.select(counted, target, 0)
    picked = gather_along(x, 1, g.unsqueeze(safe, 1), "Target {index} is out of bounds.")
    picked = g.cast(squeeze(g, picked, (1,)), dtype)
    factor = g.cast(counted, dtype)
    if weight is not None:
        of_class = indexed(weight, [0], [safe], 0, False, "Target {index} is out of bounds.")
        factor = g.mul(factor, g.cast(of_class, dtype))
    loss = g.select(counted, g.neg(g.mul(picked, factor)), 0.0)
    if reduction == NONE:
        return loss, g.constant(0.0, dtype)
    total, weights = g.reduce("sum", loss, None), g.reduce("sum", factor, None)
    return (g.div(total, weights) if reduction == MEAN else total), weights


def zeros_are_contiguous(info):
    """Whether `zeros_like` of such a tensor is row-major; of symbolic strides with gaps nothing is known, and yes."""
    if info.is_dense or not all(isinstance(n, int) for n in (*info.shape, *info.stride)):
        return info.is_contiguous or not info.is_dense
    return torch.zeros_like(torch.empty_strided(info.shape, info.stride, device="meta")).is_contiguous()


@imports(aten.nll_loss_backward.default, aten.nll_loss2d_backward.default)
def nll_loss_backward(g, grad, x, target, weight, reduction, ignore_index, total_weight):
    """-weight of the class at the target's class, 0 elsewhere, times the gradient."""
    check_classes(x, target, weight)
    info = info_of(x)
    if info.rank > 2 and not zeros_are_contiguous(info):
        raise NotOurs("a gradient that has to be contiguous")  # eager's kernel raises
    grad, total_weight = g.cast(grad, opmath(info.dtype)), g.cast(total_weight, opmath(info.dtype))
    if reduction == MEAN:
        grad = g.div(grad, total_weight)
    elif reduction == NONE:
        grad = g.unsqueeze(grad, 1)
    value = g.neg(grad)
    if weight is not None:
        value = g.mul(value, append_ones(g, g.cast(weight, opmath(info.dtype)), info.rank - 2))
    classes = g.iota((info.shape[1], *(1,) * (info.rank - 2)), symbol("d0"))
    target = g.unsqueeze(target, 1)
    chosen = g.logical_and(g.eq(classes, target), g.ne(target, ignore_index))
    return g.select(chosen, value, 0.0)

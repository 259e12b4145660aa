"""Softmax and log-softmax over one dimension, and their gradients. Half types compute in float32."""

from typing import Any

import torch

from mlirc.dialects.core.bindings import ext
from mlirc.dialects.core.composites import composite
from mlirc.dialects.core.dialect import Composite, imports
from mlirc.dialects.core.import_arguments import dimension, need_floats, need_shape
from mlirc.dialects.core.tensor_types import info_of, opmath

aten = torch.ops.aten


class Softmax(Composite, name="softmax"):
    """exp(x) over its sum along `dim`, of x less its largest element."""

    x: ext.Operand[Any]
    dim: Any
    out: ext.Result[Any]

    reference = staticmethod(lambda x, dim: torch.softmax(x, dim))

    @staticmethod
    def expand(g, x, dim):
        exponentials = g.exp(from_largest(g, x, dim))
        return g.div(exponentials, g.reduce("sum", exponentials, (dim,), True))


class LogSoftmax(Composite, name="log_softmax"):
    """The logarithm of the softmax along `dim`."""

    x: ext.Operand[Any]
    dim: Any
    out: ext.Result[Any]

    @staticmethod
    def expand(g, x, dim):
        x = from_largest(g, x, dim)
        return g.sub(x, g.log(g.reduce("sum", g.exp(x), (dim,), True)))


class SoftmaxBackward(Composite, name="softmax_backward"):
    """(grad - sum(grad * y)) * y for the softmax y."""

    grad: ext.Operand[Any]
    y: ext.Operand[Any]
    dim: Any
    out: ext.Result[Any]

    @staticmethod
    def expand(g, grad, y, dim):
        grad, y = g.widen(grad, y)
        return g.mul(g.sub(grad, g.reduce("sum", g.mul(grad, y), (dim,), True)), y)


class LogSoftmaxBackward(Composite, name="log_softmax_backward"):
    """grad - exp(y) * sum(grad) for the log-softmax y."""

    grad: ext.Operand[Any]
    y: ext.Operand[Any]
    dim: Any
    out: ext.Result[Any]

    @staticmethod
    def expand(g, grad, y, dim):
        grad, y = g.widen(grad, y)
        return g.sub(grad, g.mul(g.exp(y), g.reduce("sum", grad, (dim,), True)))


def from_largest(g, x, dim):
    x = g.cast(x, opmath(info_of(x).dtype))
    return g.sub(x, g.reduce("amax", x, (dim,), True))


@imports(aten._softmax.default)
def softmax(g, x, dim, half_to_float):
    return one_dimension("softmax", (x,), dim, torch.float32 if half_to_float else info_of(x).dtype)


@imports(aten._log_softmax.default)
def log_softmax(g, x, dim, half_to_float):
    return one_dimension("log_softmax", (x,), dim, torch.float32 if half_to_float else info_of(x).dtype)


@imports(aten._softmax_backward_data.default)
def softmax_backward(g, grad, y, dim, dtype):
    need_shape(grad, info_of(y).shape, "a gradient")
    return one_dimension("softmax_backward", (grad, y), dim, dtype)


@imports(aten._log_softmax_backward_data.default)
def log_softmax_backward(g, grad, y, dim, dtype):
    need_shape(grad, info_of(y).shape, "a gradient")
    return one_dimension("log_softmax_backward", (grad, y), dim, dtype)


@imports(aten._safe_softmax.default)
def safe_softmax(g, x, dim, dtype=None):
    """The softmax, but 0 in rows of nothing but -inf (attention that masks a whole row)."""
    y = one_dimension("softmax", (x,), dim, dtype or info_of(x).dtype)
    masked = g.reduce("all", g.eq(x, float("-inf")), (dim,), True, torch.bool)
    return g.select(masked, 0.0, y)


def one_dimension(name, operands, dim, dtype):
    need_floats(*operands)
    info = info_of(operands[0])
    result = type(info)(dtype, info.shape, device=info.device)
    return composite(name, operands, [result], dim=dimension(dim, info.rank))[0]

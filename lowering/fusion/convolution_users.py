"""What follows a convolution and may go into it: a batch norm by parameters, an addition. Both targets' passes ask this."""

from typing import Any

import torch

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.ops.rows.group_norm import append_ones
from mlirc.lowering.fusion.aten_calls import called, repeats_operand


def is_convolution(op: Any) -> bool:
    """Whether it is a convolution whose operands are the image, the weight and perhaps the bias."""
    return called(op) == "aten.convolution.default" and not repeats_operand(op)


def only_user(x: ir.Value) -> Any | None:
    """The op that uses the value, if it is used once."""
    uses = list(x.uses)
    return uses[0].owner.opview if len(uses) == 1 else None


def folded_norm(x: ir.Value, fixed: set) -> Any | None:
    """The batch norm by parameters (`fixed`) that alone reads the convolution's result `x`, if there is one."""
    norm = only_user(x)
    if norm is None or norm.operation.name != "mlirc.batch_norm_inference" or norm.operands[0] != x:
        return None
    dtype = info_of(x).dtype
    by_parameters = (is_constant(v) or (v in fixed and info_of(v).dtype == dtype) for v in list(norm.operands)[1:])
    return norm if all(by_parameters) else None


def is_constant(x: ir.Value) -> bool:
    """Whether `x` is a constant, as is what stands for an absent weight or bias."""
    return not isinstance(x.owner, ir.Block) and x.owner.name == "mlirc.constant"


def is_residual(user: Any, x: ir.Value) -> bool:
    """Whether it adds to `x` something of the same shape."""
    if user.operation.name != "mlirc.add" or info_of(user.results[0]).dtype != info_of(x).dtype:
        return False
    return all(info_of(v).shape == info_of(x).shape and info_of(v).dtype == info_of(x).dtype for v in user.operands)


def folded_parameters(w: ir.Value, bias: list[ir.Value], norm: Any, dtype: torch.dtype) -> tuple[ir.Value, ir.Value]:
    """The weight of the convolution that does the batch norm too, and what is then added to it, in `dtype`."""
    g = GraphBuilder()
    scale, shift = folded_factors(bias, norm, dtype)
    return g.mul(g.cast(w, dtype), append_ones(g, scale, info_of(w).rank - 1)), shift


def folded_factors(bias: list[ir.Value], norm: Any, dtype: torch.dtype) -> tuple[ir.Value, ir.Value]:
    """The norm of a convolution is that without its bias, times the first, plus the second."""
    g = GraphBuilder()
    gamma, beta, mean, variance = [g.cast(v, dtype) for v in [*norm.operands][1:]]
    scale = g.mul(g.rsqrt(g.add(variance, attribute_value(norm.attributes["eps"]))), gamma)
    shift = g.sub(g.cast(bias[0], dtype), mean) if bias else g.neg(mean)
    return scale, g.add(g.mul(shift, scale), beta)

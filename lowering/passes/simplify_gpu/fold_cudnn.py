"""fold-cudnn: convolutions by parameters run in cuDNN with the batch norm folded in, and with addition and relu."""

from typing import Any

import torch

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.analysis.provenance import parameter_arguments
from mlirc.lowering.fusion.aten_calls import arguments, call_aten
from mlirc.lowering.fusion.convolution_users import (
    folded_norm,
    folded_parameters,
    is_convolution,
    is_residual,
    only_user,
)
from mlirc.lowering.module.source_lines import source_line
from mlirc.lowering.pipeline.ledger import Ledger

RELU = "aten.cudnn_convolution_relu.default"
ADD_RELU = "aten.cudnn_convolution_add_relu.default"


@dataclass(frozen=True)
class FoldCudnn:
    """Give cuDNN what follows a convolution up to a relu, for inference on a GPU.

    before:  %0 = "mlircx.aten"(%x, %w) {op = "aten.convolution.default", ...}
             %1 = "mlirc.batch_norm_inference"(%0, %gamma, %beta, %mean, %variance) {eps = 1e-05}
             %2 = "mlirc.add"(%1, %y)
             %3 = "mlirc.relu"(%2)
    after:   %s = gamma * rsqrt(variance + eps), in float32
             %3 = "mlircx.aten"(%x, w * %s, %y, beta - mean * %s) {op = "aten.cudnn_convolution_add_relu.default", ...}

    PARAMETER   weights and statistics are parameters: batch-parameters computes all of a graph's folded weights in few launches,
                or hoist-parameters once
    RELU        of half types; what follows is a relu, after an addition or not. Where what is added is a convolution with a
                batch norm too, that one's shift goes into this one's, and the other is a convolution without a bias
    """

    name = "fold-cudnn"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        block = function.regions[0].blocks[0]
        fixed = parameter_arguments(function)
        fixed -= {op.operands[0] for op in block.operations if op.operation.name == "mlirc.assign"}
        # found first: folding one erases other ops
        for op in [op for op in block.operations if is_convolution(op)]:
            if not is_alive(op) or not fits(op, fixed):
                continue
            norm = folded_norm(op.results[0], fixed)
            rule = "RELU" if norm is not None else "PARAMETER"
            line = source_line(op.location)
            taken = norm is not None and ledger.allows(self.name, op) and fold(op, norm, fixed)
            ledger.record(self.name, "fold", "aten.convolution", rule, taken, line)


def is_alive(op: Any) -> bool:
    """Whether no fold has made the convolution superfluous."""
    return next(iter(op.results[0].uses), None) is not None


def fits(op: Any, fixed: set[ir.Value]) -> bool:
    x, w = info_of(op.operands[0]), info_of(op.operands[1])
    _, _, _, stride, padding, dilation, transposed, _, groups = arguments(op)
    numbers = (*x.shape, *w.shape, *stride, *padding, *dilation)
    plain = x.rank == 4 and x.device.startswith("cuda") and not transposed and groups == 1
    half = all(info_of(v).dtype in (torch.float16, torch.bfloat16) for v in op.operands)
    return plain and half and all(isinstance(n, int) for n in numbers) and all(v in fixed for v in op.operands[1:])


def fold(op: Any, norm: Any, fixed: set[ir.Value]) -> bool:
    """Replaces what ends in a relu by one call; whether there is a relu."""
    value, other = norm.results[0], None
    user = only_user(value)
    if user is not None and is_residual(user, value):
        others = [v for v in user.operands if v != value]
        if len(others) != 1:
            return False
        other, value = others[0], user.results[0]
        user = only_user(value)
    if user is None or user.operation.name != "mlirc.relu":
        return False
    x, w, *bias = op.operands
    _, _, _, stride, padding, dilation, _, _, groups = arguments(op)
    info = info_of(user.results[0])
    with ir.InsertionPoint(user), user.location:
        weight, shift = folded_parameters(w, bias, norm, torch.float32)
        weight = narrow(weight, w)
        steps = [stride, padding, dilation, groups]
        if other is None:
            made = call_aten(RELU, [x, weight, narrow(shift, w), *steps], info)
        else:
            other, more = shortcut(other, fixed)
            if more is not None:
                shift = GraphBuilder().add(shift, more)
            made = call_aten(ADD_RELU, [x, weight, other, 1.0, narrow(shift, w), *steps], info)
    user.results[0].replace_all_uses_with(made)
    user.operation.erase()
    return True


def narrow(x: ir.Value, like: ir.Value) -> ir.Value:
    return GraphBuilder().cast(x, info_of(like).dtype)


def shortcut(x: ir.Value, fixed: set[ir.Value]) -> tuple[ir.Value, ir.Value | None]:
    """What is added, and where it is a convolution with a batch norm, that without its shift, and the shift."""
    norm = None if isinstance(x.owner, ir.Block) else x.owner
    if norm is None or norm.operation.name != "mlirc.batch_norm_inference" or only_user(x) is None:
        return x, None
    op = norm.operands[0].owner
    if (
        isinstance(op, ir.Block)
        or not is_convolution(op)
        or not fits(op, fixed)
        or folded_norm(op.results[0], fixed) is None
    ):
        return x, None
    image, w, *bias = op.operands
    weight, shift = folded_parameters(w, bias, norm, torch.float32)
    given = [image, narrow(weight, w), None, *arguments(op)[3:]]
    return call_aten("aten.convolution.default", given, info_of(x)), shift

"""Operators that are traced in parts on a GPU, so that a backward graph computes anew what is cheap instead of having it saved.

The partitioner between forward and backward graph recomputes elementwise operators that it knows. Others it takes for
library calls, for which everything must be there: a log-softmax over a vocabulary in float32 (1.6 GB for GPT-2, twice what
the logits take), the tanh within a GELU. In parts, a row's largest element and the logarithm of its sum are saved.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch._ops import OpOverload

aten = torch.ops.aten
MEAN = 1  # ATen's number of a reduction
PARTS = get_decompositions(
    [
        aten._log_softmax,
        aten._log_softmax_backward_data,
        aten.detach,  # of what an operator keeps for its gradient
        aten.sigmoid_backward,
        aten.silu_backward,
        aten.tanh_backward,
    ]
)


def is_on_gpu(x: torch.Tensor) -> bool:
    return x.device.type == "cuda"


def decompositions() -> dict[OpOverload, Callable]:
    """What AOTAutograd traces in place of an operator, which stays where the function gives NotImplemented."""
    found = {op: on_gpu(parts) for op, parts in PARTS.items() if isinstance(op, OpOverload)}
    return found | {aten.nll_loss_backward.default: nll_loss_backward}


def on_gpu(parts: Callable) -> Callable:
    def decomposed(x: torch.Tensor, *args: Any, **options: Any) -> Any:
        return parts(x, *args, **options) if is_on_gpu(x) else NotImplemented

    return decomposed


def nll_loss_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: torch.Tensor,
) -> torch.Tensor:
    """-weight of the class at the target's class, 0 elsewhere, times the gradient: x [N, C] gives sizes and dtype alone."""
    if not is_on_gpu(x) or x.dim() != 2:
        return NotImplemented
    wide = torch.promote_types(x.dtype, torch.float32)
    value = -grad.to(wide)
    if reduction == MEAN:
        value = value / total_weight.to(wide)
    if value.dim() == 1:
        value = value.unsqueeze(1)
    if weight is not None:
        value = value * weight.to(wide)
    target = target.unsqueeze(1)
    classes = torch.arange(x.shape[1], dtype=target.dtype, device=x.device)
    chosen = (classes == target) & (target != ignore_index)
    return torch.where(chosen, value, 0.0).to(x.dtype)

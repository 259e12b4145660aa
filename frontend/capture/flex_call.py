"""A call of flex_attention, forward or backward, as operators: those of dialects/ops/nn/flex_operators.py, which kernels are generated
for, or plain ones on whole matrices of scores.

A score_mod or mask_mod takes numbers without dimensions: it is mapped over all scores.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.dialects.ops.nn import flex_operators as dense
from mlirc.dialects.ops.nn.flex_operators import LN2
from mlirc.lowering.cpu.attention.coverage import flex_uncovered

HALF = (torch.float16, torch.bfloat16)
MOST_HEAD = 256  # elements of a query, key or value in a kernel's tile
LEAST_BLOCK = 16  # queries or keys of a tile


@dataclass(frozen=True)
class FlexCall:
    """What both passes are given beside tensors of their own; the functions take the index of batch, head, query and key.

    blocks, transposed   as dialects/ops/nn/flex_operators.py has them; transposed is None where PyTorch did not make it
    operators            what has flex_scores and the others: `torch.ops.mlirc`, or their functions, which are traced through
    """

    score_mod: Callable
    mask_mod: Callable
    scale: float
    score_buffers: Sequence[Any]
    mask_buffers: Sequence[Any]
    blocks: list[torch.Tensor]
    transposed: list[torch.Tensor] | None
    rows: Any
    columns: Any
    operators: Any = dense

    def modified(self, scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The scores after score_mod, and which mask_mod lets through."""
        places = places_of(scores)
        seen = mapped(self.mask_mod, (), (None,) * len(self.mask_buffers))(*places, *self.mask_buffers)
        changed = mapped(self.score_mod, (0,), (None,) * len(self.score_buffers))(scores, *places, *self.score_buffers)
        return changed.to(scores.dtype), seen


def forward(
    call: FlexCall, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, order: Sequence[int]
) -> tuple[torch.Tensor, ...]:
    """The result, the logarithms of the sums and the largest scores, as `flex_attend` gives them."""
    changed, seen = call.modified(call.operators.flex_scores(q, k, call.scale))
    lists = call.blocks, call.rows, call.columns, call.scale
    return call.operators.flex_attend(changed, seen, q, k, v, *lists, order)


def backward(
    call: FlexCall,
    joint: Callable,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    dout: torch.Tensor | None,
    dlse: torch.Tensor | None,
    orders: Sequence[int],
) -> tuple[Any, ...]:
    """The gradients of q, k and v, and of each of score_mod's buffers, or None.

    joint    takes a score, four indices, the gradient of what score_mod gives, and its buffers; gives the gradients of all but that
    lse      in base two, as `forward` gives it; dlse is its gradient
    """
    dout = torch.zeros_like(out) if dout is None else dout
    dlse = torch.zeros_like(lse) if dlse is None else dlse
    wide = dense.wide_dtype(q)
    delta = (out.to(wide) * dout.to(wide)).sum(-1) - dlse.to(wide) / LN2
    scores = call.operators.flex_scores(q, k, call.scale)
    changed, seen = call.modified(scores)
    lists = call.rows, call.columns, call.scale
    slopes = call.operators.flex_slopes(changed, seen, q, k, v, dout, lse, delta, call.blocks, *lists)
    buffers = call.score_buffers
    none = (None,) * len(buffers)
    each = mapped(lambda *x: tuple(joint(*x)), (0,), (0, *none), (0, None, None, None, None, *none))
    slopes, _, _, _, _, *of_buffers = each(scores, *places_of(scores), slopes, *buffers)
    transposed = call.blocks if call.transposed is None else call.transposed
    tensors = q, k, v, dout, lse, delta, call.blocks, transposed
    gradients = call.operators.flex_gradients(slopes.to(wide), changed, seen, *tensors, *lists, orders)
    return *gradients, of_buffers


def places_of(scores: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The indices of batch, head, query and key."""
    return tuple(torch.arange(n, device=scores.device) for n in scores.shape)


def mapped(function: Callable, before: tuple, after: tuple, results: Any = 0) -> Callable:
    """A function of numbers, mapped over [B, H, L, S]: `before` and `after` its four indices it takes what is in that shape (0) or the same
    for all (None)."""
    for dimension in (3, 2, 1, 0):
        indices = tuple(0 if d == dimension else None for d in range(4))
        function = torch.vmap(function, in_dims=before + indices + after, out_dims=results)
    return function


def without_kernel(call: FlexCall, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> str:
    """Why no kernel is generated for the forward pass, "" where one may be."""
    devices = {x.device.type for x in (q, k, v)}
    if devices not in ({"cuda"}, {"cpu"}):
        return "DEVICE"
    if len({x.dtype for x in (q, k, v)}) != 1 or q.dtype not in (*HALF, torch.float32):
        return "DTYPE"
    if devices == {"cpu"} and (
        rule := flex_uncovered(q.dtype, q.shape[2], q.shape[1], k.shape[1], q.shape[3], v.shape[3])
    ):
        return rule
    if any(not isinstance(x.shape[3], int) or not 0 < x.shape[3] <= MOST_HEAD for x in (q, v)):
        return "HEAD SIZE"
    blocks = call.rows, call.columns
    if any(not isinstance(n, int) or n % LEAST_BLOCK for n in blocks):
        return "BLOCKS OF 16"
    return ""

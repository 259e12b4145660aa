"""flex_attention and its gradients on whole matrices of scores, in the order of operations of PyTorch's own dense form.

    scores = (q @ k^T) * scale                     [B, H, L, S] in float32, of float64 in float64
    scores = where(seen, score_mod(scores), -inf)
    out = softmax(scores) @ v

A score_mod or mask_mod takes numbers without dimensions: it is mapped over all scores.
A block mask hides the blocks that it does not list, and mask_mod is asked within partial blocks alone.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

NOTHING = -math.inf
LN2 = math.log(2)


@dataclass(frozen=True)
class BlockLists:
    """For each block of `rows` queries the blocks of `columns` keys that it sees, and those of which it sees all, or None.

    counts    [B or 1, H or 1, blocks of queries]; indices has the numbers of so many blocks of keys first in
              [B or 1, H or 1, blocks of queries, blocks of keys]
    """

    rows: Any
    columns: Any
    partial: tuple[torch.Tensor, torch.Tensor]
    full: tuple[torch.Tensor, torch.Tensor] | None

    def seen(self, queries: torch.Tensor, keys: torch.Tensor, by_element: torch.Tensor) -> torch.Tensor:
        """Which keys the queries see: a block is listed partial, and `by_element` is true, or it is listed full."""
        rows, columns = queries // self.rows, keys // self.columns
        seen = listed(*self.partial, rows, columns) & by_element
        return seen if self.full is None else seen | listed(*self.full, rows, columns)


def listed(counts: torch.Tensor, indices: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """Whether a block of queries lists a block of keys: [B or 1, H or 1, L or 1, S or 1] for the blocks of each row and column."""
    places = torch.arange(indices.shape[3], device=indices.device)
    valid = places < counts.unsqueeze(-1)
    blocks = ((indices.unsqueeze(-1) == places) & valid.unsqueeze(-1)).any(3)  # [B or 1, H or 1, blocks, blocks]
    if blocks.shape[2] != 1:
        blocks = blocks[:, :, rows]
    return blocks if blocks.shape[3] == 1 else blocks[..., columns]


@dataclass(frozen=True)
class FlexCall:
    """What both passes are given beside tensors of their own; the functions take the index of batch, head, query and key."""

    score_mod: Callable
    mask_mod: Callable
    scale: float
    score_buffers: Sequence[Any]
    mask_buffers: Sequence[Any]
    blocks: BlockLists | None

    def scores(self, q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The scores before score_mod, those after it and the mask, and which keys are seen; k has as many heads as q."""
        wide = torch.float64 if q.dtype == torch.float64 else torch.float32
        scores = (q.to(wide) @ k.to(wide).transpose(-2, -1)) * self.scale
        scores = scores.to(wide)
        places = places_of(scores)
        seen = mapped(self.mask_mod, (), (None,) * len(self.mask_buffers))(*places, *self.mask_buffers)
        if self.blocks is not None:
            seen = self.blocks.seen(places[2], places[3], seen)
        suffix = (None,) * len(self.score_buffers)
        changed = mapped(self.score_mod, (0,), suffix)(scores, *places, *self.score_buffers)
        return scores, torch.where(seen, changed, NOTHING), seen


def forward(call: FlexCall, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The result [B, H, L, Dv], and in base two for each row the logarithm of the sum of the exponentials and the largest score."""
    k, v = shared(k, q), shared(v, q)
    _, scores, _ = call.scores(q, k)
    hidden = (scores == NOTHING).all(-1, keepdim=True)
    lse = torch.where(hidden.squeeze(-1), NOTHING, scores.logsumexp(-1))
    weights = torch.where(hidden, 0.0, torch.softmax(scores, -1))
    return weights.to(q.dtype) @ v.to(q.dtype), lse / LN2, scores.amax(-1) / LN2


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
) -> tuple[Any, ...]:
    """The gradients of q, k and v, and of each of score_mod's buffers, or None.

    joint    takes a score, four indices, the gradient of what score_mod gives, and its buffers; gives the gradients of all but that
    lse      in base two, as `forward` gives it; dlse is its gradient
    """
    first, heads = k.shape[0], k.shape[1]
    k, v = shared(k, q), shared(v, q)
    dout = torch.zeros_like(out) if dout is None else dout
    dlse = torch.zeros_like(lse) if dlse is None else dlse
    lse = lse * LN2
    scores, changed, seen = call.scores(q, k)
    weights = torch.where((lse == NOTHING).unsqueeze(-1), 0.0, torch.exp(changed - lse.unsqueeze(-1)))
    dv = weights.to(q.dtype).transpose(-2, -1) @ dout
    slopes = dout.to(weights.dtype) @ v.to(weights.dtype).transpose(-2, -1)
    delta = (out.to(weights.dtype) * dout.to(weights.dtype)).sum(-1, keepdim=True)
    slopes = weights * (slopes - delta + (dlse / LN2).unsqueeze(-1))
    buffers = call.score_buffers
    none = (None,) * len(buffers)
    each = mapped(lambda *x: tuple(joint(*x)), (0,), (0, *none), (0, None, None, None, None, *none))
    slopes, _, _, _, _, *of_buffers = each(scores, *places_of(scores), slopes, *buffers)
    slopes = torch.where(seen, (slopes * call.scale).to(q.dtype), 0)
    dq, dk = slopes @ k, slopes.transpose(-2, -1) @ q
    return dq, summed(dk, first, heads), summed(dv, first, heads), of_buffers


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


def shared(x: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Keys or values for every batch and head of the query."""
    group = q.shape[1] // x.shape[1]
    if group != 1:
        x = x.unsqueeze(2).expand(-1, -1, group, -1, -1).flatten(1, 2)
    return x.expand(q.shape[0], -1, -1, -1)


def summed(x: torch.Tensor, batches: Any, heads: int) -> torch.Tensor:
    """The gradient of what `shared` gave to each batch and head."""
    if x.shape[1] != heads:
        x = x.unflatten(1, (heads, -1)).sum(2)
    return x if x.shape[0] == batches else x.sum(0, keepdim=True)

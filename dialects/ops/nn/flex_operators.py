"""flex_attention and its gradients on whole matrices of scores, in the order of operations of PyTorch's own dense form.

    scores = (q @ k^T) * scale                                     flex_scores    [B, H, L, S] in float32, of float64 in float64
    seen, changed = mask_mod(places), score_mod(scores, places)    plain operators
    out = softmax(where(seen, changed, -inf)) @ v                  flex_attend

These functions are operators too, `torch.ops.mlirc.flex_scores` and so on: a graph that calls them has score_mod and mask_mod as plain
operators between two calls, which the pass fuse-flex-attention makes one kernel of. Nothing of [B, H, L, S] is in memory then.

A block mask is the lists [counts, indices], or [counts, indices, full counts, full indices] of blocks of which everything is seen. For
each block of `rows` queries
    counts    [B or 1, H or 1, blocks of queries] says how many blocks of `columns` keys are listed
    indices   [B or 1, H or 1, blocks of queries, blocks of keys] has their numbers first
mask_mod is asked within the blocks of the first two. What is not listed is hidden.
"""

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

NOTHING = -math.inf
LN2 = math.log(2)
Blocks = Sequence[torch.Tensor]


def flex_scores(q: torch.Tensor, k: torch.Tensor, scale: float) -> torch.Tensor:
    """The scores before score_mod; keys of fewer heads or of one batch are shared."""
    wide = wide_dtype(q)
    scores = by_head(q.to(wide), k.to(wide).transpose(-2, -1)) * scale
    return scores.to(wide)


def flex_attend(
    scores: torch.Tensor,
    seen: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    blocks: Blocks,
    rows: Any,
    columns: Any,
    scale: float,
    order: Sequence[int],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The result [B, H, L, Dv], and in base two for each row the logarithm of the sum of the exponentials and the largest score.

    scores   after score_mod; `seen`, of mask_mod, broadcasts to it
    order    the result's dimensions as they lie in memory, the outermost first
    """
    scores = torch.where(listed(blocks, rows, columns, scores, seen), scores, NOTHING)
    hidden = (scores == NOTHING).all(-1, keepdim=True)
    lse = torch.where(hidden.squeeze(-1), NOTHING, scores.logsumexp(-1))
    weights = torch.where(hidden, 0.0, torch.softmax(scores, -1))
    return laid_out(by_head(weights.to(q.dtype), v.to(q.dtype)), order), lse / LN2, scores.amax(-1) / LN2


def flex_slopes(
    scores: torch.Tensor,
    seen: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor,
    lse: torch.Tensor,
    delta: torch.Tensor,
    blocks: Blocks,
    rows: Any,
    columns: Any,
    scale: float,
) -> torch.Tensor:
    """The gradient of what score_mod gives, [B, H, L, S].

    lse, delta   [B, H, L]: in base two, as `flex_attend` gives it; the sum of out * dout less the gradient of lse, in base e
    """
    weights = weights_of(scores, seen, lse, blocks, rows, columns)
    slopes = by_head(dout.to(weights.dtype), v.to(weights.dtype).transpose(-2, -1))
    return weights * (slopes - delta.unsqueeze(-1))


def flex_gradients(
    slopes: torch.Tensor,
    scores: torch.Tensor,
    seen: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor,
    lse: torch.Tensor,
    delta: torch.Tensor,
    blocks: Blocks,
    transposed: Blocks,
    rows: Any,
    columns: Any,
    scale: float,
    orders: Sequence[int],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of q, k and v.

    slopes      the gradient of the scores before score_mod
    transposed  the lists of `blocks` the other way: for each block of keys the blocks of queries that see it
    orders      the dimensions of each gradient as they lie in memory
    """
    first, heads = k.shape[0], k.shape[1]
    weights = weights_of(scores, seen, lse, blocks, rows, columns)
    dv = weights.to(q.dtype).transpose(-2, -1) @ dout
    slopes = torch.where(listed(blocks, rows, columns, scores, seen), (slopes * scale).to(q.dtype), 0)
    dq, dk = by_head(slopes, k), slopes.transpose(-2, -1) @ q
    made = dq, summed(dk, first, heads), summed(dv, first, heads)
    dq, dk, dv = (laid_out(x, orders[4 * n : 4 * n + 4]) for n, x in enumerate(made))
    return dq, dk, dv


# ---- parts


def wide_dtype(q: torch.Tensor) -> torch.dtype:
    """The dtype of scores."""
    return torch.float64 if q.dtype == torch.float64 else torch.float32


def weights_of(
    scores: torch.Tensor, seen: torch.Tensor, lse: torch.Tensor, blocks: Blocks, rows: Any, columns: Any
) -> torch.Tensor:
    """The softmax, recomputed: `lse` is rounded, and a row's weights would be too large or too small together, but for their sum."""
    scores = torch.where(listed(blocks, rows, columns, scores, seen), scores, NOTHING)
    lse = (lse * LN2).unsqueeze(-1)
    weights = torch.exp(scores - lse)
    return torch.where(lse == NOTHING, 0.0, weights / weights.sum(-1, keepdim=True))


def listed(blocks: Blocks, rows: Any, columns: Any, scores: torch.Tensor, by_element: torch.Tensor) -> torch.Tensor:
    """Which keys the queries see: a block is listed partial, and `by_element` is true, or it is listed full."""
    queries, keys = (torch.arange(scores.shape[d], device=scores.device) for d in (2, 3))
    seen = in_list(blocks[0], blocks[1], queries // rows, keys // columns) & by_element
    return seen if len(blocks) == 2 else seen | in_list(blocks[2], blocks[3], queries // rows, keys // columns)


def in_list(counts: torch.Tensor, indices: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """Whether a block of queries lists a block of keys: [B or 1, H or 1, L or 1, S or 1] for the blocks of each row and column."""
    places = torch.arange(indices.shape[3], device=indices.device)
    valid = places < counts.unsqueeze(-1)
    blocks = ((indices.unsqueeze(-1) == places) & valid.unsqueeze(-1)).any(3)  # [B or 1, H or 1, blocks, blocks]
    if blocks.shape[2] != 1:
        blocks = blocks[:, :, rows]
    return blocks if blocks.shape[3] == 1 else blocks[..., columns]


def by_head(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x @ y for each batch and head of x. Heads of x that share one of y are rows of one matmul: y is read where it is."""
    y = y.expand(x.shape[0], -1, -1, -1)
    group = x.shape[1] // y.shape[1]
    if group == 1:
        return x @ y
    together = x.reshape(x.shape[0], y.shape[1], group * x.shape[2], x.shape[3])
    return (together @ y).reshape(*x.shape[:3], y.shape[3])


def summed(x: torch.Tensor, batches: Any, heads: int) -> torch.Tensor:
    """The sum of the gradients that batches and heads of the query give to keys or values which they share."""
    if x.shape[1] != heads:
        x = x.unflatten(1, (heads, -1)).sum(2)
    return x if x.shape[0] == batches else x.sum(0, keepdim=True)


def laid_out(x: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """The tensor with its dimensions in that order in memory."""
    return x.permute(*order).contiguous().permute([list(order).index(d) for d in range(len(order))])


# ---- as operators

_LISTS = "Tensor[] blocks, SymInt rows, SymInt columns, float scale"
_SCHEMAS: dict[Callable, str] = {
    flex_scores: "(Tensor q, Tensor k, float scale) -> Tensor",
    flex_attend: f"(Tensor scores, Tensor seen, Tensor q, Tensor k, Tensor v, {_LISTS}, int[] order) -> (Tensor, Tensor, Tensor)",
    flex_slopes: f"(Tensor scores, Tensor seen, Tensor q, Tensor k, Tensor v, Tensor dout, Tensor lse, Tensor delta, {_LISTS}) -> Tensor",
    flex_gradients: "(Tensor slopes, Tensor scores, Tensor seen, Tensor q, Tensor k, Tensor v, Tensor dout, Tensor lse, Tensor delta, "
    "Tensor[] blocks, Tensor[] transposed, SymInt rows, SymInt columns, float scale, int[] orders) -> (Tensor, Tensor, Tensor)",
}


def fake_scores(q: torch.Tensor, k: torch.Tensor, scale: float) -> torch.Tensor:
    return q.new_empty((*q.shape[:3], k.shape[2]), dtype=wide_dtype(q))


def fake_attend(
    scores: torch.Tensor, seen: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any
):
    one_size(v, k)
    one_size_of_lists(rest[0])
    out = laid_out(q.new_empty((*q.shape[:3], v.shape[3])), rest[-1])
    return out, *(scores.new_empty(q.shape[:3]) for _ in range(2))


def one_size(x: torch.Tensor, y: torch.Tensor) -> None:
    """Tells PyTorch that the first three sizes are equal, of which it may have several names in one graph. Raises RuntimeError."""
    for have, wanted in zip(x.shape[:3], y.shape[:3], strict=True):
        torch._check(have == wanted, lambda: f"{list(x.shape)} and {list(y.shape)} begin with different sizes")


def one_size_of_lists(blocks: Blocks) -> None:
    """Tells PyTorch that each list's counts and indices begin with the same three sizes. Raises RuntimeError."""
    for counts, indices in zip(blocks[::2], blocks[1::2], strict=True):
        one_size(counts, indices)


def fake_slopes(scores: torch.Tensor, *rest: Any) -> torch.Tensor:
    return torch.empty_like(scores, memory_format=torch.contiguous_format)


def fake_gradients(
    slopes: torch.Tensor,
    scores: torch.Tensor,
    seen: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *rest: Any,
):
    one_size(v, k)
    for blocks in rest[3:5]:  # by key and by query
        one_size_of_lists(blocks)
    made = (q.new_empty(x.shape) for x in (q, k, v))
    return tuple(laid_out(x, rest[-1][4 * n : 4 * n + 4]) for n, x in enumerate(made))


def _register() -> None:
    """Registers the operators, or what an interrupted load of this module left out.

    Fake tensors run the kernel for Meta. `register_fake` takes 25 ms of a first call: it asks which module its caller's source is of, for
    which Python looks at the files of all modules.
    """
    held = vars(sys.modules[str(__package__)])
    library = held.setdefault("flex_library", torch.library.Library("mlirc", "FRAGMENT"))
    for function, fake in zip(_SCHEMAS, (fake_scores, fake_attend, fake_slopes, fake_gradients), strict=True):
        name = function.__name__
        _once(library.define, f"{name}{_SCHEMAS[function]}")
        for key, kernel in (("CPU", function), ("CUDA", function), ("Meta", fake)):
            _once(library.impl, name, kernel, key)


def _once(register: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Does nothing where PyTorch says that this was registered before."""
    try:
        register(*args, **kwargs)
    except RuntimeError as error:
        if not any(words in str(error) for words in ("already", "multiple times")):
            raise


_register()

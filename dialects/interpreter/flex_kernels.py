"""Executes attention with a body (dialects/ops/nn/flex_attention.py) on whole matrices of scores."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.interpreter.kernels import run_kernel
from mlirc.dialects.ops.nn import flex_operators as dense

ALL = 1 << 30  # the sizes of a block that has every query and key


def run_flex(op: Any, name: str, inputs: Sequence[torch.Tensor], values: Mapping[str, int]) -> list[torch.Tensor]:
    """The results of an op of FLEX, or of a call of one. `values` are those of symbols. Raises IndexError where the body does."""
    full, rows, columns, scale = (attribute_value(op.attributes[n]) for n in ("full", "rows", "columns", "scale"))
    q, k, v = inputs[:3]
    count = 3 if name == "flex_attention" else 6
    lists, captured = inputs[count : count + 2 + 2 * full], inputs[count + 2 + 2 * full :]
    scores = dense.flex_scores(q, k, scale)

    def body(*virtual: torch.Tensor) -> list[torch.Tensor]:
        made = [torch.empty_like(scores), torch.empty_like(scores, dtype=torch.bool)]
        made += [torch.empty_like(scores)] * (len(virtual) - 1)
        run_kernel(op, [*virtual, *captured], made, values)
        return made

    if name == "flex_attention":
        changed, seen = body(scores)
        return list(dense.flex_attend(changed, seen, q, k, v, lists, rows, columns, scale, range(4)))
    changed, seen, _ = body(scores, torch.zeros_like(scores))
    seen = listed(lists, rows, columns, scores, seen, name)
    lists, rows, columns = [torch.ones(1, 1, 1), torch.zeros(1, 1, 1, 1)], ALL, ALL
    dout, lse, delta = inputs[3:6]
    slopes = dense.flex_slopes(changed, seen, q, k, v, dout, lse, delta, lists, rows, columns, scale)
    slopes = body(scores, slopes)[2]
    orders = [*range(4)] * 3
    blocks = lists, lists, rows, columns, scale, orders
    made = dense.flex_gradients(slopes, changed, seen, q, k, v, dout, lse, delta, *blocks)
    return list(made[:1] if name == "flex_attention_query_gradient" else made[1:])


def listed(
    lists: Sequence[torch.Tensor], rows: int, columns: int, scores: torch.Tensor, seen: torch.Tensor, name: str
) -> torch.Tensor:
    """Which keys the queries see, by lists of keys or of queries."""
    if name == "flex_attention_query_gradient":
        return dense.listed(lists, rows, columns, scores, seen)
    return dense.listed(lists, columns, rows, scores.mT, seen.mT).mT

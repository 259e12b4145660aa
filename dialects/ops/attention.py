"""Attention whole: softmax(scale * q @ k^T + mask) @ v for every head. Which code runs it is chosen once its mask is known."""

from collections.abc import Sequence
from typing import Any

import torch

from mlirc.dialects import aten_arguments
from mlirc.dialects.bindings import ext, ir
from mlirc.dialects.dialect import Op, create, imports
from mlirc.dialects.graph_builder import NotOurs
from mlirc.dialects.import_arguments import need_floats
from mlirc.dialects.tensor_types import TensorInfo, info_of, opmath, type_of

aten = torch.ops.aten
CAUSAL = ("none", "upper_left", "lower_right")
FLASH = "aten._scaled_dot_product_flash_attention_for_cpu.default"


class Attention(Op, name="attention", traits=[ext.Pure]):
    """For q [B, H, L, D], k [B, G, S, D], v [B, G, S, Dv] with any strides: the result [B, H, L, Dv], and for each row the
    logarithm of the sum of the exponentials, float32 or wider, [B, H, L]. Head h reads keys and values h // (H / G).

    mask     none or one operand [B or 1, H or 1, L or 1, S or 1]: booleans, true for what is seen, or numbers to add
    causal   "none"; "upper_left": query i sees the keys up to i; "lower_right": up to i + S - L
    A row that sees nothing gives 0 for both results. What a masked key holds does not matter, even if it is NaN.
    """

    q: ext.Operand[Any]
    k: ext.Operand[Any]
    v: ext.Operand[Any]
    mask: Sequence[ext.Operand[Any]]
    scale: ir.FloatAttr
    causal: ir.StringAttr
    out: ext.Result[Any]
    lse: ext.Result[Any]

    @staticmethod
    def reference(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        mask: torch.Tensor | None = None,
        *,
        scale: float,
        causal: str,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        wide = opmath(q.dtype)
        group = q.shape[1] // k.shape[1]
        keys, values = (x.to(wide).repeat_interleave(group, 1) for x in (k, v))
        scores = q.to(wide) @ keys.transpose(-1, -2) * scale
        if causal != "none":
            rows, columns = scores.shape[-2:]
            diagonal = columns - rows if causal == "lower_right" else 0
            seen = torch.ones(rows, columns, dtype=torch.bool).tril(diagonal)
            scores = scores.masked_fill(~seen, float("-inf"))
        if mask is not None and mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, float("-inf"))
        elif mask is not None:
            scores = scores + mask.to(wide)
        nothing = (scores == float("-inf")).all(-1, keepdim=True)
        powers = torch.softmax(scores, -1).masked_fill(nothing, 0)
        return (powers @ values).to(q.dtype), scores.logsumexp(-1).masked_fill(nothing.squeeze(-1), 0)


@imports(aten._scaled_dot_product_flash_attention_for_cpu.default)
def flash_attention(g, q, k, v, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    need_floats(q, k, v)
    if dropout_p != 0.0:
        raise NotOurs("attention with dropout")
    if not may_match(info_of(k), info_of(v)):
        raise NotOurs(f"attention over keys {info_of(k).shape} and values {info_of(v).shape}")
    head = info_of(q).shape[3]
    if scale is None:
        if not isinstance(head, int):
            raise NotOurs("attention whose scale depends on a symbolic size")
        scale = head**-0.5
    mask = [] if attn_mask is None else [four_dimensions(g, attn_mask)]
    return attention([q, k, v, *mask], g.outs, scale, "upper_left" if is_causal else "none")


def attention(
    operands: Sequence[ir.Value], results: Sequence[TensorInfo | None], scale: float, causal: str
) -> list[ir.Value]:
    """A `mlirc.attention` whose results are laid out like `results`."""
    types = [type_of(info) for info in results if info is not None]
    return list(create("attention", list(operands), types, {"scale": float(scale), "causal": causal}).results)


def may_match(k: TensorInfo, v: TensorInfo) -> bool:
    """Whether keys and values are of the same batches, heads and number: one may carry a symbol of its own for that, as
    the two tensors of a growing cache do. As in eager, the keys' is then taken on trust."""
    sizes = k.shape[2], v.shape[2]
    return k.shape[:2] == v.shape[:2] and (sizes[0] == sizes[1] or not all(isinstance(n, int) for n in sizes))


def four_dimensions(g, mask: ir.Value) -> ir.Value:
    while info_of(mask).rank < 4:
        mask = g.unsqueeze(mask, 0)
    return mask


def aten_call(op: Any) -> list[ir.Value]:
    """The op as a call of ATen's own kernel for the CPU, which has no lower-right diagonal."""
    operands = list(op.operands)
    args = (*operands[:3], 0.0, op.causal.value == "upper_left")
    kwargs: dict[str, Any] = {"scale": op.scale.value}
    if len(operands) > 3:
        kwargs["attn_mask"] = operands[3]
    text = aten_arguments.encode(args, kwargs, operands.index, [])
    attributes = {"op": FLASH, "args": text, "aliases": "-1, -1"}
    return list(create("aten", operands, [r.type for r in op.results], attributes).operation.results)

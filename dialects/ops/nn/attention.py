"""Attention whole: softmax(scale * q @ k^T + mask) @ v for every head. Which code runs it is chosen once its mask is known."""

from collections.abc import Sequence
from typing import Any

import torch

from mlirc.dialects.core import aten_arguments
from mlirc.dialects.core.bindings import ext, ir
from mlirc.dialects.core.dialect import Op, create, imports
from mlirc.dialects.core.graph_builder import NotOurs
from mlirc.dialects.core.import_arguments import need_floats
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, opmath, type_of

aten = torch.ops.aten
CAUSAL = ("none", "upper_left", "lower_right")
FLASH = "aten._scaled_dot_product_flash_attention_for_cpu.default"
FLASH_BACKWARD = "aten._scaled_dot_product_flash_attention_for_cpu_backward.default"


class Attention(Op, name="attention", traits=[ext.Pure]):
    """For q [B, H, L, D], k [B, G, S, D], v [B, G, S, Dv] with any strides: the result [B, H, L, Dv], and for each row the
    logarithm of the sum of the exponentials, float32 or wider, [B, H, L]. Head h reads keys and values h // (H / G).

    mask     none or one operand [B or 1, H or 1, L or 1, S or 1]: booleans, true for what is seen, or numbers to add
    causal   "none"; "upper_left": query i sees the keys up to i; "lower_right": up to i + S - L
    A row that sees no key gives 0 for both results. A masked key has no effect, even if it is NaN.
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
        values = repeated(v, q)
        scores = masked_scores(q, k, mask, scale, causal)
        nothing = (scores == float("-inf")).all(-1, keepdim=True)
        exponentials = torch.softmax(scores, -1).masked_fill(nothing, 0)
        return (exponentials @ values).to(q.dtype), scores.logsumexp(-1).masked_fill(nothing.squeeze(-1), 0)


class AttentionBackward(Op, name="attention_backward", traits=[ext.Pure]):
    """The gradients of an `attention` with the results `out` and `lse`, given that of `out`: dq, dk and dv, in the dtypes and
    sizes of q, k and v. Keys and values that several heads share have the sum of their gradients. Masked ones have no effect.

    mask, scale, causal   as those of `attention`
    work                  scratch of the kernel: [B, H, L, 1] float32 or wider, the sum of dout * out of each row; in half
                          types [B, H, L, 1 + D]: dq before it is rounded comes after it
    """

    dout: ext.Operand[Any]
    q: ext.Operand[Any]
    k: ext.Operand[Any]
    v: ext.Operand[Any]
    out: ext.Operand[Any]
    lse: ext.Operand[Any]
    mask: Sequence[ext.Operand[Any]]
    scale: ir.FloatAttr
    causal: ir.StringAttr
    dq: ext.Result[Any]
    dk: ext.Result[Any]
    dv: ext.Result[Any]
    work: ext.Result[Any]

    @staticmethod
    def reference(
        dout: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor,
        lse: torch.Tensor,
        mask: torch.Tensor | None = None,
        *,
        scale: float,
        causal: str,
    ) -> tuple[torch.Tensor, ...]:
        wide, shared = opmath(q.dtype), k.shape[:2]
        scores = masked_scores(q, k, mask, scale, causal)
        exponentials = (scores - lse.unsqueeze(-1)).exp()
        delta = (dout.to(wide) * out.to(wide)).sum(-1, keepdim=True)
        slopes = exponentials * (dout.to(wide) @ repeated(v, q).transpose(-1, -2) - delta)
        slopes = torch.where(scores == float("-inf"), (lse - lse).unsqueeze(-1), slopes) * scale
        dq = slopes @ repeated(k, q)
        dk, dv = slopes.transpose(-1, -2) @ q.to(wide), exponentials.transpose(-1, -2) @ dout.to(wide)
        dk, dv = (x.unflatten(1, (shared[1], -1)).sum(2).to(q.dtype) for x in (dk, dv))
        return dq.to(q.dtype), dk, dv, delta if wide == q.dtype else torch.cat([delta, dq], -1)


def repeated(x: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Keys or values for every head of the query, in float32 or wider."""
    return x.to(opmath(x.dtype)).repeat_interleave(q.shape[1] // x.shape[1], 1)


def masked_scores(
    q: torch.Tensor, k: torch.Tensor, mask: torch.Tensor | None, scale: float, causal: str
) -> torch.Tensor:
    """[B, H, L, S], float32 or wider; -inf where a query does not see a key."""
    scores = q.to(opmath(q.dtype)) @ repeated(k, q).transpose(-1, -2) * scale
    if causal != "none":
        rows, columns = scores.shape[-2:]
        diagonal = columns - rows if causal == "lower_right" else 0
        seen = torch.ones(rows, columns, dtype=torch.bool).tril(diagonal)
        scores = scores.masked_fill(~seen, float("-inf"))
    if mask is not None and mask.dtype == torch.bool:
        return scores.masked_fill(~mask, float("-inf"))
    return scores if mask is None else scores + mask.to(scores.dtype)


@imports(aten._scaled_dot_product_flash_attention_for_cpu.default)
def flash_attention(g, q, k, v, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    scale = known_scale(q, k, v, dropout_p, scale)
    mask = [] if attn_mask is None else [four_dimensions(g, attn_mask)]
    return attention([q, k, v, *mask], g.outs, scale, "upper_left" if is_causal else "none")


@imports(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
def flash_attention_backward(g, dout, q, k, v, out, lse, dropout_p, is_causal, *, attn_mask=None, scale=None):
    scale = known_scale(q, k, v, dropout_p, scale)
    mask = [] if attn_mask is None else [four_dimensions(g, attn_mask)]
    causal = "upper_left" if is_causal else "none"
    return attention_backward([dout, q, k, v, out, lse, *mask], g.outs, scale, causal)[:3]


def known_scale(q: ir.Value, k: ir.Value, v: ir.Value, dropout_p: float, scale: float | None) -> float:
    """Raises NotOurs for what ATen's operators take and ours do not."""
    need_floats(q, k, v)
    if dropout_p != 0.0:
        raise NotOurs("attention with dropout")
    if not may_match(info_of(k), info_of(v)):
        raise NotOurs(f"attention over keys {info_of(k).shape} and values {info_of(v).shape}")
    if any(info_of(q).shape[d] != info_of(k).shape[d] for d in (0, 3)):
        raise NotOurs(f"attention over keys {info_of(k).shape} for queries {info_of(q).shape}")
    if not shares_heads(info_of(q), info_of(k)):
        raise NotOurs(
            f"attention of {info_of(q).shape[1]} heads that share {info_of(k).shape[1]}, for all that is known"
        )
    head = info_of(q).shape[3]
    if scale is not None:
        return scale
    if not isinstance(head, int):
        raise NotOurs("attention whose scale depends on a symbolic size")
    if not head:
        raise NotOurs("attention of heads without elements")
    return head**-0.5


def attention(
    operands: Sequence[ir.Value], results: Sequence[TensorInfo | None], scale: float, causal: str
) -> list[ir.Value]:
    """A `mlirc.attention` whose results are laid out like `results`."""
    types = [type_of(info) for info in results if info is not None]
    return list(create("attention", list(operands), types, {"scale": float(scale), "causal": causal}).results)


def attention_backward(
    operands: Sequence[ir.Value], results: Sequence[TensorInfo | None], scale: float, causal: str
) -> list[ir.Value]:
    """A `mlirc.attention_backward` whose gradients are laid out like `results`."""
    q = info_of(operands[1])
    wide = opmath(q.dtype)
    shape = (*q.shape[:3], 1 if wide == q.dtype else 1 + q.shape[3])
    infos = [*results, TensorInfo(wide, shape, device=q.device)]
    types = [type_of(info) for info in infos if info is not None]
    made = create("attention_backward", list(operands), types, {"scale": float(scale), "causal": causal})
    return list(made.results)


def may_match(k: TensorInfo, v: TensorInfo) -> bool:
    """Whether keys and values are of the same batches, heads and number: one may carry a symbol of its own for that, as
    the two tensors of a growing cache do. As in eager, the keys' is then taken on trust."""
    sizes = k.shape[2], v.shape[2]
    return k.shape[:2] == v.shape[:2] and (sizes[0] == sizes[1] or not all(isinstance(n, int) for n in sizes))


def shares_heads(q: TensorInfo, k: TensorInfo) -> bool:
    """Whether the query has as many heads as the keys for all sizes, or a multiple that is a number."""
    heads, shared = q.shape[1], k.shape[1]
    return heads == shared or (
        isinstance(heads, int) and isinstance(shared, int) and shared > 0 and heads % shared == 0
    )


def four_dimensions(g, mask: ir.Value) -> ir.Value:
    while info_of(mask).rank < 4:
        mask = g.unsqueeze(mask, 0)
    return mask


def aten_call(op: Any) -> list[ir.Value]:
    """The op as a call of ATen's own kernel for the CPU, which has no lower-right diagonal."""
    backward = op.operation.name == "mlirc.attention_backward"
    operands, needed = list(op.operands), 6 if backward else 3
    args = (*operands[:needed], 0.0, op.causal.value == "upper_left")
    kwargs: dict[str, Any] = {"scale": op.scale.value}
    if len(operands) > needed:
        kwargs["attn_mask"] = operands[needed]
    text = aten_arguments.encode(args, kwargs, operands.index, [])
    results = list(op.results)[:3] if backward else list(op.results)
    attributes = {
        "op": FLASH_BACKWARD if backward else FLASH,
        "args": text,
        "aliases": ", ".join(["-1"] * len(results)),
    }
    return list(create("aten", operands, [r.type for r in results], attributes).operation.results)

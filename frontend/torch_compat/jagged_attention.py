"""Attention of jagged tensors on a CPU, in a graph that mlirc compiles.

PyTorch computes it one sequence at a time, by their lengths, which a graph for all lengths cannot do: it ends the graph there. Here it is
attention of padded tensors, whose mask hides the padding. What surrounds it is computed for the rows that there are.
"""

import functools
import sys
from typing import Any

import torch
from torch.nn import functional

from mlirc.codegen.abi.reach import Missing, reach

aten = torch.ops.aten
OPS = "torch.nested._internal.ops"


@reach("jagged-attention", instead="a graph ends where jagged tensors attend on a CPU")
def pad_jagged_attention() -> bool:
    """Wraps PyTorch's function for attention of jagged tensors.

    The module that calls it, OPS, takes it from where it is defined. It is wrapped there, as OPS takes a while to load, and in OPS if that is
    loaded already.
    """
    from torch._dynamo.eval_frame import innermost_backend
    from torch._dynamo.symbolic_convert import InstructionTranslator
    from torch.nested._internal import sdpa
    from torch.nn.attention import SDPBackend

    original: Any = sdpa.jagged_scaled_dot_product_attention
    if not {"_autocast", "_select_sdp_backend", "MATH"} <= set(original.__code__.co_names):
        raise Missing("it computes attention of jagged tensors in another way")

    def is_ours() -> bool:
        """Whether Dynamo traces for a backend of mlirc's."""
        if not torch.compiler.is_compiling():
            return False
        try:
            tracer = InstructionTranslator.current_tx()
        except AttributeError:  # nobody traces in this thread
            return False
        compiler: Any = tracer.output.compiler_fn
        given: Any = innermost_backend(compiler)
        return str(getattr(getattr(given, "compiler_fn", given), "__module__", "")).startswith("mlirc.")

    @functools.wraps(original)
    def attend(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        given = attn_mask, dropout_p, is_causal, scale, enable_gqa
        if is_ours() and attn_mask is None and not (dropout_p or is_causal or enable_gqa):
            q, k, v, _ = sdpa._autocast(query, key, value, None)
            choice = (q, k, v, None, dropout_p, is_causal, enable_gqa)
            if all(map(is_padded, (q, k, v))) and sdpa._select_sdp_backend(*choice) == SDPBackend.MATH:
                return attention(q, k, v, scale)
        return original(query, key, value, *given)

    for module in (sdpa, sys.modules.get(OPS)):
        if getattr(module, original.__name__, None) is original:
            setattr(module, original.__name__, attend)
    return True


def is_padded(x: Any) -> bool:
    """Whether it is [batch, heads, a length for each, size] on a CPU, and the longest is known."""
    if not x.is_nested or x.layout is not torch.jagged or x.device.type != "cpu" or x.dim() != 4:
        return False
    return x._ragged_idx == 2 and x.lengths() is None and x._maybe_max_seqlen is not None


def attention(query: Any, key: Any, value: Any, scale: float | None) -> Any:
    from torch.nested._internal.nested_tensor import nested_view_from_values_offsets

    q, k, v = map(padded, (query, key, value))
    seen = torch.arange(k.shape[2], device=k.device) < key.offsets().diff().unsqueeze(1)
    out = functional.scaled_dot_product_attention(q, k, v, seen[:, None, None], scale=scale)
    rows = _Rows.apply(out.transpose(1, 2).flatten(2), query.offsets(), query.values().shape[1])
    rows = rows.unflatten(-1, (out.shape[1], out.shape[3]))
    lengths = {"min_seqlen": query._maybe_min_seqlen, "max_seqlen": query._maybe_max_seqlen}
    return nested_view_from_values_offsets(rows, query.offsets(), **lengths).transpose(1, 2)


def padded(x: Any) -> torch.Tensor:
    """[batch, heads, the longest length, size], with zeros behind shorter sequences."""
    rows = x.transpose(1, 2).values()
    dense = _Padded.apply(rows.flatten(1), x.offsets(), x._maybe_max_seqlen)
    return dense.unflatten(-1, rows.shape[1:]).transpose(1, 2)


class _Padded(torch.autograd.Function):
    """Rows of sequences one after another -> [batch, length, size]."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, offsets: torch.Tensor, length: int) -> torch.Tensor:
        ctx.save_for_backward(offsets)
        ctx.count = rows.shape[0]
        return aten._jagged_to_padded_dense_forward(rows, [offsets], [length])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return aten._padded_dense_to_jagged_forward(gradient, ctx.saved_tensors, ctx.count), None, None


class _Rows(torch.autograd.Function):
    """[batch, length, size] -> rows of sequences one after another."""

    @staticmethod
    def forward(ctx: Any, dense: torch.Tensor, offsets: torch.Tensor, count: int) -> torch.Tensor:
        ctx.save_for_backward(offsets)
        ctx.length = dense.shape[1]
        return aten._padded_dense_to_jagged_forward(dense, [offsets], count)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return aten._jagged_to_padded_dense_forward(gradient, ctx.saved_tensors, [ctx.length]), None, None

"""Attention and rotary embeddings."""

from typing import Any

import torch
import torch.nn.functional as F

from mlirc.frontend.onnx_import.registry import OnnxNode, op
from mlirc.frontend.onnx_import.values import HALVES, OnnxValueError, dtype_of


def _heads(x: torch.Tensor, count: int) -> torch.Tensor:
    return x if x.dim() == 4 else x.reshape(x.shape[0], x.shape[1], count, -1).transpose(1, 2)


@op("Attention")
def attention(
    node: OnnxNode,
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    past_k: Any = None,
    past_v: Any = None,
    lengths: Any = None,
) -> Any:
    """Y, and where wanted the keys, the values and what was asked for of the scores."""
    flat = q.dim() == 3
    if flat and not (node.get("q_num_heads") and node.get("kv_num_heads")):
        raise OnnxValueError("operands of 3 dimensions need q_num_heads and kv_num_heads")
    q = _heads(q, node.get("q_num_heads", 1))
    k, v = (_heads(x, node.get("kv_num_heads", 1)) for x in (k, v))
    before = past_k.shape[2] if past_k is not None else 0
    k = k if past_k is None else torch.cat([past_k, k], 2)
    v = v if past_v is None else torch.cat([past_v, v], 2)
    keys, values = k, v
    if q.shape[1] != k.shape[1]:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    bias = _bias(node, q, k, mask, before, lengths)
    scale = node.get("scale", q.shape[-1] ** -0.5 if q.shape[-1] else 1.0)
    plain = not node.get("softcap", 0.0) and node.wanted < 4 and not node.get("softmax_precision", 0)
    if plain:
        y, scores = F.scaled_dot_product_attention(q, k, v, bias, scale=scale), None
    else:
        y, scores = _written_out(node, q, k, v, bias, scale)
    y = y.transpose(1, 2).reshape(y.shape[0], y.shape[2], -1) if flat else y
    return (y, keys, values, scores)[: max(node.wanted, 1)]


def _bias(node: OnnxNode, q: torch.Tensor, k: torch.Tensor, mask: Any, before: Any, lengths: Any) -> Any:
    """What is added to the scores, or which of them count. None for nothing."""
    rows, columns = q.shape[2], k.shape[2]
    if mask is not None and mask.shape[-1] != columns:
        fill = False if mask.dtype is torch.bool else float("-inf")
        mask = F.pad(mask, [0, columns - mask.shape[-1]], value=fill)
    allowed = None
    if lengths is not None:
        allowed = torch.arange(columns) < lengths.reshape(-1, 1, 1, 1)
    offset = before if lengths is None else (lengths - rows).reshape(-1, 1, 1, 1)
    distance = torch.arange(columns) - (torch.arange(rows).unsqueeze(1) + offset)
    left, right = node.get("left_window_size", -1), node.get("right_window_size", -1)
    windows = [distance <= 0] if node.get("is_causal", 0) else []
    windows += [distance >= -left] if left >= 0 else []
    windows += [distance <= right] if right >= 0 else []
    for window in windows:
        allowed = window if allowed is None else allowed & window
    if allowed is None:
        return mask
    if mask is None:
        return allowed
    if mask.dtype is torch.bool:
        return mask & allowed
    return torch.where(allowed, mask, torch.full((), float("-inf"), dtype=mask.dtype))


def _written_out(node: OnnxNode, q: Any, k: Any, v: Any, bias: Any, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores are given as qk_matmul_output_mode says: raw, capped, with the bias, or after the softmax."""
    root = scale**0.5
    stages = [torch.matmul(q * root, (k * root).transpose(-1, -2))]
    cap = node.get("softcap", 0.0)
    capped = cap * torch.tanh(stages[0] / cap) if cap else stages[0]
    if bias is None:
        biased = capped
    elif bias.dtype is torch.bool:
        biased = torch.where(bias, capped, torch.full((), float("-inf"), dtype=capped.dtype))
    else:
        biased = capped + bias
    precision = node.get("softmax_precision", 0)
    dtype = dtype_of(precision) if precision else torch.float32 if q.dtype in HALVES else q.dtype
    weights = torch.softmax(biased.to(dtype), -1).to(q.dtype)
    empty = torch.isneginf(biased).all(-1, True)
    weights = torch.where(empty, torch.zeros_like(weights), weights)
    asked = node.get("qk_matmul_output_mode", 0)
    return torch.matmul(weights, v), [stages[0], capped, biased, weights][asked]


@op("RotaryEmbedding")
def rotary_embedding(node: OnnxNode, x: torch.Tensor, cos: Any, sin: Any, positions: Any = None) -> torch.Tensor:
    """Halves of a head are rotated, or with `interleaved` neighbours; what lies beyond rotary_embedding_dim stays."""
    flat = x.dim() == 3
    if flat and not node.get("num_heads"):
        raise OnnxValueError("an operand of 3 dimensions needs num_heads")
    y = x.reshape(x.shape[0], x.shape[1], node.get("num_heads"), -1) if flat else x.transpose(1, 2)
    width = node.get("rotary_embedding_dim", 0) or y.shape[-1]
    rotated, rest = y[..., :width], y[..., width:]
    if positions is not None:
        cos, sin = F.embedding(positions, cos), F.embedding(positions, sin)
    cos, sin = (t[..., : width // 2].unsqueeze(2) for t in (cos, sin))
    if node.get("interleaved", 0):
        a, b = rotated[..., 0::2], rotated[..., 1::2]
        found = torch.stack([a * cos - b * sin, a * sin + b * cos], -1).reshape(rotated.shape)
    else:
        a, b = rotated.chunk(2, -1)
        found = torch.cat([a * cos - b * sin, a * sin + b * cos], -1)
    found = torch.cat([found, rest], -1) if width != y.shape[-1] else found
    return found.reshape(x.shape) if flat else found.transpose(1, 2)

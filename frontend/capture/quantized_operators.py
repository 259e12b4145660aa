"""Operators of `torch.ops.quantized_decomposed`, which models of the PT2E flow have, in terms of ATen's.

PyTorch writes them in Python for eager, with `.item()` of scales that are tensors. The arithmetic here is the same, so that results are, too, and
kernels compute it. Whatever eager would refuse stays as it is.
"""

from collections.abc import Callable
from typing import Any

import torch

HALVES = (torch.float16, torch.bfloat16)


def quantized_operators() -> dict[Any, Callable[..., Any]]:
    """Decompositions of those that are registered: torch.ao or torchao defines them when it is imported."""
    found = {}
    for name, overloads, parts in (
        ("quantize_per_tensor", ("default", "tensor", "tensor2"), quantize),
        ("dequantize_per_tensor", ("default", "tensor", "tensor2"), dequantize),
        ("quantize_per_channel", ("default",), quantize_channels),
        ("dequantize_per_channel", ("default",), dequantize_channels),
    ):
        packet = getattr(torch.ops.quantized_decomposed, name, None)
        found |= {getattr(packet, overload): parts for overload in overloads if hasattr(packet, overload)}
    return found


def quantize(x: torch.Tensor, scale: Any, zero: Any, low: Any, high: Any, dtype: torch.dtype) -> Any:
    """clamp(round(x / scale) + zero, low, high)."""
    if x.dtype not in (torch.float32, *HALVES):
        return NotImplemented
    scale, zero, low, high = map(number, (scale, zero, low, high))
    return torch.clamp(torch.round(x.float() * (1.0 / scale)) + zero, low, high).to(dtype)


def dequantize(
    x: torch.Tensor,
    scale: Any,
    zero: Any,
    low: Any,
    high: Any,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Any:
    """(x - zero) * scale."""
    if x.dtype != dtype:
        return NotImplemented
    return (x.to(out_dtype or torch.float32) - number(zero)) * number(scale)


def quantize_channels(
    x: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor, axis: int, low: int, high: int, dtype: torch.dtype
) -> Any:
    """As `quantize`, with numbers for each channel along an axis."""
    if x.dtype not in (torch.float32, *HALVES) or not -x.dim() <= axis < x.dim():
        return NotImplemented
    scales, zeros = along(scales, x, axis), along(zeros, x, axis)
    return torch.clamp(torch.round(x.float() * (1.0 / scales)) + zeros, low, high).to(dtype)


def dequantize_channels(
    x: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor | None,
    axis: int,
    low: int,
    high: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Any:
    """As `dequantize`, with numbers for each channel along an axis. The difference is one of integers."""
    if x.dtype != dtype or not -x.dim() <= axis < x.dim():
        return NotImplemented
    moved = x if zeros is None else x - along(zeros, x, axis)
    return (moved * along(scales, x, axis)).to(out_dtype or torch.float32)


def number(x: Any) -> Any:
    """A number, or a tensor of one element as eager's `.item()` gives it: of 64 bits, and of no dimensions."""
    if not isinstance(x, torch.Tensor):
        return x
    return x.reshape(()).to(torch.float64 if x.is_floating_point() else torch.int64)


def along(x: torch.Tensor, other: torch.Tensor, axis: int) -> torch.Tensor:
    return x.view([-1 if k == axis % other.dim() else 1 for k in range(other.dim())])

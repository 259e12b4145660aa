"""Quantised values: to integers and back, and products of them."""

from typing import Any

import torch

from mlirc.frontend.onnx_import.ops.convolution import integer_convolution
from mlirc.frontend.onnx_import.ops.elementwise import cast
from mlirc.frontend.onnx_import.registry import OnnxNode, op
from mlirc.frontend.onnx_import.values import FLOAT8, NARROW, OnnxValueError, dtype_of, positive


def _spread(p: torch.Tensor, x: torch.Tensor, axis: int, block: int) -> torch.Tensor:
    """A scale or a zero point for each element of `x`: one for all, one an index of the axis, or one a block of it."""
    if p.dim() == 0 or (p.dim() == 1 and p.numel() == 1 and not block):
        return p.reshape(())
    axis = positive(axis, x.dim())
    if not block:
        return p.reshape([-1 if k == axis else 1 for k in range(x.dim())])
    return p.repeat_interleave(block, axis).narrow(axis, 0, x.shape[axis])


def _limits(elem_type: int) -> tuple[int, int]:
    if elem_type in NARROW:
        return NARROW[elem_type]
    found = torch.iinfo(dtype_of(elem_type))
    return found.min, found.max


@op("QuantizeLinear")
def quantize(node: OnnxNode, x: torch.Tensor, scale: torch.Tensor, zero: Any = None) -> torch.Tensor:
    """saturate(round(x / scale) + zero), to the nearest even."""
    axis, block = node.get("axis", 1), node.get("block_size", 0)
    elem_type = node.given[2] if zero is not None else (node.get("output_dtype", 0) or 2)
    if elem_type is None:
        raise OnnxValueError("the element type of its zero point is not known")
    precision = node.get("precision", 0)
    y = x.to(scale.dtype) if precision == 0 else x.to(dtype_of(precision))
    y = y / _spread(scale, x, axis, block).to(y.dtype)
    if dtype_of(elem_type) in FLOAT8:
        return cast(y, elem_type, bool(node.get("saturate", 1)))
    y = torch.round(y.float() if y.dtype is not torch.float64 else y)
    if zero is not None:
        y = y + _spread(zero.to(y.dtype), x, axis, block)
    low, high = _limits(elem_type)
    return torch.clamp(y, low, high).to(torch.int32).to(dtype_of(elem_type))


@op("DequantizeLinear")
def dequantize(node: OnnxNode, x: torch.Tensor, scale: torch.Tensor, zero: Any = None) -> torch.Tensor:
    axis, block = node.get("axis", 1), node.get("block_size", 0)
    dtype = node.dtype(0, "output_dtype") if node.get("output_dtype", 0) else scale.dtype
    wide = torch.float32 if scale.dtype in (torch.float16, torch.bfloat16) else scale.dtype
    if zero is None:
        y = x.to(wide)
    elif x.dtype in FLOAT8:
        y = x.to(wide) - _spread(zero.to(wide), x, axis, block)
    else:
        y = (x.to(torch.int32) - _spread(zero.to(torch.int32), x, axis, block)).to(wide)
    return (y * _spread(scale, x, axis, block).to(wide)).to(dtype)


@op("DynamicQuantizeLinear")
def dynamic_quantize(node: OnnxNode, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    nothing = torch.zeros((), dtype=x.dtype)
    low, high = torch.minimum(x.amin(), nothing), torch.maximum(x.amax(), nothing)
    scale = (high - low) / 255
    zero = torch.round(torch.clamp(-low / scale, 0, 255))
    y = torch.clamp(torch.round(x / scale) + zero, 0, 255)
    return y.to(torch.uint8), scale, zero.to(torch.uint8)


def _requantized(y: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
    limits = torch.iinfo(zero.dtype)
    y = torch.round(y / scale.to(y.dtype)) + zero.to(y.dtype)
    return torch.clamp(y, limits.min, limits.max).to(zero.dtype)


def _rows(p: torch.Tensor, x: torch.Tensor, last: bool) -> torch.Tensor:
    """The parameter `p` in a shape that broadcasts to `x` [..., rows, columns]: a 1-d `p` has a number for each row, or with `last` for
    each column."""
    if p.dim() != 1 or p.numel() == 1 or x.dim() == 1:
        return p if p.dim() > 1 else (p.reshape(()) if p.numel() == 1 else p)
    return p if last else p.unsqueeze(-1)


@op("QLinearMatMul")
def qlinear_matmul(
    node: OnnxNode, a: Any, sa: Any, za: Any, b: Any, sb: Any, zb: Any, sy: Any, zy: Any
) -> torch.Tensor:
    x = a.to(torch.float64) - _rows(za.to(torch.float64), a, False)
    y = b.to(torch.float64) - _rows(zb.to(torch.float64), b, True)
    scale = _rows(sa.to(torch.float64), a, False) * _rows(sb.to(torch.float64), b, True)
    return _requantized(torch.matmul(x, y) * scale, sy, zy)


@op("QLinearConv")
def qlinear_conv(
    node: OnnxNode, x: Any, sx: Any, zx: Any, w: Any, sw: Any, zw: Any, sy: Any, zy: Any, b: Any = None
) -> torch.Tensor:
    y = integer_convolution(node, x, w, zx, zw)
    along = [-1] + [1] * (y.dim() - 2)
    if b is not None:
        y = y + b.to(y.dtype).reshape(along)
    weights = sw.to(y.dtype)
    scale = sx.to(y.dtype) * (weights.reshape(along) if weights.numel() > 1 else weights.reshape(()))
    return _requantized(y * scale, sy, zy)

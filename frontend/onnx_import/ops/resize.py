"""Resize, as one sparse matrix of weights a dimension; and samples of images on a grid."""

import math
from typing import Any

import torch
import torch.nn.functional as F

from mlirc.frontend.onnx_import.registry import OnnxNode, op
from mlirc.frontend.onnx_import.values import OnnxValueError, Value, axes_or_all, numbers, tensor


@op("Resize", "Upsample", raw=True)
def resize(node: OnnxNode, data: Value, roi: Value = None, scales: Value = None, sizes: Value = None) -> torch.Tensor:
    x = tensor(data)
    if node.op == "Upsample":
        roi, scales = None, roi
    axes = axes_or_all(node.get("axes"), x.dim())
    if sizes is not None and numbers(sizes, "sizes"):
        wanted = numbers(sizes, "sizes")
        factors = [w / x.shape[a] for w, a in zip(wanted, axes, strict=True)]
        policy = node.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            factor = min(factors) if policy == "not_larger" else max(factors)
            factors = [factor] * len(axes)
            wanted = [math.floor(factor * int(x.shape[a]) + 0.5) for a in axes]
    else:
        assert scales is not None
        factors = numbers(scales, "scales")
        wanted = [math.floor(f * x.shape[a]) for f, a in zip(factors, axes, strict=True)]
    region = (
        numbers(roi, "roi")
        if roi is not None and node.get("coordinate_transformation_mode") == "tf_crop_and_resize"
        else None
    )
    dtype = x.dtype
    y = x if dtype.is_floating_point else x.float()
    outside = None
    for k, (axis, n, factor) in enumerate(zip(axes, wanted, factors, strict=True)):
        ends = (region[k], region[k + len(axes)]) if region else (0.0, 1.0)
        if isinstance(factor, float | int) and factor == 1.0 and not region:
            continue
        y, beyond = _along(node, y, axis, n, factor, ends)
        if region:
            shape = [-1 if a == axis else 1 for a in range(x.dim())]
            outside = beyond.reshape(shape) if outside is None else outside | beyond.reshape(shape)
    if outside is not None:
        y = torch.where(outside, torch.full((), node.get("extrapolation_value", 0.0), dtype=y.dtype), y)
    return y if dtype.is_floating_point else torch.round(y).to(dtype)


def _along(node: OnnxNode, x: torch.Tensor, axis: int, n: Any, factor: Any, ends: tuple[float, float]) -> Any:
    """One dimension resized to n, and which of its elements lie outside of the region."""
    length = x.shape[axis]
    at = _coordinates(node.get("coordinate_transformation_mode", "half_pixel"), n, length, factor, ends)
    beyond = (at < 0) | (at > length - 1)
    mode = node.get("mode", "nearest")
    if mode == "nearest":
        places = _nearest(node.get("nearest_mode", "round_prefer_floor"), at).clamp(0, length - 1).to(torch.int64)
        return x.index_select(axis, places), beyond
    if mode not in ("linear", "cubic"):
        raise OnnxValueError(f"it has no mode '{mode}'")
    shrink = min(1.0, factor) if node.get("antialias", 0) else 1.0
    support = 1 if mode == "linear" else 2
    reach = math.ceil(support / shrink)
    first = torch.floor(at).to(torch.int64)
    taps = torch.arange(-reach + 1, reach + 1)
    places = first.unsqueeze(1) + taps
    distance = (at.unsqueeze(1) - places.to(at.dtype)).abs() * shrink
    weights = (
        torch.clamp(1 - distance, min=0) if mode == "linear" else _cubic(distance, node.get("cubic_coeff_a", -0.75))
    )
    if node.get("exclude_outside", 0):
        inside = (places >= 0) & (places < length)
        weights = torch.where(inside, weights, torch.zeros_like(weights))
    weights = weights / weights.sum(1, True)
    picked = x.index_select(axis, places.clamp(0, length - 1).reshape(-1))
    picked = picked.reshape(*x.shape[:axis], n, 2 * reach, *x.shape[axis + 1 :])
    shape = [1] * axis + [n, 2 * reach] + [1] * (x.dim() - axis - 1)
    return (picked * weights.to(x.dtype).reshape(shape)).sum(axis + 1), beyond


def _coordinates(mode: str, n: Any, length: Any, factor: Any, ends: tuple[float, float]) -> torch.Tensor:
    """Where in the original each element lies."""
    k = torch.arange(n, dtype=torch.float64)
    if mode == "half_pixel":
        return (k + 0.5) / factor - 0.5
    if mode == "asymmetric":
        return k / factor
    if mode == "pytorch_half_pixel":
        return (k + 0.5) / factor - 0.5 if n > 1 else torch.zeros_like(k)
    if mode == "align_corners":
        whole = factor * length
        return k * (length - 1) / (whole - 1) if n > 1 else torch.zeros_like(k)
    if mode == "half_pixel_symmetric":
        center = length / 2
        return center * (1 - n / (factor * length)) + (k + 0.5) / factor - 0.5
    if mode == "tf_half_pixel_for_nn":
        return (k + 0.5) / factor
    if mode == "tf_crop_and_resize":
        start, end = ends
        if n > 1:
            return start * (length - 1) + k * (end - start) * (length - 1) / (n - 1)
        return torch.zeros_like(k) + 0.5 * (start + end) * (length - 1)
    raise OnnxValueError(f"it has no coordinate_transformation_mode '{mode}'")


def _nearest(mode: str, at: torch.Tensor) -> torch.Tensor:
    if mode == "floor":
        return torch.floor(at)
    if mode == "ceil":
        return torch.ceil(at)
    return torch.ceil(at - 0.5) if mode == "round_prefer_floor" else torch.floor(at + 0.5)


def _cubic(d: torch.Tensor, a: float) -> torch.Tensor:
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return torch.where(d <= 1, near, torch.where(d < 2, far, torch.zeros_like(d)))


@op("GridSample")
def grid_sample(node: OnnxNode, x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    names = {
        "linear": "bilinear",
        "bilinear": "bilinear",
        "nearest": "nearest",
        "cubic": "bicubic",
        "bicubic": "bicubic",
    }
    mode = names[node.get("mode", "linear")]
    if x.dim() == 5 and mode == "bicubic":
        raise OnnxValueError("cubic samples of volumes")
    return F.grid_sample(x, grid, mode, node.get("padding_mode", "zeros"), bool(node.get("align_corners", 0)))


@op("AffineGrid", raw=True)
def affine_grid(node: OnnxNode, theta: Value, size: Value) -> torch.Tensor:
    return F.affine_grid(tensor(theta), numbers(size, "size"), bool(node.get("align_corners", 0)))

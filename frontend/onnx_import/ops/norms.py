"""Norms of batches, layers, groups, instances and rows."""

from typing import Any

import torch
import torch.nn.functional as F

from mlirc.frontend.onnx_import.registry import OnnxNode, op
from mlirc.frontend.onnx_import.values import HALVES, OnnxValueError, positive


@op("BatchNormalization")
def batch_norm(node: OnnxNode, x: torch.Tensor, scale: Any, bias: Any, mean: Any, var: Any) -> Any:
    epsilon = node.get("epsilon", 1e-5)
    if not node.get("training_mode", 0):
        if not x.dtype == scale.dtype == bias.dtype == mean.dtype == var.dtype:
            scale, bias, mean, var = (y.to(x.dtype) for y in (scale, bias, mean, var))
        return F.batch_norm(x, mean, var, scale, bias, False, 0.0, epsilon)
    momentum, others = node.get("momentum", 0.9), [k for k in range(x.dim()) if k != 1]
    now, spread = x.mean(others), x.var(others, correction=0)
    shape = [1, -1] + [1] * (x.dim() - 2)
    y = (x - now.reshape(shape)) * torch.rsqrt(spread + epsilon).reshape(shape)
    y = y * scale.reshape(shape) + bias.reshape(shape)
    return y.to(x.dtype), mean * momentum + now * (1 - momentum), var * momentum + spread * (1 - momentum)


@op("LayerNormalization")
def layer_norm(node: OnnxNode, x: torch.Tensor, scale: torch.Tensor, bias: Any = None) -> Any:
    axis, epsilon = positive(node.get("axis", -1), x.dim()), node.get("epsilon", 1e-5)
    shape = x.shape[axis:]
    if node.wanted < 2 and scale.shape == shape and (bias is None or bias.shape == shape) and scale.dtype == x.dtype:
        return F.layer_norm(x, shape, scale, bias, epsilon)
    axes = list(range(axis, x.dim()))
    wide = x.float() if x.dtype in HALVES and node.get("stash_type", 1) == 1 else x
    mean = wide.mean(axes, True)
    centered = wide - mean
    inverse = torch.rsqrt((centered * centered).mean(axes, True) + epsilon)
    y = (centered * inverse).to(x.dtype) * scale
    return (y if bias is None else y + bias), mean, inverse


@op("RMSNormalization")
def rms_norm(node: OnnxNode, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    axis, epsilon = positive(node.get("axis", -1), x.dim()), node.get("epsilon", 1e-5)
    axes = list(range(axis, x.dim()))
    wide = x.float() if x.dtype in HALVES and node.get("stash_type", 1) == 1 else x
    y = wide * torch.rsqrt((wide * wide).mean(axes, True) + epsilon)
    return (y.to(x.dtype) * scale).to(scale.dtype)


@op("InstanceNormalization")
def instance_norm(node: OnnxNode, x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.group_norm(x, scale.shape[0], scale, bias, node.get("epsilon", 1e-5))


@op("GroupNormalization")
def group_norm(node: OnnxNode, x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Before opset 21 scale and bias have one number a group."""
    groups, epsilon = node.need("num_groups"), node.get("epsilon", 1e-5)
    if node.opset < 21 and scale.shape[0] == groups:
        scale, bias = (y.repeat_interleave(x.shape[1] // groups) for y in (scale, bias))
    if x.dtype in HALVES:
        return F.group_norm(x.float(), groups, scale.float(), bias.float(), epsilon).to(x.dtype)
    return F.group_norm(x, groups, scale, bias, epsilon)


@op("LpNormalization")
def lp_normalize(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    """A row of zeros stays one."""
    axis, p = node.get("axis", -1), node.get("p", 2)
    if p not in (1, 2):
        raise OnnxValueError(f"p is {p}, and may be 1 or 2")
    size = x.abs().sum(axis, True) if p == 1 else (x * x).sum(axis, True).sqrt()
    return torch.where(size == 0, torch.zeros_like(x), x / size)


@op("LRN")
def local_response_norm(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    size = node.need("size")
    low = (size - 1) // 2
    alpha, beta, bias = node.get("alpha", 1e-4), node.get("beta", 0.75), node.get("bias", 1.0)
    shape = x.shape
    flat = (x * x).reshape(shape[0], 1, shape[1], -1)
    sums = F.avg_pool2d(F.pad(flat, [0, 0, low, size - 1 - low]), (size, 1), (1, 1)) * size
    return x / (bias + alpha / size * sums.reshape(shape)) ** beta

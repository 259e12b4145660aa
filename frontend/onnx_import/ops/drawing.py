"""Random numbers. Without a seed they are PyTorch's; those of a seed are the same in each call, and are no other library's."""

from typing import Any

import torch

from mlirc.frontend.onnx_import.registry import OnnxNode, op
from mlirc.frontend.onnx_import.values import OnnxValueError


def _refuse_seed(node: OnnxNode) -> None:
    if "seed" in node.attributes:
        raise OnnxValueError("it has a seed, whose numbers only the runtime that drew them knows")


@op("RandomNormal", "RandomUniform")
def random(node: OnnxNode) -> torch.Tensor:
    return _drawn(node, list(node.need("shape")), node.dtype(1))


@op("RandomNormalLike", "RandomUniformLike")
def random_like(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    return _drawn(node, list(x.shape), node.dtype(0) if "dtype" in node.attributes else x.dtype)


def _drawn(node: OnnxNode, shape: list[Any], dtype: torch.dtype) -> torch.Tensor:
    _refuse_seed(node)
    if node.op.startswith("RandomNormal"):
        return torch.randn(shape, dtype=dtype) * node.get("scale", 1.0) + node.get("mean", 0.0)
    low, high = node.get("low", 0.0), node.get("high", 1.0)
    return torch.rand(shape, dtype=dtype) * (high - low) + low


@op("Bernoulli")
def bernoulli(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    _refuse_seed(node)
    return (torch.rand_like(x) < x).to(node.dtype(0) if "dtype" in node.attributes else x.dtype)


@op("Multinomial")
def multinomial(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    """Draws by unnormalised log probabilities `x`."""
    _refuse_seed(node)
    return torch.multinomial(torch.softmax(x, -1), node.get("sample_size", 1), True).to(node.dtype(6))

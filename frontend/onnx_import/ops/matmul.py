"""Matmuls."""

from typing import Any

import torch

from mlirc.frontend.onnx_import.registry import OnnxNode, op


@op("MatMul")
def matmul(node: OnnxNode, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.matmul(x, y)


@op("Gemm")
def gemm(node: OnnxNode, a: torch.Tensor, b: torch.Tensor, c: Any = None) -> torch.Tensor:
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    a = a.transpose(0, 1) if node.get("transA", 0) else a
    b = b.transpose(0, 1) if node.get("transB", 0) else b
    if not a.dtype.is_floating_point:
        alpha, beta = int(alpha), int(beta)
    if c is not None and c.dim() <= 2 and beta == alpha == 1.0:
        return torch.addmm(c, a, b)
    found = torch.matmul(a, b)
    found = found if alpha == 1 else found * alpha
    return found if c is None else found + (c if beta == 1 else c * beta)


@op("Einsum")
def einsum(node: OnnxNode, *xs: torch.Tensor) -> torch.Tensor:
    return torch.einsum(node.need("equation"), *xs)


@op("Det")
def det(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.det(x)


@op("MatMulInteger")
def matmul_integer(node: OnnxNode, a: torch.Tensor, b: torch.Tensor, za: Any = None, zb: Any = None) -> torch.Tensor:
    return torch.matmul(shifted(a, za, -2), shifted(b, zb, -1))


def shifted(x: torch.Tensor, zero: Any, axis: int) -> torch.Tensor:
    """Integers less their zero point, of 32 bits. One for each row or column has one dimension."""
    wide = x.to(torch.int32)
    if zero is None:
        return wide
    zero = zero.to(torch.int32)
    if zero.dim() == 1 and x.dim() > 1:
        zero = zero.unsqueeze(-1) if axis == -2 else zero
    return wide - zero

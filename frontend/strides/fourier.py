"""The strides of Fourier transforms on a CPU with MKL (ATen's native/mkl/SpectralOps.cpp, _exec_fft).

before:  x: [2, 3, 4], strides [12, 4, 1], transformed along 0
after:   [2, 3, 4], strides [1, 8, 2]: the other dimensions first, in their order in memory, then those that are transformed

PyTorch 2.11 promises other strides, of which elements may overlap where a size changes.
"""

from collections.abc import Sequence
from typing import Any

import torch


def of_complex(result: torch.Tensor, args: tuple) -> tuple | None:
    """_fft_c2c(x, dims, normalization, forward)"""
    x, dims = args[:2]
    return transformed(x.stride(), result.shape, outermost_first(x.stride(), dims)) if dims else None


def of_real(result: torch.Tensor, args: tuple) -> tuple | None:
    """_fft_r2c(x, dims, normalization, onesided): the last of the dimensions, which is halved, stays the last."""
    x, (*dims, last) = args[:2]
    return transformed(x.stride(), result.shape, [*outermost_first(x.stride(), dims), last])


def to_real(result: torch.Tensor, args: tuple) -> tuple | None:
    """_fft_c2r(x, dims, normalization, size): along all dimensions but the last, and then along that."""
    x, (*dims, last) = args[:2]
    strides = transformed(x.stride(), x.shape, outermost_first(x.stride(), dims)) if dims else x.stride()
    return None if strides is None else transformed(strides, result.shape, [last])


def outermost_first(strides: Sequence[Any], dims: Sequence[int]) -> list[int]:
    return sorted(dims, key=lambda d: strides[d], reverse=True)


def transformed(strides: Sequence[Any], shape: Sequence[Any], dims: Sequence[int]) -> tuple | None:
    """Strides of a result with these sizes, for an operand with these strides; None where nothing is known of them."""
    if not torch.backends.mkl.is_available() or any(type(n) is int and n == 0 for n in shape):
        return None
    others = outermost_first(strides, [d for d in range(len(shape)) if d not in dims])
    made: list[Any] = [0] * len(shape)
    step: Any = 1
    for d in reversed([*others, *dims]):
        made[d], step = step, step * shape[d]
    return tuple(made)

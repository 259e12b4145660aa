"""Conversions of ATen's arguments for import rules: dimensions that count from the end, optional tensors, dtypes."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.graph_builder import GraphBuilder, NotOurs
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import KERNEL_DTYPES, TensorInfo, info_of

FLOATS = frozenset((torch.float64, torch.float32, torch.float16, torch.bfloat16))


def need_kernel_dtypes(*values: Any) -> None:
    """NotOurs unless kernels compute with the dtype of each tensor, or with each dtype, given (None is skipped)."""
    for value in values:
        dtype = info_of(value).dtype if isinstance(value, ir.Value) else value
        if isinstance(dtype, torch.dtype) and dtype not in KERNEL_DTYPES:
            raise NotOurs(f"{dtype} is no dtype that kernels compute with")


def need_shape(value: ir.Value | None, shape: Sequence[Int], what: str, tied: bool = True) -> None:
    """NotOurs where a tensor has another shape than eager's kernel asks for, as no meta function does.

    tied    PyTorch's guards make symbols equal: only numbers that differ are others
    """
    have = info_of(value).shape if value is not None else tuple(shape)
    numbers = lambda n, m: isinstance(n, int) and isinstance(m, int)
    if len(have) != len(shape) or any(n != m and (not tied or numbers(n, m)) for n, m in zip(have, shape, strict=True)):
        raise NotOurs(f"{what} of sizes {have}, not {tuple(shape)}")


def need_floats(*values: ir.Value | None) -> None:
    """NotOurs unless each tensor given has a floating-point dtype that kernels compute with."""
    for value in values:
        if value is not None and info_of(value).dtype not in FLOATS:
            raise NotOurs(f"{info_of(value).dtype} is no floating-point dtype that kernels compute with")


def need_fits(value: Any, dtype: torch.dtype) -> None:
    """NotOurs for a number that overflows `dtype`, where eager raises an error."""
    if isinstance(value, int | float) and not fits(value, dtype):
        raise NotOurs(f"{value} does not fit into {dtype}")


def fits(value: float, dtype: torch.dtype) -> bool:
    """Whether c10::overflows is false: a float dtype takes infinities and NaN, an unsigned dtype takes negative integers too."""
    if dtype == torch.bool:
        return True
    if dtype.is_floating_point or dtype.is_complex:
        return not abs(value) > torch.finfo(dtype).max or math.isinf(value)
    limits = torch.iinfo(dtype)
    lowest = limits.min or -limits.max if isinstance(value, int) else limits.min
    return lowest <= value <= limits.max


def need_all_fit(given: torch.dtype, dtype: torch.dtype) -> None:
    """NotOurs for numbers of the dtype `given` that may overflow `dtype`, where eager raises an error."""
    if given != torch.bool and dtype != torch.bool and not given.is_complex:
        limits = torch.finfo(given) if given.is_floating_point else torch.iinfo(given)
        if (given.is_floating_point and not dtype.is_floating_point) or not (
            fits(int(limits.min), dtype) and fits(int(limits.max), dtype)
        ):
            raise NotOurs(f"{given}, not all of which fits into {dtype}")


def on_device(x: ir.Value, device: str) -> ir.Value:
    """`x` where another operand is: eager takes an index, and what a slice is overwritten with, from another device."""
    info = info_of(x)
    return x if info.device == device else GraphBuilder(None).copy(x, replace(info, device=device))


def dimension(dim: int, rank: int) -> int:
    """A dimension counted from the front; a 0-d tensor counts as one of rank 1."""
    return dim % max(rank, 1)


def dimensions(dims: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Dimensions counted from the front, in order; all of them for None and []."""
    if isinstance(dims, int):
        dims = (dims,)
    if not dims:
        return tuple(range(rank))
    return tuple(sorted({dimension(d, rank) for d in dims})) if rank else ()


def count(info: TensorInfo, dims: Sequence[int]) -> Int:
    """How many elements one fold over `dims` takes in."""
    return symbols.product(info.shape[d] for d in dims)

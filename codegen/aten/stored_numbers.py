"""Numbers that a native call is given where the operator takes a tensor: stored in the stack's memory, and seen as tensors of rank 0.

before:  mul.Tensor(%z: complex64[8], 1 + 2i)
after:   mul.Tensor(%z, a complex64 tensor of 1 + 2i)

A number counts less than a tensor in type promotion. So the tensor has a dtype with which the result has the dtype that the number gives.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch

from mlirc.codegen.frame.frame import Frame, HostBuffer, HostRoot
from mlirc.dialects.core.tensor_types import TensorInfo
from mlirc.dialects.lazy_dataclass import dataclass

INTEGERS = {8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}
NATURAL = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}


@dataclass(frozen=True)
class StoredNumber:
    """A tensor of one element, seen as `shape`. `words` are LLVM's text of what lies in memory, each with its type."""

    dtype: torch.dtype
    words: tuple[str, ...]
    shape: tuple[Any, ...] = ()

    def buffer(self, frame: Frame) -> HostBuffer:
        """Writes the number to the stack."""
        # ATen reads a complex128 number with an instruction for 16 aligned bytes
        at = frame.text.place(f"[{len(self.words)} x i64]", "value", align=16)
        for k, word in enumerate(self.words):
            frame.text.line(f"store {word}, ptr {frame.at(at, k)}")
        info = TensorInfo(self.dtype, self.shape, (0,) * len(self.shape))
        return HostBuffer(info, HostRoot("arena", address=at), whole=False)


def stored(value: complex, dtype: torch.dtype, shape: Sequence[Any] = ()) -> StoredNumber:
    """The number converted to `dtype`. Raises ValueError where it does not fit."""
    try:
        made = torch.full((2,), value, dtype=dtype)[:1]  # one element alone gets what overflows as infinity
    except RuntimeError as error:
        raise ValueError(f"{value} does not fit into {dtype}") from error
    pieces = torch.view_as_real(made) if dtype == torch.complex128 else made
    bits = min(64, 8 * dtype.itemsize)
    words = pieces.view(INTEGERS[bits]).flatten().tolist()
    return StoredNumber(dtype, tuple(f"i{bits} {word}" for word in words), tuple(shape))


def number_of(given: Any) -> complex | None:
    """The Python number that the JSON of an argument is, or None."""
    if isinstance(given, bool | int | float):
        return given
    if isinstance(given, dict) and "float" in given:
        return float(given["float"])
    if isinstance(given, dict) and "complex" in given:
        re, im = (number_of(part) for part in given["complex"])
        return None if re is None or im is None else complex(re, im)  # pyright: ignore[reportArgumentType]
    return None


def beside(value: complex, others: Sequence[TensorInfo]) -> StoredNumber:
    """The number as a tensor that stands beside others in an elementwise operator. Raises ValueError where no dtype does.

    Eager rounds a number to the dtype of the others, but not to a half type. An integer is converted to the dtype that is computed in, and not
    to that of the others before: -1 beside uint8 is -1.0 in `xlogy`.
    """
    dtypes = {x.dtype for x in others}
    if len(dtypes) != 1:
        raise ValueError("a number beside tensors of several dtypes, or of none")
    (dtype,) = dtypes
    like = torch.empty((1,) * max(x.rank for x in others), dtype=dtype, device="meta")
    wanted, natural = torch.result_type(like, value), NATURAL[type(value)]
    halves = dtype in (torch.float16, torch.bfloat16)
    for given in (natural,) if halves else (natural, wanted) if type(value) is int else (wanted, natural):
        if type(value) is int and not fits(value, given):
            continue
        if torch.result_type(like, torch.empty((), dtype=given, device="meta")) == wanted:
            with suppress(ValueError):
                return stored(value, given)
    raise ValueError(f"no tensor of {value} gives {wanted} beside one of {dtype}")


def fits(value: int, dtype: torch.dtype) -> bool:
    if dtype.is_floating_point or dtype.is_complex:
        return True
    limits = (0, 1) if dtype == torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    return limits[0] <= value <= limits[1]

"""Values of an ONNX graph: tensors, and numbers that are known while the graph is traced."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

# By the numbers of onnx.TensorProto's element types. PyTorch has no tensors of 4-bit and 2-bit integers: 8 bits hold those.
DTYPES = {
    1: torch.float32,
    2: torch.uint8,
    3: torch.int8,
    4: torch.uint16,
    5: torch.int16,
    6: torch.int32,
    7: torch.int64,
    9: torch.bool,
    10: torch.float16,
    11: torch.float64,
    12: torch.uint32,
    13: torch.uint64,
    14: torch.complex64,
    15: torch.complex128,
    16: torch.bfloat16,
    17: torch.float8_e4m3fn,
    18: torch.float8_e4m3fnuz,
    19: torch.float8_e5m2,
    20: torch.float8_e5m2fnuz,
    21: torch.uint8,
    22: torch.int8,
    25: torch.uint8,
    26: torch.int8,
}
NARROW = {21: (0, 15), 22: (-8, 7), 25: (0, 3), 26: (-2, 1)}
"""Limits of the integers that PyTorch has no dtype for."""
OTHERS = {8: "string", 23: "float4e2m1", 24: "float8e8m0"}
HALVES = (torch.float16, torch.bfloat16)
WIDE_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz)


class OnnxValueError(Exception):
    """What an operator cannot take: the node that it is of is added where it is caught."""


class Known:
    """A value whose numbers are known while the graph is traced: a shape, or a small constant. It stands for a tensor.

    array   its numbers; they may be torch.SymInt and torch.SymFloat
    dtype   the tensor's dtype
    made    for a value computed from weights: the tensor, or a function that computes it. Readers of that tensor see later changes of the
            weights
    """

    def __init__(self, array: Any, dtype: torch.dtype, made: torch.Tensor | Callable[[], torch.Tensor] | None = None):
        self.array = objects(array)
        self.dtype, self._made, self.of_weights = dtype, made, made is not None

    def of(self, compute: Callable[[], torch.Tensor]) -> "Known":
        """A value with the same numbers, whose tensor `compute` makes from weights."""
        return Known(self.array, self.dtype, compute)

    def tensor(self) -> torch.Tensor:
        """The value as a tensor."""
        if callable(self._made) and not isinstance(self._made, torch.Tensor):
            self._made = self._made()
        if self._made is None:
            flat = self.array.reshape(-1).tolist()
            if any(isinstance(n, torch.SymInt | torch.SymFloat | torch.SymBool) for n in flat):
                made = torch.stack([torch.full((), n, dtype=self.dtype) for n in flat])
            else:
                made = torch.tensor(flat, dtype=self.dtype)
            self._made = made.reshape(self.array.shape)
        return self._made

    def list(self) -> list[Any]:
        """The numbers, in row-major order."""
        return self.array.reshape(-1).tolist()


Value = torch.Tensor | Known | None


def objects(array: Any) -> np.ndarray:
    """An array of Python's numbers, so that sizes can be symbols."""
    if isinstance(array, np.ndarray):
        return array.astype(object)
    if isinstance(array, (list, tuple)):
        found = np.empty(len(array), dtype=object)
        for k, n in enumerate(array):
            found[k] = n
        return found
    found = np.empty((), dtype=object)
    found[()] = array
    return found


def dtype_of(elem_type: int) -> torch.dtype:
    """PyTorch's dtype of an ONNX element type. Raises OnnxValueError."""
    if elem_type not in DTYPES:
        raise OnnxValueError(f"PyTorch has no tensors of {OTHERS.get(elem_type, f'element type {elem_type}')}")
    return DTYPES[elem_type]


def numbers(value: Value, what: str) -> list[Any]:
    """The numbers of a value that is known while the graph is traced. Raises OnnxValueError for one that only a call computes."""
    if isinstance(value, Known):
        return value.list()
    raise OnnxValueError(f"its {what} is computed by the call, and has to be known when the model is compiled")


def number(value: Value, what: str) -> Any:
    """The one number of a value that is known while the graph is traced."""
    found = numbers(value, what)
    if len(found) != 1:
        raise OnnxValueError(f"its {what} has {len(found)} elements, and has to have one")
    return found[0]


def tensor(value: Value) -> torch.Tensor:
    assert value is not None
    return value.tensor() if isinstance(value, Known) else value


def torch_tensor(array: np.ndarray, elem_type: int) -> torch.Tensor:
    """An array of NumPy's, or of ml_dtypes', as a tensor of the dtype that stands for an element type."""
    dtype = dtype_of(elem_type)
    if elem_type in NARROW:
        return torch.from_numpy(array.astype(np.int8 if dtype is torch.int8 else np.uint8))
    if dtype in (torch.bfloat16, *FLOAT8):
        bits = np.ascontiguousarray(array).view(np.uint16 if dtype is torch.bfloat16 else np.uint8)
        return torch.from_numpy(bits.copy()).view(dtype).reshape(array.shape)
    given = np.ascontiguousarray(array).reshape(array.shape)
    return torch.from_numpy(given if given.flags.writeable else given.copy())


def positive(axis: int, rank: int) -> int:
    """An axis counted from the front. Raises OnnxValueError where there is none."""
    if not -rank <= axis < max(rank, 1):
        raise OnnxValueError(f"axis {axis} of a tensor of {rank} dimensions")
    return axis + rank if axis < 0 else axis


def axes_or_all(axes: Sequence[int] | None, rank: int) -> list[int]:
    return [positive(a, rank) for a in axes] if axes is not None else list(range(rank))

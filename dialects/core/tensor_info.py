"""Properties of a tensor besides its elements: dtype, sizes, strides, device, layout. Needs no MLIR."""

from dataclasses import field, replace
from functools import cached_property

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.lazy_dataclass import dataclass

# torch dtype -> MLIR's spelling. Signed integers are signless in MLIR; unsigned ones keep their sign.
DTYPE_TEXT = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "ui8",
    torch.uint16: "ui16",
    torch.uint32: "ui32",
    torch.uint64: "ui64",
    torch.bool: "i1",
    torch.complex32: "complex<f16>",
    torch.complex64: "complex<f32>",
    torch.complex128: "complex<f64>",
    torch.float8_e4m3fn: "f8E4M3FN",
    torch.float8_e5m2: "f8E5M2",
    torch.float8_e4m3fnuz: "f8E4M3FNUZ",
    torch.float8_e5m2fnuz: "f8E5M2FNUZ",
    torch.float8_e8m0fnu: "f8E8M0FNU",
}
TEXT_DTYPE = {text: dtype for dtype, text in DTYPE_TEXT.items()}


def contiguous(shape: tuple[Int, ...]) -> tuple[Int, ...]:
    """Row-major strides in elements; as in PyTorch, a size of 0 counts as 1."""
    strides: list[Int] = []
    running: Int = 1
    for size in reversed(shape):
        strides.append(running)
        running = running * (size if not isinstance(size, int) else max(size, 1))
    return tuple(reversed(strides))


@dataclass(frozen=True)
class TensorInfo:
    """dtype, sizes, strides (in elements), device and layout of a value. Strides mean nothing unless the layout is strided."""

    dtype: torch.dtype
    shape: tuple[Int, ...]
    stride: tuple[Int, ...] = None  # type: ignore[assignment]  # row-major where it is left out
    device: str = "cpu"
    layout: str = "strided"
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self):
        if self.stride is None:
            object.__setattr__(self, "stride", contiguous(self.shape))
        object.__setattr__(self, "_hash", hash((self.dtype, self.shape, self.stride, self.device, self.layout)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def rank(self) -> int:
        return len(self.shape)

    @cached_property
    def numel(self) -> Int:
        return symbols.product(self.shape)

    @cached_property
    def is_contiguous(self) -> bool:
        """Row-major as PyTorch decides it: the stride of a dimension of size 1 does not matter."""
        wanted = contiguous(self.shape)
        return all(s == w or n == 1 for s, w, n in zip(self.stride, wanted, self.shape, strict=True))

    @cached_property
    def extent(self) -> Int:
        """Elements from the first to past the last that the strides reach (0 if a static size is 0)."""
        if any(n == 0 for n in self.shape):
            return 0
        return 1 + symbols_sum((n - 1) * s for n, s in zip(self.shape, self.stride, strict=True))

    @property
    def is_dense(self) -> bool:
        """Whether the strides reach each element of the extent exactly once, in some order of the dimensions."""
        dims = sorted((d for d in range(self.rank) if self.shape[d] != 1), key=lambda d: _size_key(self.stride[d]))
        running: Int = 1
        for _ in range(len(dims)):
            found = next((d for d in dims if self.stride[d] == running), None)
            if found is None:
                return False
            dims.remove(found)
            running = running * self.shape[found]
        return True

    @cached_property
    def may_overlap(self) -> bool:
        """Whether elements may share memory: a stride does not reach beyond the dimensions of smaller ones."""
        if 0 in self.shape:
            return False
        dims = [(stride, n) for stride, n in zip(self.stride, self.shape, strict=True) if n != 1]
        known = sorted((stride, n) for stride, n in dims if isinstance(stride, int) and isinstance(n, int))
        reach = 0
        for stride, n in known:
            if stride <= reach:
                return True
            reach += stride * (n - 1)
        return len({stride for stride, _ in dims}) < len(dims) or any(stride == 0 for stride, _ in dims)

    def with_dtype(self, dtype: torch.dtype) -> "TensorInfo":
        return replace(self, dtype=dtype)


def _size_key(value: Int) -> tuple[int, str]:
    return (0, f"{value:020d}") if isinstance(value, int) else (1, str(value))


def symbols_sum(values) -> Int:
    total: Int = 0
    for value in values:
        total = total + value
    return total

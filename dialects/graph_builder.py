"""GraphBuilder: what import rules and expansions build graph-level ops with. `g.add(x, y)`, `g.sum(x, [1], True)`, `g.exp(x)`.

Values are MLIR values (0-d float64 tensors for SymFloats); plain Python numbers and booleans stand for constants, and size
expressions (symbols.Expr: SymInts) for their value at run time. `g.out` is the TensorInfo that the FX node being imported promises for its (first) result, or None inside
an expansion; results otherwise come out row-major.
"""

from collections.abc import Sequence
from typing import Any

import torch

from mlirc.dialects import symbols
from mlirc.dialects.bindings import ir
from mlirc.dialects.dialect import OPS, Binary, Elementwise, Unary, create
from mlirc.dialects.symbols import Expr, Int
from mlirc.dialects.tensor_types import KERNEL_DTYPES, TensorInfo, info_of, opmath, type_of

Operand = Any  # ir.Value, a Python number, or a size expression


class NotOurs(Exception):
    """An import rule's way to say that these arguments are not for it: the call goes to ATen instead. The text says why."""


def broadcast_shape(shapes: Sequence[tuple[Int, ...]]) -> tuple[Int, ...]:
    """The common shape, as PyTorch broadcasts. A symbolic size wins over 1; two that differ raise ValueError."""
    rank = max(map(len, shapes), default=0)
    result: list[Int] = []
    for position in range(-rank, 0):
        size: Int = 1
        for shape in shapes:
            if len(shape) >= -position and shape[position] != 1:
                if size not in (1, shape[position]):
                    raise ValueError(f"shapes {shapes} do not broadcast")
                size = shape[position]
        result.append(size)
    return tuple(result)


class GraphBuilder:
    """Builds ops at the current insertion point and location."""

    def __init__(self, out: TensorInfo | None = None, outs: Sequence[TensorInfo | None] = ()):
        self.out = out
        self.outs = tuple(outs)

    # ---- values

    def info(self, x: Operand) -> TensorInfo:
        if isinstance(x, bool):
            return TensorInfo(torch.bool, ())
        if isinstance(x, int | Expr):
            return TensorInfo(torch.int64, ())
        if isinstance(x, float):
            return TensorInfo(torch.get_default_dtype(), ())
        return info_of(x)

    def constant(self, value: float | int | bool, dtype: torch.dtype) -> ir.Value:
        """A 0-d constant of `dtype`."""
        return create("constant", [], [type_of(TensorInfo(dtype, ()))], {"value": constant_text(value, dtype)}).out

    def size(self, expr: Int, dtype: torch.dtype = torch.int64) -> ir.Value:
        """A size expression as a 0-d int64 tensor (then cast to `dtype`)."""
        if isinstance(expr, int):
            return self.constant(expr, dtype)
        value = create("size", [], [type_of(TensorInfo(torch.int64, ()))], {"expr": str(expr)}).out
        return self.cast(value, dtype)

    def iota(self, shape: Sequence[Int], expr: Int, dtype: torch.dtype = torch.int64) -> ir.Value:
        return create("iota", [], [type_of(TensorInfo(dtype, tuple(shape)))], {"expr": str(expr)}).out

    def value(self, x: Operand, dtype: torch.dtype) -> ir.Value:
        """`x` as a tensor value of `dtype`."""
        return self.cast(x, dtype)

    def cast(self, x: Operand, dtype: torch.dtype) -> ir.Value:
        """Converted as `Tensor.to(dtype)` does; the value itself where it has that dtype."""
        if isinstance(x, Expr):
            return self.size(x, dtype)
        if not isinstance(x, ir.Value):
            return self.constant(x, dtype)
        info = info_of(x)
        if info.dtype == dtype:
            return x
        return create("cast", [x], [type_of(result_like(info, dtype))]).out

    # ---- elementwise

    def elementwise(self, cls: type[Elementwise], *args: Operand, **kwargs: Any) -> ir.Value:
        """An elementwise op as ATen calls it: the operands in order, promoted; the result's dtype is `g.out`'s if that is known."""
        if kwargs:
            args = args + tuple(kwargs.values())
        count = 1 if issubclass(cls, Unary) else 2 if issubclass(cls, Binary) else 3
        if len(args) != count:
            raise NotOurs(f"{len(args)} arguments where mlirc.{cls.mnemonic} takes {count}")
        promoted = self.promote(*args)
        result = self.out.dtype if self.out is not None else None
        return self.apply(cls, args, promoted, result)

    def promote(self, *args: Operand) -> torch.dtype:
        """The dtype that PyTorch's type promotion gives these operands: 0-d tensors and numbers count less."""
        state = [dtype_example(self.info(x), isinstance(x, ir.Value)) for x in args]
        if len(state) == 1:
            return self.info(args[0]).dtype
        result = state[0]
        for other in state[1:]:
            result = dtype_example_of(torch.result_type(result, other), result, other)
        return result.dtype

    def apply(self, cls: type[Elementwise], args: Sequence[Operand], promoted: torch.dtype, result: torch.dtype | None):
        words = cls.computes if isinstance(cls.computes, tuple) else (cls.computes,) * len(args)
        if result is None:
            if cls.gives == "same":
                result = promoted
                if "float" in words and not promoted.is_floating_point:
                    result = torch.get_default_dtype()
            else:
                result = cls.gives
        computed = {"result": result, "operands": promoted, "bool": torch.bool, "float": result}
        values = [self.operand(x, computed[word]) for x, word in zip(args, words, strict=True)]
        infos = [info_of(v) for v in values]
        if result not in KERNEL_DTYPES or any(i.dtype not in KERNEL_DTYPES for i in infos):
            raise NotOurs(f"{result} is no dtype that kernels compute with")
        shape = broadcast_shape([i.shape for i in infos])
        return create(cls.mnemonic, values, [type_of(TensorInfo(result, shape))]).out

    def operand(self, x: Operand, dtype: torch.dtype) -> ir.Value:
        """An operand converted to `dtype`; a Python number keeps the precision of the arithmetic (float32 for half types)."""
        if not isinstance(x, ir.Value):
            return self.cast(x, opmath(dtype))
        if info_of(x).rank == 0 and not info_of(x).dtype.is_floating_point and dtype.is_floating_point:
            return self.cast(x, opmath(dtype))
        return self.cast(x, dtype)

    def __getattr__(self, name: str):
        """`g.NAME(x, ...)` for every elementwise op: operands are promoted among themselves."""
        cls = OPS.get(name) or OPS.get(name.rstrip("_"))
        if cls is None or not issubclass(cls, Elementwise):
            raise AttributeError(f"GraphBuilder has no '{name}', and there is no elementwise op mlirc.{name}")
        return lambda *args: self.apply(cls, args, self.promote(*args), None)

    # ---- reductions

    def reduce(self, name: str, x: ir.Value, dims: Sequence[int] | None, keepdim: bool = False, dtype=None) -> ir.Value:
        """`mlirc.NAME` over `dims` (None or empty: all); the result has `dtype`, or the input's."""
        info = info_of(x)
        dims = sorted({d % max(info.rank, 1) for d in dims}) if dims else list(range(info.rank))
        if info.rank == 0:
            dims = []
        shape = tuple(1 if d in dims else n for d, n in enumerate(info.shape) if keepdim or d not in dims)
        attributes = {"dims": symbols.print_list(dims), "keepdim": keepdim}
        return create(name, [x], [type_of(TensorInfo(dtype or info.dtype, shape))], attributes).out

    # ---- movement

    def view(self, x: ir.Value, shape: Sequence[Int], stride: Sequence[Int], map_: Sequence[Int] | None, offset: Int = 0):
        info = info_of(x)
        result = TensorInfo(info.dtype, tuple(shape), tuple(stride), info.device)
        text = "" if map_ is None else symbols.print_list(map_)
        return create("view", [x], [type_of(result)], {"map": text, "offset": str(offset)}).out

    def copy(self, x: ir.Value, info: TensorInfo | None = None) -> ir.Value:
        """The elements in row-major order, or laid out as `info`."""
        info = info or TensorInfo(info_of(x).dtype, info_of(x).shape)
        return create("copy", [x], [type_of(info)]).out

    def expand(self, x: ir.Value, shape: Sequence[Int]) -> ir.Value:
        """`x` broadcast to `shape`: strides of 0, no copy."""
        info = info_of(x)
        lead = len(shape) - info.rank
        strides: list[Int] = [0] * lead
        index: list[Int] = []
        for d, size in enumerate(info.shape):
            stretched = size == 1 and shape[lead + d] != 1
            strides.append(0 if stretched else info.stride[d])
            index.append(0 if stretched else symbols.symbol(f"d{lead + d}"))
        return self.view(x, shape, strides, index)

    def permute(self, x: ir.Value, dims: Sequence[int]) -> ir.Value:
        info = info_of(x)
        index: list[Int] = [0] * info.rank
        for position, d in enumerate(dims):
            index[d] = symbols.symbol(f"d{position}")
        return self.view(x, [info.shape[d] for d in dims], [info.stride[d] for d in dims], index)

    def unsqueeze(self, x: ir.Value, dim: int) -> ir.Value:
        info = info_of(x)
        dim %= info.rank + 1
        stride = info.stride[dim] * info.shape[dim] if dim < info.rank else 1
        index = [symbols.symbol(f"d{d if d < dim else d + 1}") for d in range(info.rank)]
        shape = info.shape[:dim] + (1,) + info.shape[dim:]
        return self.view(x, shape, info.stride[:dim] + (stride,) + info.stride[dim:], index)


def result_like(info: TensorInfo, dtype: torch.dtype) -> TensorInfo:
    """The layout of a new elementwise result of one operand: its strides if they are dense, else row-major."""
    return info.with_dtype(dtype) if info.is_dense else TensorInfo(dtype, info.shape, device=info.device)


def dtype_example(info: TensorInfo, tensor: bool) -> Any:
    """Something of the same weight in type promotion: a tensor, a 0-d tensor, or a Python number."""
    if not tensor:
        return torch.tensor(0, dtype=info.dtype).item()
    return torch.empty((0,) * bool(info.rank), dtype=info.dtype, device="meta")


def dtype_example_of(dtype: torch.dtype, a: Any, b: Any) -> torch.Tensor:
    rank = max(x.dim() if isinstance(x, torch.Tensor) else 0 for x in (a, b))
    return torch.empty((0,) * rank, dtype=dtype, device="meta")


def constant_text(value: float | int | bool, dtype: torch.dtype) -> str:
    """How mlirc.constant writes a number, exactly: true, 42, or the float64's hexadecimal form (inf, nan, -inf)."""
    if dtype == torch.bool:
        return "true" if value else "false"
    if dtype.is_floating_point:
        return float(value).hex()
    return str(int(value))


def read_constant(text: str) -> float | int | bool:
    if text in ("true", "false"):
        return text == "true"
    return float.fromhex(text) if "0x" in text or "inf" in text or "nan" in text else int(text)

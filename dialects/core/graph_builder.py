"""GraphBuilder: builds graph-level ops, in import rules and expansions: `g.add(x, y)`, `g.sum(x, [1], True)`, `g.exp(x)`.

Values are MLIR values (0-d float64 tensors for SymFloats); plain Python numbers and booleans stand for constants, and size
expressions (symbols.Expr: SymInts) for their value at run time. `g.out` is the TensorInfo that the FX node being imported
promises for its (first) result, or None inside an expansion; results otherwise come out row-major.
"""

from collections.abc import Sequence
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import OPS, Binary, Elementwise, Reduction, Unary, attribute_value, create
from mlirc.dialects.core.symbols import Expr, Int
from mlirc.dialects.core.tensor_types import KERNEL_DTYPES, TensorInfo, info_of, opmath, type_of

Operand = Any  # ir.Value, a Python number, or a size expression


class NotOurs(Exception):
    """An import rule's way to say that these arguments are not for it: the call goes to ATen instead. The text says why."""


class UnequalSizes(NotOurs, ValueError):
    """Sizes that would have to be equal are written in two ways: PyTorch's guards may make them so, but nothing here shows it."""


def broadcast_shape(shapes: Sequence[tuple[Int, ...]]) -> tuple[Int, ...]:
    """The common shape, as PyTorch broadcasts. A symbolic size wins over 1; two that differ raise ValueError, UnequalSizes where
    one is symbolic."""
    rank = max(map(len, shapes), default=0)
    result: list[Int] = []
    for position in range(-rank, 0):
        size: Int = 1
        for shape in shapes:
            if len(shape) >= -position and shape[position] != 1:
                if size not in (1, shape[position]):
                    known = isinstance(size, int) and isinstance(shape[position], int)
                    raise (ValueError if known else UnequalSizes)(f"shapes {shapes} do not broadcast")
                size = shape[position]
        result.append(size)
    return tuple(result)


class GraphBuilder:
    """Builds ops at the current insertion point and location. `device` is where what has no operands is made."""

    def __init__(
        self, out: TensorInfo | None = None, outs: Sequence[TensorInfo | None] = (), device: str | None = None
    ):
        self.out = out
        self.outs = tuple(outs)
        self.device = device or (out.device if out is not None else "cpu")

    # ---- values

    def info(self, x: Operand) -> TensorInfo:
        if isinstance(x, bool):
            return TensorInfo(torch.bool, ())
        if isinstance(x, int | Expr):
            return TensorInfo(torch.int64, ())
        if isinstance(x, float):
            return TensorInfo(torch.get_default_dtype(), ())
        if isinstance(x, complex):
            return TensorInfo(torch.complex64, ())
        return info_of(x)

    def constant(self, value: float | int | bool, dtype: torch.dtype) -> ir.Value:
        """A 0-d constant of `dtype`."""
        result = TensorInfo(dtype, (), device=self.device)
        return create("constant", [], [type_of(result)], {"value": constant_text(value, dtype)}).out

    def size(self, expr: Int, dtype: torch.dtype = torch.int64) -> ir.Value:
        """A size expression as a 0-d int64 tensor (then cast to `dtype`)."""
        if isinstance(expr, int):
            return self.constant(expr, dtype)
        result = TensorInfo(torch.int64, (), device=self.device)
        value = create("size", [], [type_of(result)], {"expr": str(expr)}).out
        return self.cast(value, dtype)

    def iota(self, shape: Sequence[Int], expr: Int, dtype: torch.dtype = torch.int64) -> ir.Value:
        """A tensor whose element at index (d0, d1, ...) is `expr` of these symbols: `iota((n,), symbol("d0"))` counts from 0."""
        return create(
            "iota", [], [type_of(TensorInfo(dtype, tuple(shape), device=self.device))], {"expr": str(expr)}
        ).out

    def value(self, x: Operand, dtype: torch.dtype) -> ir.Value:
        """`x` as a tensor value of `dtype`."""
        return self.cast(x, dtype)

    def cast(self, x: Operand, dtype: torch.dtype) -> ir.Value:
        """Converted as `Tensor.to(dtype)` does; the value itself where it has that dtype. NotOurs where kernels know one not."""
        if isinstance(x, Expr):
            return self.size(x, dtype)
        if not isinstance(x, ir.Value):
            return self.constant(x, dtype)
        info = info_of(x)
        if info.dtype == dtype:
            return x
        if info.dtype not in KERNEL_DTYPES or dtype not in KERNEL_DTYPES:
            raise NotOurs(f"kernels do not convert {info.dtype} to {dtype}")
        return create("cast", [x], [type_of(result_like(info, dtype))]).out

    # ---- elementwise

    def elementwise(self, cls: type[Elementwise], *args: Operand, **kwargs: Any) -> ir.Value:
        """An elementwise op as ATen calls it: operands in order, promoted; the result's dtype is `g.out`'s if known."""
        args = args + tuple(kwargs.values())
        count = 1 if issubclass(cls, Unary) else 2 if issubclass(cls, Binary) else 3
        if len(args) != count:
            raise NotOurs(f"{len(args)} arguments where mlirc.{cls.mnemonic} takes {count}")
        result = self.out.dtype if self.out is not None else None
        return self.apply(cls, args, self.promote(*args), result)

    def promote(self, *args: Operand) -> torch.dtype:
        """The dtype that PyTorch's type promotion gives these operands: 0-d tensors count less, numbers least."""
        by_weight: list[torch.dtype | None] = [None, None, None]
        for x in args:
            info = self.info(x)
            weight = 2 if not isinstance(x, ir.Value) else 1 if info.rank == 0 else 0
            seen = by_weight[weight]
            by_weight[weight] = info.dtype if seen is None else promoted(seen, info.dtype)
        result: torch.dtype | None = None
        for dtype in by_weight:
            result = outweigh(result, dtype)
        assert result is not None, "type promotion of no operands"
        return result

    def widen(self, *args: Operand) -> tuple[ir.Value, ...]:
        """The operands converted to the dtype that eager computes in: the promoted one, float32 for half types.

        Rules that compose several ops start with it, so that nothing is rounded in between."""
        dtype = opmath(self.promote(*args))
        return tuple(self.cast(x, dtype) for x in args)

    def apply(self, cls: type[Elementwise], args: Sequence[Operand], promoted: torch.dtype, result: torch.dtype | None):
        """The op on operands converted as `cls.computes` says. Raises NotOurs for dtypes kernels do not compute with."""
        kinds = cls.operand_kinds(len(args))
        if result is None:
            if isinstance(cls.gives, torch.dtype):
                result = cls.gives
            elif "float" in kinds and not promoted.is_floating_point:
                result = torch.get_default_dtype()
            else:
                result = promoted
        computed = {"result": result, "operands": promoted, "bool": torch.bool, "float": result}
        dtypes = [computed[kind] for kind in kinds]
        for dtype in (result, *dtypes, *(self.info(x).dtype for x in args)):
            if dtype not in KERNEL_DTYPES:
                raise NotOurs(f"{dtype} is no dtype that kernels compute with")
        values = [
            self.operand(x, dtype, cls.jumps if cls.rounds_numbers is None else cls.rounds_numbers)
            for x, dtype in zip(args, dtypes, strict=True)
        ]
        infos = [info_of(v) for v in values]
        shape = broadcast_shape([i.shape for i in infos])
        device = next((i.device for i in infos if i.device != "cpu"), "cpu")
        return create(cls.mnemonic, values, [type_of(TensorInfo(result, shape, device=device))]).out

    def operand(self, x: Operand, dtype: torch.dtype, rounds: bool = False) -> ir.Value:
        """An operand converted to `dtype`; a number, or a 0-d tensor of another dtype, keeps the precision of the
        arithmetic (float32 for half types) unless `rounds`."""
        if isinstance(x, bool | int | float):
            return self.constant(x, dtype if rounds else opmath(dtype))
        if isinstance(x, Expr) or (info_of(x).rank == 0 and info_of(x).dtype != dtype):
            return self.cast(x, dtype if rounds else opmath(dtype))
        return self.cast(x, dtype)

    def __getattr__(self, name: str):
        """`g.NAME(x, ...)` for every elementwise op: operands are promoted among themselves.

        Of Python numbers alone it gives a Python number, computed in int64 or float64."""
        cls = OPS.get(name) or OPS.get(name.rstrip("_"))
        if name == "bitcast":
            raise AttributeError("GraphBuilder has no 'bitcast': no operand says the dtype of its result")
        if cls is None or not issubclass(cls, Elementwise):
            raise AttributeError(f"GraphBuilder has no '{name}', and there is no elementwise op mlirc.{name}")

        def build(*args: Operand) -> Operand:
            if all(isinstance(x, bool | int | float) for x in args):
                real = cls.computes == "float" or any(isinstance(x, float) for x in args)
                reference: Any = getattr(cls, "reference", None)
                return reference(*(torch.tensor(x, dtype=torch.float64 if real else None) for x in args)).item()
            return self.apply(cls, args, self.promote(*args), None)

        return build

    # ---- reductions

    def reduce(self, name: str, x: ir.Value, dims: Sequence[int] | None, keepdim: bool = False, dtype=None) -> ir.Value:
        """`mlirc.NAME` over `dims` (None or empty: all); the result has `dtype`, or the input's. Raises ValueError for another name."""
        if not issubclass(OPS.get(name, object), Reduction):
            reductions = [known for known, cls in OPS.items() if issubclass(cls, Reduction)]
            raise ValueError(f"no reduction '{name}'; there are {', '.join(reductions)}")
        info = info_of(x)
        dims = sorted({d % max(info.rank, 1) for d in dims}) if dims else list(range(info.rank))
        if info.rank == 0:
            dims = []
            if name in ("sum", "mean") and info.dtype.is_floating_point:
                x = self.add(x, 0.0)  # a sum begins at 0.0, which makes 0.0 of -0.0
        shape = tuple(1 if d in dims else n for d, n in enumerate(info.shape) if keepdim or d not in dims)
        attributes = {"dims": symbols.print_list(dims), "keepdim": keepdim}
        result = TensorInfo(dtype or info.dtype, shape, device=info.device)
        return create(name, [x], [type_of(result)], attributes).out

    # ---- movement

    def view(
        self, x: ir.Value, shape: Sequence[Int], stride: Sequence[Int], map_: Sequence[Int] | None, offset: Int = 0
    ):
        """A view of the memory of `x` with these sizes and strides, from `offset` on.

        map_   for each dimension of `x` the index, of d0, d1, ..., that an element of the view has there; None where no formula says it
        """
        info = info_of(x)
        result = TensorInfo(info.dtype, tuple(shape), tuple(stride), info.device)
        text = "" if map_ is None else symbols.print_list(map_)
        return create("view", [x], [type_of(result)], {"map": text, "offset": str(offset)}).out

    def copy(self, x: ir.Value, info: TensorInfo | None = None) -> ir.Value:
        """The elements in row-major order, or laid out as `info`."""
        info = info or TensorInfo(info_of(x).dtype, info_of(x).shape, device=info_of(x).device)
        return create("copy", [x], [type_of(info)]).out

    def fill(self, value: Operand, shape: Sequence[Int], dtype: torch.dtype) -> ir.Value:
        """A row-major tensor whose elements are all the number (or the 0-d value) converted to `dtype`."""
        return self.copy(
            self.expand(self.cast(value, dtype), shape), TensorInfo(dtype, tuple(shape), device=self.device)
        )

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
        """A view with dimension dims[k] of `x` as its k-th."""
        info = info_of(x)
        index: list[Int] = [0] * info.rank
        for position, d in enumerate(dims):
            index[d] = symbols.symbol(f"d{position}")
        return self.view(x, [info.shape[d] for d in dims], [info.stride[d] for d in dims], index)

    def narrow(self, x: ir.Value, dim: int, start: Int, length: Int) -> ir.Value:
        """Elements start to start + length of a dimension."""
        info = info_of(x)
        dim %= info.rank
        index = [symbols.symbol(f"d{d}") + (start if d == dim else 0) for d in range(info.rank)]
        shape = (*info.shape[:dim], length, *info.shape[dim + 1 :])
        return self.view(x, shape, info.stride, index, start * info.stride[dim])

    def unsqueeze(self, x: ir.Value, dim: int) -> ir.Value:
        """A view with a dimension of size 1 at place `dim` of the result; -1 is the last."""
        info = info_of(x)
        dim %= info.rank + 1
        stride = info.stride[dim] * info.shape[dim] if dim < info.rank else 1
        index = [symbols.symbol(f"d{d if d < dim else d + 1}") for d in range(info.rank)]
        shape = info.shape[:dim] + (1,) + info.shape[dim:]
        return self.view(x, shape, info.stride[:dim] + (stride,) + info.stride[dim:], index)


def result_like(info: TensorInfo, dtype: torch.dtype) -> TensorInfo:
    """The layout of a new elementwise result of one operand: its strides if they are dense, else row-major."""
    return info.with_dtype(dtype) if info.is_dense else TensorInfo(dtype, info.shape, device=info.device)


def outweigh(higher: torch.dtype | None, lower: torch.dtype | None) -> torch.dtype | None:
    """Type promotion across weights: the lower one counts only where it is of a higher kind (bool < integer < float)."""
    if higher is None or lower is None:
        return higher or lower
    if higher.is_complex:
        return higher
    if higher.is_floating_point:
        return promoted(higher, lower) if lower.is_complex else higher
    if higher == torch.bool or lower.is_floating_point or lower.is_complex:
        return promoted(higher, lower)
    return higher


def promoted(x: torch.dtype, y: torch.dtype) -> torch.dtype:
    """The dtype that holds both. Raises NotOurs where PyTorch has none: of uint16, uint32 and uint64 with other integers and bool."""
    try:
        return torch.promote_types(x, y)
    except RuntimeError as error:
        raise NotOurs(f"no dtype is promised for {x} and {y}") from error


def constant_text(value: float | int | bool, dtype: torch.dtype) -> str:
    """How mlirc.constant writes a number, converted to `dtype`: true, 42, or a float64's hexadecimal form (inf, nan, -inf).

    Half types are rounded here, since kernels hold their constants in float32; integers wrap around, as in eager."""
    if dtype == torch.bool:
        return "true" if value else "false"
    if dtype in (torch.float16, torch.bfloat16):
        return float(torch.tensor(value, dtype=torch.float64).to(dtype)).hex()
    if dtype.is_floating_point:
        return float(value).hex()
    if dtype.is_complex:
        raise NotOurs("a constant of a complex dtype")
    range_ = torch.iinfo(dtype)
    return str((int(value) - range_.min) % (1 << range_.bits) + range_.min)


def read_constant(text: str) -> float | int | bool:
    """The number that `constant_text` wrote. Raises ValueError where the text is none of its."""
    if text in ("true", "false"):
        return text == "true"
    try:
        return float.fromhex(text) if "0x" in text or "inf" in text or "nan" in text else int(text)
    except ValueError:
        raise ValueError(
            f"'{text[:40]}' is no number: true, false, an int, or a float as float.hex writes it, 0x1.8p+1"
        ) from None


def number_of(value: ir.Value) -> float | int | bool | None:
    """The number of an `mlirc.constant`; None of any other value."""
    op = value.owner
    if isinstance(op, ir.Block) or op.operation.name != "mlirc.constant":
        return None
    return read_constant(attribute_value(op.operation.attributes["value"]))


def constant_like(value: ir.Value, number: float | int | bool) -> ir.Value:
    """A 0-d constant of the dtype and on the device of `value`."""
    info = info_of(value)
    return GraphBuilder(info).constant(number, info.dtype)

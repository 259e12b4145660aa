"""The ScalarBuilder that writes Triton: every value is an expression of the kernel's text, most often a variable's name.

    b = TritonBuilder(lines, torch.float32)
    y = b.mul(x, b.constant(2.0))           # lines: "v0 = x * 2.0"

A value is a block that broadcasts: its shape follows from the tile dimensions that it depends on. Half types are only
loaded, stored and converted. What libdevice has is used where Triton's own function is an approximation (exp, log, sin)
and for what Triton does not have.
"""

import math
from itertools import count
from operator import eq, ge, gt, le, lt, ne

import torch

from mlirc.dialects.core.scalar_builder import NamesUnknown, safe_divisor
from mlirc.lowering.analysis.constant_values import fits

TRITON_DTYPE = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "i1",
}
TL_DTYPE = {
    torch.float64: "tl.float64",
    torch.float32: "tl.float32",
    torch.float16: "tl.float16",
    torch.bfloat16: "tl.bfloat16",
    torch.int64: "tl.int64",
    torch.int32: "tl.int32",
    torch.int16: "tl.int16",
    torch.int8: "tl.int8",
    torch.uint8: "tl.uint8",
    torch.bool: "tl.int1",
}
HALF = (torch.float16, torch.bfloat16)
# The processor's own instructions, as eager has them: what does not fit is the nearest integer there is. Triton's `.to` is
# LLVM's fptosi, whose result LLVM may take for anything then.
TO_INTEGER = {
    (torch.float32, torch.int32): "libdevice.float2int_rz",
    (torch.float32, torch.int64): "libdevice.float2ll_rz",
    (torch.float64, torch.int32): "libdevice.double2int_rz",
    (torch.float64, torch.int64): "libdevice.double2ll_rz",
}


class TritonValue(str):
    """An expression's text, the dtype of its elements, and the tile dimensions that its shape has ("x", "r").

    number  what a constant stands for; None for any other value
    fixed   whether it is computed of constants alone
    """

    __slots__ = ("dtype", "fixed", "number", "tile")
    dtype: torch.dtype
    number: float | int | bool | None
    tile: frozenset[str]
    fixed: bool

    def __new__(
        cls,
        text: str,
        dtype: torch.dtype,
        tile: frozenset[str] = frozenset(),
        number: float | int | bool | None = None,
    ):
        value = super().__new__(cls, text)
        value.dtype, value.tile, value.number = dtype, tile, number
        value.fixed = number is not None
        return value


class Lines:
    """The statements of a function so far, at the current depth of loops."""

    def __init__(self):
        self.text: list[str] = []
        self.depth = 1
        self._count = count()

    def add(self, line: str) -> None:
        self.text.append("    " * self.depth + line)

    def name(self, text: str, dtype: torch.dtype, tile: frozenset[str]) -> TritonValue:
        """A new variable of this value."""
        value = TritonValue(f"v{next(self._count)}", dtype, tile)
        self.add(f"{value} = {text}")
        return value


def literal(value: float | int | bool) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value).replace("e+", "e")


COMPARISONS = {"<": lt, "<=": le, ">": gt, ">=": ge, "==": eq, "!=": ne}


def _binary(operator: str):
    def method(self: "TritonBuilder", x: TritonValue, y: TritonValue) -> TritonValue:
        return self.infix(operator, x, y)

    return method


def _compare(operator: str):
    def method(self: "TritonBuilder", x: TritonValue, y: TritonValue) -> TritonValue:
        if x.number is not None and y.number is not None:
            numbers = (torch.tensor(v.number, dtype=v.dtype).item() for v in (x, y))
            return self.constant(COMPARISONS[operator](*numbers), torch.bool)
        made = self.infix(operator, x, y, torch.bool)
        if not (x.fixed and y.fixed and x.dtype.is_floating_point):
            return made
        # Triton's interpreter takes it for one of the operands' dtype where it is spread over a block
        return self.select(made, self.constant(True, torch.bool), self.constant(False, torch.bool))

    return method


def _call(function: str):
    def method(self: "TritonBuilder", *operands: TritonValue) -> TritonValue:
        return self.call(function, *operands)

    return method


class TritonBuilder(NamesUnknown):
    """See scalar_builder.ScalarBuilder: each method writes a line, and returns the variable."""

    def __init__(self, lines: Lines, dtype: torch.dtype):
        self.lines, self.dtype = lines, dtype

    def constant(self, value: float | int | bool, dtype: torch.dtype | None = None) -> TritonValue:
        dtype = dtype or self.dtype
        if dtype == torch.bool:
            value = bool(value)
        else:
            value = float(value) if dtype.is_floating_point else int(value)
        if value == 0 and math.copysign(1.0, value) < 0:  # Triton takes it for 0.0
            bits = torch.int64 if dtype == torch.float64 else torch.int32
            return self.bitcast(self.constant(-(1 << 63) if dtype == torch.float64 else -(1 << 31), bits), dtype)
        return TritonValue(f"tl.full([], {literal(value)}, {TL_DTYPE[dtype]})", dtype, number=value)

    def emit(self, text: str, dtype: torch.dtype, *operands: TritonValue) -> TritonValue:
        value = self.lines.name(text, dtype, frozenset().union(*(x.tile for x in operands)))
        value.fixed = bool(operands) and all(x.fixed for x in operands)
        return value

    def infix(self, operator: str, x: TritonValue, y: TritonValue, dtype: torch.dtype | None = None) -> TritonValue:
        """A number beside a variable is written as such: it takes the variable's dtype. Not beside a float64: Triton's comparisons
        make a float32 of a number first."""
        left, right = str(x), str(y)
        plain = x.dtype not in (torch.bool, torch.uint8, torch.float64)
        if plain and x.number is None and y.number is not None:
            right = literal(y.number) if y.number >= 0 or y.number != y.number else f"({literal(y.number)})"
        elif plain and y.number is None and x.number is not None:
            left = literal(x.number) if x.number >= 0 or x.number != x.number else f"({literal(x.number)})"
        return self.emit(f"{left} {operator} {right}", dtype or x.dtype, x, y)

    def call(self, function: str, *operands: TritonValue) -> TritonValue:
        return self.emit(f"{function}({', '.join(operands)})", operands[0].dtype, *operands)

    # conversions

    def cast(self, x: TritonValue, dtype: torch.dtype) -> TritonValue:
        """Converts as `Tensor.to` does on CUDA."""
        source = x.dtype
        if source == dtype:
            return x
        if x.number is not None and fits(x.number, dtype):
            return self.constant(torch.tensor(x.number, dtype=source).to(dtype).item(), dtype)
        if dtype == torch.bool:
            return self.ne(x, self.constant(0, source))
        if dtype in HALF and source != torch.float32:
            return self.cast(self.cast(x, torch.float32), dtype)  # as eager: rounds twice
        if source in HALF and dtype != torch.float32:
            return self.cast(self.cast(x, torch.float32), dtype)
        if source.is_floating_point and dtype in (torch.uint8, torch.int8, torch.int16):
            wide = torch.int64 if dtype == torch.uint8 else torch.int32  # cut out of a wider one, as C++ does
            return self.cast(self.cast(x, wide), dtype)
        if source.is_floating_point and dtype in (torch.int32, torch.int64):
            return self.emit(f"{TO_INTEGER[source, dtype]}({x})", dtype, x)
        return self.emit(f"{x}.to({TL_DTYPE[dtype]})", dtype, x)

    def bitcast(self, x: TritonValue, dtype: torch.dtype) -> TritonValue:
        return x if x.dtype == dtype else self.emit(f"{x}.to({TL_DTYPE[dtype]}, bitcast=True)", dtype, x)

    # arithmetic

    add, sub, mul = _binary("+"), _binary("-"), _binary("*")

    def div(self, x: TritonValue, y: TritonValue) -> TritonValue:
        """Rounded correctly, where Triton's `/` of float32 is not. Integers: towards zero."""
        if x.dtype == torch.float32:
            return self.call("tl.div_rn", x, y)
        if x.dtype.is_floating_point:
            return self.infix("/", x, y)
        return self.neg(x) if y.number == -1 else self.infix("//", x, self._safe_divisor(x, y))

    def rem(self, x: TritonValue, y: TritonValue) -> TritonValue:
        if x.dtype.is_floating_point:
            return self.call("libdevice.fmod", x, y)
        return self.xor(x, x) if y.number == -1 else self.infix("%", x, self._safe_divisor(x, y))

    def _safe_divisor(self, x: TritonValue, y: TritonValue) -> TritonValue:
        return y if y.number is not None and y.number not in (0, -1) else safe_divisor(self, x, y)

    def neg(self, x: TritonValue) -> TritonValue:
        """Triton's -x is 0 - x, which loses the sign of 0."""
        if x.dtype.is_floating_point:
            return self.infix("*", x, self.constant(-1.0, x.dtype))
        return self.emit(f"-{x}", x.dtype, x)

    abs, fma = _call("tl.abs"), _call("tl.fma")

    def minimum(self, x: TritonValue, y: TritonValue) -> TritonValue:
        return self._extremum("tl.minimum", x, y)

    def maximum(self, x: TritonValue, y: TritonValue) -> TritonValue:
        return self._extremum("tl.maximum", x, y)

    def _extremum(self, function: str, x: TritonValue, y: TritonValue) -> TritonValue:
        nan = ", propagate_nan=tl.PropagateNan.ALL" if x.dtype.is_floating_point else ""
        return self.emit(f"{function}({x}, {y}{nan})", x.dtype, x, y)

    # comparison and choice

    lt, le, gt, ge, eq, ne = map(_compare, ("<", "<=", ">", ">=", "==", "!="))

    def select(self, condition: TritonValue, x: TritonValue, y: TritonValue) -> TritonValue:
        return self.emit(f"tl.where({condition}, {x}, {y})", x.dtype, condition, x, y)

    # bits

    and_, or_, xor = _binary("&"), _binary("|"), _binary("^")

    def not_(self, x: TritonValue) -> TritonValue:
        if x.dtype == torch.uint8:
            return self.xor(x, self.constant(255, torch.uint8))
        return self.emit(f"~{x}", x.dtype, x)

    def shl(self, x: TritonValue, y: TritonValue) -> TritonValue:
        return self.select(self._in_width(y), self.infix("<<", x, y), self.constant(0, x.dtype))

    def shr(self, x: TritonValue, y: TritonValue) -> TritonValue:
        last = self.constant(torch.iinfo(x.dtype).bits - 1, y.dtype)
        if x.dtype == torch.uint8:
            return self.select(self._in_width(y), self.infix(">>", x, y), self.constant(0, x.dtype))
        return self.infix(">>", x, self.select(self._in_width(y), y, last))

    def _in_width(self, y: TritonValue) -> TritonValue:
        inside = self.lt(y, self.constant(torch.iinfo(y.dtype).bits, y.dtype))
        return inside if y.dtype == torch.uint8 else self.and_(inside, self.ge(y, self.constant(0, y.dtype)))

    # floating-point

    def sqrt(self, x: TritonValue) -> TritonValue:
        return self.call("tl.sqrt_rn" if x.dtype == torch.float32 else "tl.sqrt", x)

    floor, ceil, trunc, round = map(_call, ("tl.floor", "tl.ceil", "libdevice.trunc", "libdevice.rint"))
    exp, exp2, expm1 = map(_call, ("libdevice.exp", "libdevice.exp2", "libdevice.expm1"))
    log, log2, log10 = map(_call, ("libdevice.log", "libdevice.log2", "libdevice.log10"))
    log1p, sin, cos, tan = map(_call, ("libdevice.log1p", "libdevice.sin", "libdevice.cos", "libdevice.tan"))
    asin, acos, atan = map(_call, ("libdevice.asin", "libdevice.acos", "libdevice.atan"))
    atan2, sinh, cosh = map(_call, ("libdevice.atan2", "libdevice.sinh", "libdevice.cosh"))
    tanh, asinh, acosh = map(_call, ("libdevice.tanh", "libdevice.asinh", "libdevice.acosh"))
    atanh, erf, erfc = map(_call, ("libdevice.atanh", "libdevice.erf", "libdevice.erfc"))
    copysign = _call("libdevice.copysign")

    def pow(self, x: TritonValue, y: TritonValue) -> TritonValue:
        return self.call("libdevice.pow", self.cast(x, y.dtype), y)

"""Values of vectors or scalars as MLIR text: names with their dtypes, constants, one op a line."""

import math
import struct
from functools import cache
from itertools import count
from typing import Self

import torch

from mlirc.dialects.core.scalar_builder import NamesUnknown
from mlirc.dialects.core.tensor_types import DTYPE_TEXT
from mlirc.lowering.target import CpuTarget


class Value(str):
    """An SSA name, "%v12", and the dtype of its elements."""

    __slots__ = ("dtype",)
    dtype: torch.dtype

    def __new__(cls, name: str, dtype: torch.dtype):
        value = _new(cls, name)
        value.dtype = dtype
        return value


_new = str.__new__


class MlirFunctionText:
    """What all builders of one function share: SSA names, constants, and the external functions that it calls."""

    def __init__(self, target: CpuTarget, prefix: str = "v"):
        self.target = target
        self.preamble: list[str] = []
        self.functions: dict[str, str] = {}  # by name, the texts of the kernel's functions that this one calls
        self._declarations: dict[str, str] = {}
        self._constants: dict[tuple[str, str, torch.dtype], Value] = {}
        self.constant_values: dict[str, float | int | bool] = {}  # SSA name -> what `constant` was given
        self.integers: dict[int, Value] = {}  # constants of int64, a scalar each
        self._next = count().__next__
        self._prefix = f"%{prefix}"

    def new_name(self) -> str:
        return f"{self._prefix}{self._next()}"

    def constant(self, literal: str, type_: str, dtype: torch.dtype, value: float | int | bool | None) -> Value:
        """A constant of the function. `value` is the number that all lanes have, or None where they differ."""
        key = literal, type_, dtype  # int8 and uint8 are one type of text
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = Value(self.new_name(), dtype)
            if value is not None:
                self.constant_values[found] = value
            suffix = "" if type_ == "i1" else f" : {type_}"  # "true" already says it
            self.preamble.append(f"{found} = arith.constant {literal}{suffix}")
        return found

    def declare(self, name: str, arguments: list[str], result: str) -> None:
        """An external function, with the types of its arguments and result."""
        self._declarations[name] = f"llvm.func @{name}({', '.join(arguments)}) -> {result}"

    @property
    def declarations(self) -> list[str]:
        return list(self._declarations.values())


@cache
def element_text(dtype: torch.dtype) -> str:
    """The type of an element in the text of kernels: signless integers."""
    return DTYPE_TEXT[dtype].removeprefix("u")


@cache
def vector_text(lanes: int, dtype: torch.dtype) -> str:
    """The type of a vector of so many elements; of one, the element's."""
    return element_text(dtype) if lanes == 1 else f"vector<{lanes}x{element_text(dtype)}>"


def literal_text(value: float | int | bool, dtype: torch.dtype) -> str:
    """A constant's literal, which keeps every bit: floating-point numbers are written as hexadecimal bits."""
    if dtype == torch.bool:
        return "true" if value else "false"
    if not dtype.is_floating_point:
        width = 8 * dtype.itemsize
        wrapped = int(value) & (1 << width) - 1
        return str(wrapped - (1 << width) if wrapped >> width - 1 else wrapped)
    if dtype == torch.float64:
        return f"0x{_packed(value, '<d', '<Q'):016X}"
    bits = _packed(value, "<f", "<I")
    if dtype == torch.bfloat16:
        return f"0x{(bits + 0x7FFF + (bits >> 16 & 1)) >> 16:04X}"
    if dtype == torch.float16:  # as in PyTorch, by way of float32
        return f"0x{_packed(struct.unpack('<f', struct.pack('<I', bits))[0], '<e', '<H'):04X}"
    return f"0x{bits:08X}"


def _packed(value: float, as_float: str, as_bits: str) -> int:
    """The bits of the nearest number of that format; inf where it overflows."""
    try:
        packed = struct.pack(as_float, value)
    except OverflowError:
        packed = struct.pack(as_float, math.copysign(math.inf, value))
    return struct.unpack(as_bits, packed)[0]


class Instructions(NamesUnknown):
    """The methods that append one op of MLIR, or few, to `lines`.

    Half types are only cast, bitcast and selected. Every method raises TypeError for dtypes that it does not take.
    """

    def __init__(self, text: MlirFunctionText, lines: list[str], dtype: torch.dtype, lanes: int):
        self.text = text
        self.lines = lines
        self.dtype = dtype
        self.lanes = lanes

    def with_dtype(self, dtype: torch.dtype) -> Self:
        """A builder on the same lines whose computed dtype is `dtype`."""
        return type(self)(self.text, self.lines, dtype, self.lanes)

    def type_text(self, dtype: torch.dtype) -> str:
        """MLIR's type of a value of this builder."""
        return vector_text(self.lanes, dtype)

    def value(self, name: str, dtype: torch.dtype) -> Value:
        """A value that is defined elsewhere: "%x", of type type_text(dtype)."""
        return Value(name, dtype)

    def emit(self, operation: str, dtype: torch.dtype) -> Value:
        """Appends a line that defines a new value: `operation` is all that stands right of the equals sign."""
        name = self.text.new_name()
        self.lines.append(f"{name} = {operation}")
        value = _new(Value, name)
        value.dtype = dtype
        return value

    def constant(self, value: float | int | bool, dtype: torch.dtype | None = None) -> Value:
        dtype = dtype or self.dtype
        literal = literal_text(value, dtype)
        return self.text.constant(
            literal if self.lanes == 1 else f"dense<{literal}>", self.type_text(dtype), dtype, value
        )

    def constant_value(self, x: Value) -> float | int | bool | None:
        """The number that `constant` made `x` of, if it did."""
        return self.text.constant_values.get(x)

    def unary(self, op: str, x: Value) -> Value:
        _check_computable(op, x.dtype)
        return self.emit(f"{op} {x} : {self.type_text(x.dtype)}", x.dtype)

    def binary(self, op: str, x: Value, y: Value) -> Value:
        if x.dtype != y.dtype:
            raise TypeError(f"{op} of {x.dtype} and {y.dtype}: cast one to the other's dtype")
        _check_computable(op, x.dtype)
        return self.emit(f"{op} {x}, {y} : {self.type_text(x.dtype)}", x.dtype)

    def convert(self, op: str, x: Value, dtype: torch.dtype) -> Value:
        """Writes a conversion op ("arith.extf") from x's type to that of `dtype`."""
        return self.emit(f"{op} {x} : {self.type_text(x.dtype)} to {self.type_text(dtype)}", dtype)

    def bitcast(self, x: Value, dtype: torch.dtype) -> Value:
        if x.dtype.itemsize != dtype.itemsize or torch.bool in (x.dtype, dtype):
            raise TypeError(f"bitcast from {x.dtype} to {dtype}: the widths differ")
        if element_text(x.dtype) == element_text(dtype):
            return Value(x, dtype)
        return self.convert("arith.bitcast", x, dtype)

    # arithmetic

    def add(self, x: Value, y: Value) -> Value:
        if x.dtype == torch.bool:
            return self.or_(x, y)
        return self.binary("arith.addf" if x.dtype.is_floating_point else "arith.addi", x, y)

    def sub(self, x: Value, y: Value) -> Value:
        return self.binary("arith.subf" if x.dtype.is_floating_point else "arith.subi", x, y)

    def mul(self, x: Value, y: Value) -> Value:
        if x.dtype == torch.bool:
            return self.and_(x, y)
        return self.binary("arith.mulf" if x.dtype.is_floating_point else "arith.muli", x, y)

    def neg(self, x: Value) -> Value:
        if x.dtype.is_floating_point:
            return self.unary("arith.negf", x)
        return self.sub(self.constant(0, x.dtype), x)

    def abs(self, x: Value) -> Value:
        if x.dtype.is_floating_point:
            return self.unary("math.absf", x)
        return x if is_unsigned(x.dtype) else self.unary("math.absi", x)

    def fma(self, x: Value, y: Value, z: Value) -> Value:
        if not x.dtype.is_floating_point:
            return self.add(self.mul(x, y), z)
        if not x.dtype == y.dtype == z.dtype:
            raise TypeError(f"fma of {x.dtype}, {y.dtype} and {z.dtype}: cast them to one dtype")
        _check_computable("math.fma", x.dtype)
        return self.emit(f"math.fma {x}, {y}, {z} : {self.type_text(x.dtype)}", x.dtype)

    def minimum(self, x: Value, y: Value) -> Value:
        return self._extremum("min", "lt", x, y)

    def maximum(self, x: Value, y: Value) -> Value:
        return self._extremum("max", "gt", x, y)

    def _extremum(self, kind: str, closer: str, x: Value, y: Value) -> Value:
        if x.dtype == torch.bool:
            return self.and_(x, y) if kind == "min" else self.or_(x, y)
        if not x.dtype.is_floating_point:
            return self.binary(f"arith.{kind}{'u' if is_unsigned(x.dtype) else 's'}i", x, y)
        if self.text.target.arch != "x86_64":
            return self.binary(f"arith.{kind}imumf", x, y)
        # x86's minps(a, b) is a < b ? a : b, so a NaN in b wins by itself: one instruction where a is a number
        if self._is_number(x):
            x, y = y, x
        if self._is_number(y):
            return self.select(getattr(self, closer)(y, x), y, x)
        # of equal ones y, so that the sign of 0 is known, as it is not with `maximumf <nsz>`
        return self.select(self.ne(x, x), x, self.select(getattr(self, closer)(x, y), x, y))

    def _is_number(self, x: Value) -> bool:
        known = self.constant_value(x)
        return known is not None and known == known

    # comparison and choice

    def lt(self, x: Value, y: Value) -> Value:
        return self._compare("olt", "slt", x, y)

    def le(self, x: Value, y: Value) -> Value:
        return self._compare("ole", "sle", x, y)

    def gt(self, x: Value, y: Value) -> Value:
        return self._compare("ogt", "sgt", x, y)

    def ge(self, x: Value, y: Value) -> Value:
        return self._compare("oge", "sge", x, y)

    def eq(self, x: Value, y: Value) -> Value:
        return self._compare("oeq", "eq", x, y)

    def ne(self, x: Value, y: Value) -> Value:
        return self._compare("une", "ne", x, y)

    def _compare(self, of_floats: str, of_integers: str, x: Value, y: Value) -> Value:
        if x.dtype != y.dtype:
            raise TypeError(f"comparison of {x.dtype} and {y.dtype}: cast one to the other's dtype")
        _check_computable("comparison", x.dtype)
        if x.dtype.is_floating_point:
            op = f"arith.cmpf {of_floats}"
        elif is_unsigned(x.dtype) and of_integers[0] == "s":
            op = f"arith.cmpi u{of_integers[1:]}"
        else:
            op = f"arith.cmpi {of_integers}"
        return self.emit(f"{op}, {x}, {y} : {self.type_text(x.dtype)}", torch.bool)

    def select(self, condition: Value, x: Value, y: Value) -> Value:
        if condition.dtype != torch.bool or x.dtype != y.dtype:
            raise TypeError(f"select({condition.dtype}, {x.dtype}, {y.dtype}): expected a bool and two of one dtype")
        mask = "" if self.lanes == 1 else f"{self.type_text(torch.bool)}, "
        return self.emit(f"arith.select {condition}, {x}, {y} : {mask}{self.type_text(x.dtype)}", x.dtype)

    # bits

    def and_(self, x: Value, y: Value) -> Value:
        return self.binary("arith.andi", x, y)

    def or_(self, x: Value, y: Value) -> Value:
        return self.binary("arith.ori", x, y)

    def xor(self, x: Value, y: Value) -> Value:
        return self.binary("arith.xori", x, y)

    def not_(self, x: Value) -> Value:
        return self.xor(x, self.constant(True if x.dtype == torch.bool else -1, x.dtype))

    def shl(self, x: Value, y: Value) -> Value:
        zero = self.constant(0, x.dtype)
        return self.select(self._is_shift(y), self.binary("arith.shli", x, y), zero)

    def shr(self, x: Value, y: Value) -> Value:
        if is_unsigned(x.dtype):
            return self.select(self._is_shift(y), self.binary("arith.shrui", x, y), self.constant(0, x.dtype))
        most = self.constant(8 * x.dtype.itemsize - 1, x.dtype)
        return self.binary("arith.shrsi", x, self.binary("arith.minui", y, most))

    def _is_shift(self, y: Value) -> Value:
        """Whether `y` is less than the width; a negative shift counts as a large one."""
        width = self.constant(8 * y.dtype.itemsize, y.dtype)
        return self.emit(f"arith.cmpi ult, {y}, {width} : {self.type_text(y.dtype)}", torch.bool)

    # floating-point

    def floor(self, x: Value) -> Value:
        return self._rounded("math.floor", x)

    def ceil(self, x: Value) -> Value:
        return self._rounded("math.ceil", x)

    def trunc(self, x: Value) -> Value:
        return self._rounded("math.trunc", x)

    def round(self, x: Value) -> Value:
        return self._rounded("math.roundeven", x)

    def _rounded(self, op: str, x: Value) -> Value:
        return self.unary(op, x) if x.dtype.is_floating_point else x

    def sqrt(self, x: Value) -> Value:
        return self.unary("math.sqrt", x)

    def copysign(self, x: Value, y: Value) -> Value:
        return self.binary("math.copysign", x, y)


def is_unsigned(dtype: torch.dtype) -> bool:
    return not dtype.is_signed


def _check_computable(op: str, dtype: torch.dtype) -> None:
    if dtype in (torch.float16, torch.bfloat16):
        raise TypeError(f"{op} of {dtype}: half types compute in float32, cast first")

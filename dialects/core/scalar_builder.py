"""The interface with which an op's scalar body is written, and its implementation in plain torch for the interpreter.

A body is a function `scalar(b, x, ...)` of values of one computed dtype, `b.dtype`; comparisons give booleans. Each target
implements these methods: vectors of MLIR for the CPU, Triton expressions for the GPU, torch tensors here.

Accuracy: add, sub, mul, div, sqrt and the roundings are exact to the last bit (IEEE 754, to nearest); subnormals are kept. The
elementary functions are within these units in the last place of the computed dtype, at all magnitudes; NaN, infinities and the
signs of zeros are C's.

              float32 on a CPU                                     float64 on a CPU     on a GPU
    exp, ...  1.5, or twice eager's own error where that is more   1 (erfc: 1.5)        libdevice's, as eager's

A kernel on a GPU that writes half types alone may be off by more, far less than their rounding (gpu/triton/rounded.py). Fusion may
contract mul and add to an fma where it sums products up (cpu/loops/fma_contraction.py). So a formula that cancels should use
expm1, log1p, erfc or fma, and not rely on two roundings.
"""

import dis
import math
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Protocol

import torch

Value = Any


class ScalarBuilder(Protocol):
    """What a scalar body may use. `value` arguments of `constant` are Python numbers; `dtype` defaults to the computed one."""

    dtype: torch.dtype

    def constant(self, value: float | int | bool, dtype: torch.dtype | None = None) -> Value: ...
    def cast(self, x: Value, dtype: torch.dtype) -> Value: ...  # as Tensor.to: truncation to integers, != 0 to bool
    def bitcast(self, x: Value, dtype: torch.dtype) -> Value: ...  # the same bits; same width

    # arithmetic: floating-point, or integers that wrap around
    def add(self, x: Value, y: Value) -> Value: ...
    def sub(self, x: Value, y: Value) -> Value: ...
    def mul(self, x: Value, y: Value) -> Value: ...
    def div(
        self, x: Value, y: Value
    ) -> Value: ...  # of integers: rounds towards zero; x / 0 and lowest / -1 give any value, and do not trap
    def rem(self, x: Value, y: Value) -> Value: ...  # C's fmod, or the remainder of div
    def neg(self, x: Value) -> Value: ...
    def abs(self, x: Value) -> Value: ...
    def fma(self, x: Value, y: Value, z: Value) -> Value: ...  # x*y + z, rounded once or twice
    def minimum(self, x: Value, y: Value) -> Value: ...  # NaN if either is
    def maximum(self, x: Value, y: Value) -> Value: ...

    # comparison (a NaN is unequal to all) and choice
    def lt(self, x: Value, y: Value) -> Value: ...
    def le(self, x: Value, y: Value) -> Value: ...
    def gt(self, x: Value, y: Value) -> Value: ...
    def ge(self, x: Value, y: Value) -> Value: ...
    def eq(self, x: Value, y: Value) -> Value: ...
    def ne(self, x: Value, y: Value) -> Value: ...
    def select(self, condition: Value, x: Value, y: Value) -> Value: ...

    # bits of integers and booleans; a shift by the width or more gives 0 (or the sign)
    def and_(self, x: Value, y: Value) -> Value: ...
    def or_(self, x: Value, y: Value) -> Value: ...
    def xor(self, x: Value, y: Value) -> Value: ...
    def not_(self, x: Value) -> Value: ...
    def shl(self, x: Value, y: Value) -> Value: ...
    def shr(self, x: Value, y: Value) -> Value: ...  # keeps the sign of signed types

    # floating-point
    def floor(self, x: Value) -> Value: ...
    def ceil(self, x: Value) -> Value: ...
    def trunc(self, x: Value) -> Value: ...
    def round(self, x: Value) -> Value: ...  # halves to even
    def sqrt(self, x: Value) -> Value: ...
    def exp(self, x: Value) -> Value: ...
    def exp2(self, x: Value) -> Value: ...
    def expm1(self, x: Value) -> Value: ...
    def log(self, x: Value) -> Value: ...
    def log2(self, x: Value) -> Value: ...
    def log10(self, x: Value) -> Value: ...
    def log1p(self, x: Value) -> Value: ...
    def sin(self, x: Value) -> Value: ...
    def cos(self, x: Value) -> Value: ...
    def tan(self, x: Value) -> Value: ...
    def asin(self, x: Value) -> Value: ...
    def acos(self, x: Value) -> Value: ...
    def atan(self, x: Value) -> Value: ...
    def atan2(self, y: Value, x: Value) -> Value: ...
    def sinh(self, x: Value) -> Value: ...
    def cosh(self, x: Value) -> Value: ...
    def tanh(self, x: Value) -> Value: ...
    def asinh(self, x: Value) -> Value: ...
    def acosh(self, x: Value) -> Value: ...
    def atanh(self, x: Value) -> Value: ...
    def erf(self, x: Value) -> Value: ...
    def erfc(self, x: Value) -> Value: ...
    def pow(self, x: Value, y: Value) -> Value:
        """C's pow. Of a float32 x and a float64 y it is a float32 or a float64: cast it."""
        ...

    def copysign(self, x: Value, y: Value) -> Value: ...


METHODS = tuple(name for name in vars(ScalarBuilder) if not name.startswith("_"))


def unknown_method(name: str) -> str:
    close = get_close_matches(name, METHODS, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"there are {', '.join(METHODS)}"
    return f"a scalar body has no b.{name}; {hint} (dialects/core/scalar_builder.py has each with its meaning)"


def check_body(body: Callable) -> None:
    """Raises AttributeError, with the line, if a body calls a method that no builder has.

    Reads the body's instructions and runs none, so that each branch is checked. Calls in functions that the body passes its builder
    to are found when they run, by NamesUnknown.
    """
    code = getattr(body, "__code__", None)
    builder = code.co_varnames[0] if code is not None and code.co_argcount else None
    if code is None or builder is None:
        return
    loaded, line = None, code.co_firstlineno
    for step in dis.get_instructions(code):
        line = step.positions.lineno or line if step.positions else line
        if loaded == builder and step.opname in ("LOAD_ATTR", "LOAD_METHOD") and step.argval not in (*METHODS, "dtype"):
            raise AttributeError(f"{code.co_filename}:{line}: {unknown_method(step.argval)}")
        # LOAD_FAST_LOAD_FAST of Python 3.13 leaves the second of two variables on top
        loaded = step.argval[-1] if isinstance(step.argval, tuple) else step.argval if "LOAD_" in step.opname else None


class NamesUnknown:
    """Base of the implementations. The error for an unknown method lists methods with similar names."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(unknown_method(name))


def is_float(b: ScalarBuilder) -> bool:
    return b.dtype.is_floating_point


def is_nan(b: ScalarBuilder, x: Value) -> Value:
    return b.ne(x, x)


def safe_divisor(b: Any, x: Value, y: Value) -> Value:
    """The divisor `y`, with 1 where integer division of x by it is undefined or traps: y = 0, and the lowest number by -1."""
    undefined = b.eq(y, b.constant(0, y.dtype))
    if x.dtype.is_signed:
        lowest = b.eq(x, b.constant(torch.iinfo(x.dtype).min, x.dtype))
        undefined = b.or_(undefined, b.and_(lowest, b.eq(y, b.constant(-1, y.dtype))))
    return b.select(undefined, b.constant(1, y.dtype), y)


def infinity(b: ScalarBuilder) -> Value:
    return b.constant(math.inf)


def _static(*functions: Callable) -> Iterator[Any]:
    return map(staticmethod, functions)


class TorchBuilder(NamesUnknown):
    """Scalar bodies on torch tensors: slow, and right by construction."""

    def __init__(self, dtype: torch.dtype):
        self.dtype = dtype

    def constant(self, value, dtype=None):
        return torch.tensor(value, dtype=dtype or self.dtype)

    def cast(self, x, dtype):
        return x.to(dtype)

    def bitcast(self, x, dtype):
        return x.view(dtype)

    def div(self, x, y):
        if x.dtype.is_floating_point:
            return torch.div(x, y)
        return torch.div(x, torch.where(y == 0, torch.ones_like(y), y), rounding_mode="trunc")

    def rem(self, x, y):
        if x.dtype.is_floating_point:
            return torch.fmod(x, y)
        return torch.fmod(x, torch.where(y == 0, torch.ones_like(y), y))

    def fma(self, x, y, z):
        return x * y + z

    def shl(self, x, y):
        return torch.bitwise_left_shift(x, y)

    def shr(self, x, y):
        return torch.bitwise_right_shift(x, y)

    add, sub, mul, neg, abs = _static(torch.add, torch.sub, torch.mul, torch.neg, torch.abs)
    minimum, maximum, select = _static(torch.minimum, torch.maximum, torch.where)
    lt, le, gt, ge, eq, ne = _static(torch.lt, torch.le, torch.gt, torch.ge, torch.eq, torch.ne)
    and_, or_, xor = _static(torch.bitwise_and, torch.bitwise_or, torch.bitwise_xor)
    not_, floor, ceil, trunc = _static(torch.bitwise_not, torch.floor, torch.ceil, torch.trunc)
    round, sqrt, exp, exp2, expm1 = _static(torch.round, torch.sqrt, torch.exp, torch.exp2, torch.expm1)
    log, log2, log10, log1p = _static(torch.log, torch.log2, torch.log10, torch.log1p)
    sin, cos, tan, asin, acos = _static(torch.sin, torch.cos, torch.tan, torch.asin, torch.acos)
    atan, atan2, sinh, cosh, tanh = _static(torch.atan, torch.atan2, torch.sinh, torch.cosh, torch.tanh)
    asinh, acosh, atanh = _static(torch.asinh, torch.acosh, torch.atanh)
    erf, erfc, pow, copysign = _static(torch.erf, torch.erfc, torch.pow, torch.copysign)

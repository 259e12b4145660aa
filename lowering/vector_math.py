"""The elementary functions of VectorBuilder: `MATH[name](b, x)` writes the lines for float32 or float64 values."""

from collections.abc import Callable

from mlirc.lowering.vector_math_calls import call

NAMES = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "atan2",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "erfc",
    "pow",
    "fmod",
]


def _called(name: str) -> Callable:
    return lambda b, *operands: call(b, name, *operands)


MATH: dict[str, Callable] = {name: _called(name) for name in NAMES}

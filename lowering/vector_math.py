"""The elementary functions of VectorBuilder: `MATH[name](b, x)` writes the lines for float32 or float64 values."""

from collections.abc import Callable

import torch

from mlirc.lowering import vector_math_exp, vector_math_log, vector_math_trig
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


_INLINE_FLOAT32: dict[str, Callable] = {
    "exp": vector_math_exp.exp,
    "exp2": vector_math_exp.exp2,
    "expm1": vector_math_exp.expm1,
    "tanh": vector_math_exp.tanh,
    "cosh": vector_math_exp.cosh,
    "sinh": vector_math_exp.sinh,
    "log": vector_math_log.log,
    "log2": vector_math_log.log2,
    "log10": vector_math_log.log10,
    "log1p": vector_math_log.log1p,
    "sin": vector_math_trig.sin,
    "cos": vector_math_trig.cos,
    "tan": vector_math_trig.tan,
    "asin": vector_math_trig.asin,
    "acos": vector_math_trig.acos,
    "atan": vector_math_trig.atan,
    "atan2": vector_math_trig.atan2,
}


def _function(name: str) -> Callable:
    inline = _INLINE_FLOAT32.get(name)

    def write(b, *operands):
        if inline is not None and operands[0].dtype == torch.float32:
            return inline(b, *operands)
        return call(b, name, *operands)

    return write


MATH: dict[str, Callable] = {name: _function(name) for name in NAMES}

"""Elementwise work, type promotion, casts, and what compares or chooses."""

import torch

from tests.fuzz.writer import (
    COMPLEX,
    DTYPES,
    FLOATS,
    NoLine,
    Writer,
    filled,
    is_float,
    is_inexact,
    is_integer,
    is_number,
    is_real,
    kind,
    words,
)

UNARY = words(
    """
    abs neg exp expm1 exp2 log log1p log2 log10 sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh
    atanh sigmoid erf erfc erfinv square reciprocal floor ceil round trunc frac sign sgn lgamma digamma logit isnan
    isinf isfinite logical_not positive deg2rad rad2deg signbit sinc i0 nan_to_num isposinf isneginf
    """
)
ACTIVATIONS = words(
    """
    relu relu6 silu gelu elu celu selu mish softplus softsign tanhshrink hardtanh hardsigmoid hardswish hardshrink
    softshrink leaky_relu logsigmoid
    """
)
BINARY = words(
    """
    add sub mul maximum minimum atan2 fmax fmin hypot copysign logaddexp logaddexp2 xlogy nextafter heaviside ldexp
    true_divide eq ne lt le gt ge logical_and logical_or logical_xor
    """
)
INTEGER = ["bitwise_and", "bitwise_or", "bitwise_xor", "gcd", "lcm", "bitwise_left_shift", "bitwise_right_shift"]
OPERATORS = ["+", "-", "*", "/", "==", "<", ">=", "!="]


@kind(3)
def unary(w: Writer) -> None:
    x = w.tensor()
    w.emit(f"torch.{w.choice(*UNARY)}({x})")


@kind(1.5)
def activation(w: Writer) -> None:
    name = w.choice(*ACTIVATIONS)
    x = w.tensor(is_float)
    extra = ", approximate='tanh'" if name == "gelu" and w.chance(0.4) else ""
    w.emit(f"F.{name}({x}{extra})")


@kind(4)
def binary(w: Writer) -> None:
    w.emit(f"torch.{w.choice(*BINARY)}({w.tensor()}, {w.tensor()})")


@kind(4)
def operator(w: Writer) -> None:
    a, b = w.tensor(), w.tensor()
    if w.chance(0.5):
        b = w.number()
        if w.chance(0.3):
            a, b = b, a
    w.emit(f"{a} {w.choice(*OPERATORS)} {b}")


@kind(1)
def alpha(w: Writer) -> None:
    w.emit(f"torch.{w.choice('add', 'sub')}({w.tensor()}, {w.tensor()}, alpha={w.number()})")


@kind(1.5)
def division(w: Writer) -> None:
    """Integers are divided by nonzero numbers only (exclusions.py)."""
    x = w.tensor(is_real)
    y = w.tensor(is_real)
    if w.chance(0.5):
        number = w.number()
        if w.value(number) == 0 or any(eval(number, env) == 0 for env in w.envs):
            raise NoLine
        y = number
    elif not is_float(w.value(y)):
        y = f"{y}.abs().clamp_min(1)" if w.value(y).dtype != torch.bool else f"({y}.int() + 1)"
    op = w.choice(
        "torch.div({}, {}, rounding_mode='floor')", "torch.div({}, {}, rounding_mode='trunc')", "{} % {}", "{} // {}"
    )
    w.emit(w.choice(op, op, op, "torch.fmod({}, {})", "torch.remainder({}, {})").format(x, y))


@kind(1)
def power(w: Writer) -> None:
    x = w.tensor(is_number)
    if w.chance(0.4):
        w.emit(f"torch.pow({x}, {w.tensor(is_float)})")
    elif w.chance(0.3):
        w.emit(f"{w.choice('2', '1.5', '-2', w.real())} ** {x}")
    else:
        w.emit(f"{x} ** {w.choice('2', '3', '0.5', '-1', '-2', '0', '1', w.number())}")


@kind(1.5)
def bits(w: Writer) -> None:
    test = lambda x: is_integer(x) or x.dtype == torch.bool
    a, b = w.tensor(test), w.tensor(test)
    if w.chance(0.3):
        w.emit(f"{a} {w.choice('&', '|', '^')} {w.integer()}")
    elif w.chance(0.2):
        w.emit(f"~{a}")
    elif w.chance(0.3):
        w.emit(f"{a} {w.choice('<<', '>>')} {w.choice('0', '1', '2', '3', '7')}")
    else:
        w.emit(f"torch.{w.choice(*INTEGER)}({a}, {b})")


@kind(2)
def choose(w: Writer) -> None:
    c = w.tensor(is_real)
    condition = c if w.value(c).dtype == torch.bool else f"({c} {w.choice('>', '<=', '==', '!=')} {w.number()})"
    way = w.rng.randrange(4)
    if way == 0:
        w.emit(f"torch.where({condition}, {w.tensor()}, {w.tensor()})")
    elif way == 1:
        w.emit(f"torch.where({condition}, {w.tensor()}, {w.number()})")
    elif way == 2:
        value = w.choice(w.number(), "3e9", "float('inf')", "-1e9")
        w.emit(f"{w.tensor()}.masked_fill({condition}, {value})")
    else:
        w.emit(f"torch.where({condition}, {w.number()}, {w.tensor()})")


@kind(1.5)
def clamp(w: Writer) -> None:
    x = w.tensor(is_real)
    if w.chance(0.3):
        w.emit(f"torch.clamp({x}, {w.tensor(is_real)}, {w.tensor(is_real)})")
    else:
        parts = [w.choice("", f"min={w.number()}"), w.choice("", f"max={w.number()}")]
        w.emit(f"{x}.clamp({', '.join(p for p in parts if p)})")


@kind(1.5)
def ternary(w: Writer) -> None:
    a, b, c = w.tensor(), w.tensor(), w.tensor()
    way = w.rng.randrange(5)
    if way == 0:
        w.emit(f"torch.addcmul({a}, {b}, {c}, value={w.number()})")
    elif way == 1:
        c = w.tensor(is_inexact)
        w.emit(f"torch.addcdiv({a}, {b}, {c}, value={w.number()})")
    elif way == 2:
        w.emit(f"torch.lerp({a}, {b}, {w.choice('0.3', '0.7', w.real(), c)})")
    elif way == 3:
        w.emit(f"F.threshold({w.tensor(is_float)}, {w.real()}, {w.real()})")
    else:
        w.emit(f"torch.rsub({a}, {b}, alpha={w.number()})")


@kind(2.5)
def cast(w: Writer) -> None:
    """Casts of numbers that are out of range to unsigned bytes and short integers are undefined (exclusions.py)."""
    x = w.tensor()
    value, dtype = w.value(x), w.choice(*DTYPES, torch.float32, torch.float32)
    if is_inexact(value) and dtype not in (*FLOATS, *COMPLEX, torch.bool) and not _in_range(w, x, dtype):
        raise NoLine
    w.emit(f"{x}.to({dtype})")


def _in_range(w: Writer, x: str, dtype: torch.dtype) -> bool:
    limits = torch.iinfo(dtype)
    for env in w.envs:
        value = eval(x, env)
        if value.is_complex():
            value = value.real
        wide = value.double()
        if not bool((wide.isfinite() & (wide > limits.min) & (wide < limits.max)).all()):
            return False
    return True


@kind(0.6)
def view_dtype(w: Writer) -> None:
    x = w.tensor(filled)
    dtypes = [torch.int32, torch.int16, torch.uint8, torch.int64]
    if not is_float(w.value(x)):  # the last bits of a rounded number are any number
        dtypes += [torch.float32, torch.float16]
    w.emit(f"{x}.view({w.choice(*dtypes)})")


@kind(0.7)
def complex_parts(w: Writer) -> None:
    if w.chance(0.3):
        w.emit(f"torch.complex({w.tensor(is_float)}, {w.tensor(is_float)})")
    x = w.tensor(lambda x: x.is_complex())
    w.emit(
        w.choice(
            "torch.view_as_real({})", "{}.real", "{}.imag", "{}.conj()", "torch.angle({})", "{}.abs()", "{}.conj() * 2"
        ).format(x)
    )

"""Half types: every op on every other one's result gives eager's number, or one as near to the exact one, and eager's zero.

Eager rounds between the two. Skipping that is right where the answer stays within twice eager's own error (docs/decisions.md);
which ops it would not be right for is measured here, on all numbers of a half type.
"""

import math
from collections.abc import Callable
from functools import cache

import pytest
import torch
import torch.nn.functional as F

from mlirc.dialects.core.dialect import OPS, Elementwise, load_ops
from tests.dialects.test_scalar_ops import APART, arity

pytestmark = pytest.mark.thinned

load_ops()
HALVES = (torch.bfloat16, torch.float16)
ELEMENTWISE = {n: c for n, c in OPS.items() if issubclass(c, Elementwise) and n not in APART}
# Neighbours of opposite signs, which no rounding takes for one another; quotients by what vanishes (decisions.md); booleans
# are cast to, and a cast rounds.
NO_JUMPS = {"copysign", "div", "logical_and", "logical_or", "logical_xor", "logical_not"}

COMPOSED: dict[str, Callable] = {
    "tanhshrink": F.tanhshrink,
    "softsign": F.softsign,
    "softplus": F.softplus,
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "elu": F.elu,
    "celu": F.celu,
    "selu": F.selu,
    "leaky_relu": F.leaky_relu,
    "hardtanh": F.hardtanh,
    "logsigmoid": F.logsigmoid,
    "minus 1": lambda x: x - 1,
    "times 0.3": lambda x: x * 0.3,
    "over 3": lambda x: x / 3,
    "3 over": lambda x: 3 / x,
    "clamp": lambda x: x.clamp(-1.5, 0.7),
    "% 1": lambda x: torch.remainder(x, 1.0),
    "% -0.7": lambda x: torch.remainder(x, -0.7),
    "fmod 1": lambda x: torch.fmod(x, 1.0),
    "// 1": lambda x: torch.floor_divide(x, 1.0),
    "// -0.3": lambda x: torch.floor_divide(x, -0.3),
    "floor of quotient": lambda x: torch.div(x, 0.7, rounding_mode="floor"),
    "trunc of quotient": lambda x: torch.div(x, 0.7, rounding_mode="trunc"),
    "** 2": lambda x: x**2,
    "** 0.5": lambda x: x**0.5,
    "** -1.5": lambda x: x**-1.5,
    "2 **": lambda x: 2.0**x,
    "deg2rad": torch.deg2rad,
    "nan_to_num": torch.nan_to_num,
    "atan2 1": lambda x: torch.atan2(x, torch.ones_like(x)),
    "xlogy": lambda x: torch.xlogy(x, x),
    "hypot": lambda x: torch.hypot(x, torch.ones_like(x)),
    "logaddexp": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
}
UNARY = {n: c.reference for n, c in ELEMENTWISE.items() if arity(c) == 1 and n not in ("bitwise_not", "logical_not")}
FUNCTIONS = UNARY | COMPOSED
QUICK = ("tan", "reciprocal")
OF_NUMBERS = {"signbit"}  # a NaN's sign is eager's own business
# Where 1 + erf(x) is a few last bits, eager's erf for narrower vectors has others than ours, and both few.
WIDE = torch.backends.cpu.get_cpu_capability() == "AVX512"
# What float32 computes as 1 + erf(x), or as the sine of a rounded pi x, has an error of float32's beside 1 or x, eager's too.
AS_FLOAT32 = {"gelu", "gelu_tanh", "sinc"}
EITHER_ZERO = {"softshrink"}  # eager's vectors give 0.0 where its tails give -0.0


@cache
def all_numbers(dtype: torch.dtype) -> torch.Tensor:
    positive = torch.arange(2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    positive = positive[positive.isfinite()]
    return torch.cat([-positive.flip(0), positive])


@cache
def neighbours(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Every ninth pair of numbers side by side, and all pairs around 0, 1 and the like."""
    every = all_numbers(dtype)
    chosen = torch.zeros(len(every) - 1, dtype=torch.bool)
    chosen[::9] = True
    for number in (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0):
        for place in ((every == number) | (every == -number)).nonzero().flatten().tolist():
            chosen[place - 5 : place + 5] = True
    return every[:-1][chosen].double(), every[1:][chosen].double()


def steepest(f: Callable, dtype: torch.dtype) -> float:
    """How far the results of two neighbours are apart at most, for the larger of them, or 1; infinite at the edge of a domain."""
    results = [f(x).to(torch.float64) for x in neighbours(dtype)]
    a, b = (torch.where(y.abs() > torch.finfo(dtype).max, y.sign() * math.inf, y) for y in results)
    apart = (b - a).abs() / torch.maximum(a.abs(), b.abs()).clamp(min=1.0)
    apart = apart.masked_fill((a == b) | (a.isnan() & b.isnan()), 0.0)
    edge = (a.isinf() != b.isinf()) & (torch.where(a.isinf(), b, a).abs() < torch.finfo(dtype).max / 4)
    return float(apart.nan_to_num(0.0).masked_fill(edge | (a.isnan() != b.isnan()), math.inf).max())


@pytest.mark.parametrize("name", sorted(n for n, c in ELEMENTWISE.items() if arity(c) < 3 and n not in NO_JUMPS))
def test_what_is_steep_jumps(name):
    """exp, the steepest that keeps its operand's precision, changes by a factor of 1.65 between two of bfloat16's numbers."""
    cls, found = ELEMENTWISE[name], 0.0
    for dtype in HALVES:
        for other in (0.0, 1.0, -2.5, 3.0):
            sides = [cls.reference]
            if arity(cls) == 2:
                sides = [lambda x, y=other: cls.reference(x, torch.full_like(x, y))]
                sides.append(lambda x, y=other: cls.reference(torch.full_like(x, y), x))
            try:
                found = max([found, *(steepest(f, dtype) for f in sides)])
            except (RuntimeError, NotImplementedError):  # of integers only
                continue
    assert cls.jumps or found < 0.6, found


def numbers(dtype: torch.dtype) -> torch.Tensor:
    every = all_numbers(dtype)
    near = torch.linspace(-8, 8, 321, dtype=torch.float64).to(dtype)
    special = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan], dtype=dtype)
    return torch.cat([every[:: len(every) // 400], near, special])


def step(x: torch.Tensor, by: int) -> torch.Tensor:
    """The number next to each."""
    return torch.where((x == 0) | ~x.isfinite(), x, (x.view(torch.int16) + by).view(x.dtype))


def wrong(got: torch.Tensor, first: Callable, second: Callable, x: torch.Tensor, noise: float = 0.0) -> str:
    """What is neither within twice eager's error, nor what eager gives of the first op's exact result, rounded, or of a number
    next to eager's. `noise` is the first op's own error beside 1 or x."""
    middle, perfect = first(x), first(x.double())
    eager = second(middle)
    assert got.dtype == eager.dtype and got.shape == eager.shape
    exact = second(perfect).double()
    wide, a = got.double(), eager.double()
    eps = torch.finfo(x.dtype).eps
    least = torch.finfo(x.dtype).smallest_normal * eps  # where half of a step is rounded to even
    limit = (
        2 * (a - exact).abs() + 2 * eps * exact.abs() + least + 1e-13 + noise * x.double().abs().clamp(1, 8)
    )  # squares of what is float32's noise beside 1
    right = ((wide - exact).abs() <= limit) | (wide == exact) | (wide.isnan() & exact.isnan())
    if not eager.dtype.is_floating_point:
        right = got == eager
    candidates = [
        middle,
        first(torch.stack([x, x], 1)[:, 0]),
    ]  # eager's remainders of far numbers are NaN in vectors only
    if middle.dtype == x.dtype:
        candidates += [step(middle, 1), step(middle, -1), perfect.to(x.dtype)]
    for y in candidates:
        answer = second(y)
        if answer.dtype.is_floating_point:
            near = torch.isclose(wide, answer.double(), rtol=4 * eps, atol=0.0, equal_nan=True)
            right |= near & ((wide != 0) | (answer.signbit() == got.signbit()))
        else:
            right |= got == answer
    if right.all():
        return ""
    bad = ~right
    return f"{int(bad.sum())}: of {x[bad][:3].tolist()} {got[bad][:3].tolist()}, eager {eager[bad][:3].tolist()}, exact {exact[bad][:3].tolist()}"


def check(second: str, dtype: torch.dtype, every: int = 1) -> None:
    x = numbers(dtype)
    firsts = {}
    for name in sorted(FUNCTIONS)[::every]:
        if name in EITHER_ZERO or (name == "gelu" and not WIDE):
            continue
        f = FUNCTIONS[name] if second not in OF_NUMBERS else lambda x, f=FUNCTIONS[name]: f(x).nan_to_num(1.0)
        try:
            FUNCTIONS[second](f(x))
            firsts[name] = f
        except (RuntimeError, NotImplementedError):
            continue
    torch.compiler.reset()
    last = FUNCTIONS[second]
    compiled = torch.compile(lambda x: [last(f(x)) for f in firsts.values()], backend="mlirc", fullgraph=True)
    found = {}
    for (name, f), got in zip(firsts.items(), compiled(x), strict=True):
        if text := wrong(got, f, last, x, 2.0**-23 if name in AS_FLOAT32 else 0.0):
            found[name] = text
    hint = f"; where {second} is steep, or gives NaN of infinity, its class says jumps = True (docs/adding.md)"
    hint = "" if second not in ELEMENTWISE or ELEMENTWISE[second].jumps else hint
    assert not found, "\n".join(f"{second} of {name}: {text}{hint}" for name, text in found.items())


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("second", QUICK)
def test_pairs(second, dtype):
    check(second, dtype, every=4)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_the_inverse_of_what_has_poles(dtype):
    """Beyond the pole that eager's rounding passes the result has another sign."""
    x = all_numbers(dtype)[::7]
    torch.compiler.reset()
    got = torch.compile(lambda x: torch.tan(torch.atan(x)), backend="mlirc", fullgraph=True)(x)
    assert (got.sign() == torch.tan(torch.atan(x)).sign()).all()


AFTER = {
    "itself": lambda x: x,
    "signbit": torch.signbit,
    "remainder": lambda x: torch.remainder(x, 1),
    "fmod": lambda x: torch.fmod(x, 1),
    "floor_divide": lambda x: x // 1,
    "floor": lambda x: torch.div(x, 3, rounding_mode="floor"),
    "trunc": lambda x: torch.div(x, -0.3, rounding_mode="trunc"),
    "ceil": torch.ceil,
}
NEARLY_THEMSELVES = (
    torch.tanh,
    torch.sin,
    torch.atan,
    lambda x: torch.tanh(x) * 1.0,
    lambda x: 2 * torch.sin(x / 2),
    lambda x: torch.neg(torch.tanh(-x)),
)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_what_is_left_of_x_less_a_function_of_x(dtype):
    """F.tanhshrink, and x - sin(x) and its kin: zeros are where eager's are, and have its sign, for what looks at it."""
    x = numbers(dtype)
    x = torch.cat([x, x / 64, x / 4096])

    def program(x):
        differences = [g(x, f(x)) for f in NEARLY_THEMSELVES for g in (torch.sub, torch.rsub, lambda x, y: x + -y)]
        return [after(d) for d in differences for after in AFTER.values()]

    torch.compiler.reset()
    for got, eager in zip(torch.compile(program, backend="mlirc", fullgraph=True)(x), program(x), strict=True):
        same = (got == eager) | (got.isnan() & eager.isnan()) if got.dtype.is_floating_point else got == eager
        if got.dtype.is_floating_point:
            same &= (got != 0) | (got.signbit() == eager.signbit())
        assert (same | x.isnan() | x.isinf()).all()


@pytest.mark.full
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("second", sorted(FUNCTIONS.keys() - set(QUICK)))
def test_more_pairs(second, dtype):
    check(second, dtype)

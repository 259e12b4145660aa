"""Python ints and what is computed of them, in every position that takes one: values, dtypes, shapes and errors are eager's,
whatever number was compiled for."""

import math
import operator
import random
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.testing import CompileCounter
from torch.fx.experimental.sym_node import METHOD_TO_OPERATOR

from mlirc.frontend import statistics
from mlirc.frontend.importer.computed_numbers import BEYOND
from mlirc.frontend.importer.sizes import NO_MEMORY

SMALL = (3, -3, 4, 0, 1, -5)
HUGE = (2**31, -(2**40), 2**53 + 1, 2**62, 2**63 - 1, -(2**63))

# What Python code may do to an int, by PyTorch's name for it.
FUNCTIONS = {
    "pos": lambda n: +n,
    "abs": lambda n: abs(n),
    "add": lambda n: n + 5,
    "and": lambda n: (n > 1) and (n < 5),
    "bitwise_and": lambda n: n & 5,
    "ceil": lambda n: math.ceil(n * 0.3),
    "eq": lambda n: n == 3,
    "floor": lambda n: math.floor(n * 0.3),
    "trunc": lambda n: int(n * 0.5),
    "int_floordiv": lambda n: n // -2,
    "ge": lambda n: n >= 1,
    "gt": lambda n: n > 1,
    "is_integer": lambda n: (n * 0.5).is_integer(),
    "le": lambda n: n <= 1,
    "lshift": lambda n: n << 2,
    "lt": lambda n: n < 1,
    "mod": lambda n: n % -3,
    "mul": lambda n: n * n,
    "ne": lambda n: n != 3,
    "neg": lambda n: -n,
    "or": lambda n: (n < 0) or (n > 5),
    "bitwise_or": lambda n: n | 5,
    "bitwise_xor": lambda n: n ^ 5,
    "float_pow": lambda n: float(n) ** 2.0,
    "pow_by_natural": lambda n: n**3,
    "round": lambda n: round(n * 0.3),
    "rshift": lambda n: n >> 1,
    "sub": lambda n: 2 - n,
    "sym_float": lambda n: float(n),
    "sym_ite": lambda n: torch.sym_ite(n > 2, n, 9),
    "sym_max": lambda n: max(n, -n, 2),
    "sym_min": lambda n: min(n, 2, -n),
    "sym_not": lambda n: not (n > 2),
    "float_truediv": lambda n: (n * 0.5) / 3,
    "int_truediv": lambda n: n / 7,
    "sym_sqrt": lambda n: math.sqrt(abs(n)),
    "sym_cos": lambda n: math.cos(n),
    "sym_cosh": lambda n: math.cosh(n % 3),
    "sym_sin": lambda n: math.sin(n),
    "sym_sinh": lambda n: math.sinh(n % 3),
    "sym_tan": lambda n: math.tan(n),
    "sym_tanh": lambda n: math.tanh(n),
    "sym_asin": lambda n: math.asin((n % 3) / 4),
    "sym_acos": lambda n: math.acos((n % 3) / 4),
    "sym_atan": lambda n: math.atan(n),
    "sym_log2": lambda n: math.log2(abs(n) + 1),
}
MORE = {
    "invert": lambda n: ~n,
    "max of a quotient": lambda n: max(n // 2, 0),
    "clamped": lambda n: min(max(n, -2), 2),
    "torch.sym_max": lambda n: torch.sym_max(n, 0),
    "torch.sym_min": lambda n: torch.sym_min(n, 0),
    "torch.sym_int": lambda n: torch.sym_int(n * 0.5),
    "divided by": lambda n: 7 / n,
    "quotient by": lambda n: 7 // n,
    "remainder by": lambda n: -7 % n,
    "divmod": lambda n: sum(divmod(n, 4)),
    "square in a maximum": lambda n: max(n * n, 3),
    "square in a quotient": lambda n: (n * n - 1) // 3,
    "mixed": lambda n: 2 * abs(n - 4) + (n & 3) - n // 3,
    "floats in order": lambda n: (n * 0.1) * 3.0,
    "rounded floats in order": lambda n: int((n * 0.1) * 3.0),
    "ceil of a quotient": lambda n: math.ceil(n / 4),
    "reflected power": lambda n: 2 ** (n % 8),
    "reflected shift": lambda n: 1 << (n % 8),
    "rounded to digits": lambda n: round(n * 0.37, 1),
    "fractional power": lambda n: abs(n) ** 0.5,
    "negative power": lambda n: (abs(n) + 1) ** -2,
    "operator.index": lambda n: operator.index(n),
}

POSITIONS = {
    "x * n": lambda x, n: x * n,
    "n - x": lambda x, n: n - x,
    "x / n": lambda x, n: x / n,
    "x // n": lambda x, n: x // n,
    "x % n": lambda x, n: x % n,
    "x > n": lambda x, n: x > n,
    "x ** n": lambda x, n: x.abs() ** n,
    "ints": lambda x, n: torch.arange(8) + n,
    "int32": lambda x, n: torch.arange(8, dtype=torch.int32) * n,
    "uint8": lambda x, n: torch.arange(8, dtype=torch.uint8) + n,
    "bools": lambda x, n: (x > 0) * n,
    "half": lambda x, n: x.half() + n,
    "bfloat16": lambda x, n: x.bfloat16() * n,
    "full": lambda x, n: torch.full((4,), n),
    "full half": lambda x, n: torch.full((4,), n, dtype=torch.float16),
    "full uint8": lambda x, n: torch.full((4,), n, dtype=torch.uint8),
    "full bool": lambda x, n: torch.full((4,), n, dtype=torch.bool),
    "new_full": lambda x, n: x.new_full((2, 3), n),
    "full_like": lambda x, n: torch.full_like(x, n),
    "masked_fill": lambda x, n: x.masked_fill(x > 0, n),
    "clamp": lambda x, n: x.clamp(max=n),
    "clamp min": lambda x, n: x.clamp(min=n, max=5),
    "alpha": lambda x, n: torch.add(x, x, alpha=n),
    "beta": lambda x, n: torch.addmm(x[:4].view(2, 2), x[:4].view(2, 2), x[4:].view(2, 2), beta=n),
    "where": lambda x, n: torch.where(x > 0, x, n),
    "mask of positions": lambda x, n: torch.where(torch.arange(8) + n >= 0, x, 0.0),
    "mask of int32": lambda x, n: torch.where(torch.arange(8, dtype=torch.int32) < n, x, 0.0),
    "end of linspace": lambda x, n: torch.linspace(0, n, 8),
    "start of linspace": lambda x, n: torch.linspace(n, 1, 8),
    "start of arange": lambda x, n: torch.arange(n, n + 8),
    "start of a float arange": lambda x, n: torch.arange(n, n + 8, dtype=torch.float32),
    "start of a slice": lambda x, n: x[n:],
    "end of a slice": lambda x, n: x[:n],
    "index": lambda x, n: x[n],
    "roll": lambda x, n: torch.roll(x, n),
    "triu": lambda x, n: torch.triu(x[:, None] * x, n),
    "tril": lambda x, n: torch.tril(x[:, None] * x, diagonal=n),
    "diagonal": lambda x, n: torch.diagonal(x[:, None] * x, n),
    "sum over": lambda x, n: x.view(2, 2, 2).sum(n),
    "transpose": lambda x, n: x.view(2, 2, 2).transpose(0, n),
    "compared sizes": lambda x, n: x * (n == x.shape[0]),
    "scaled by a size": lambda x, n: x * (n * x.shape[0]),
    "in a gradient": lambda x, n: torch.func.grad(lambda y: (y * y * n).sum())(x),
}
SIZED = {  # a huge number would take its memory
    "size": lambda x, n: torch.zeros(n) + 1,
    "pad": lambda x, n: F.pad(x, (n, 2)),
    "pad after": lambda x, n: F.pad(x, (1, n), value=3.0),
    "repeat": lambda x, n: x.repeat(n),
    "end of arange": lambda x, n: torch.arange(n),
    "step of arange": lambda x, n: torch.arange(0, 20, n),
    "expand": lambda x, n: x[:1].expand(n) * 2,
    "narrow": lambda x, n: x.narrow(0, n, 2),
    "length of narrow": lambda x, n: x.narrow(0, 1, n),
    "steps": lambda x, n: torch.linspace(0, 1, n),
    "eye": lambda x, n: torch.eye(n),
    "repeat_interleave": lambda x, n: x.repeat_interleave(n),
    "split": lambda x, n: x.split(n)[0],
    "view": lambda x, n: x.view(n, -1),
    "unfold": lambda x, n: x.unfold(0, n, 1),
    "one_hot": lambda x, n: F.one_hot(torch.arange(3), n),
}
OF_NUMBER = {
    "n": lambda n: n,
    "max(n, 0)": lambda n: max(n, 0),
    "n // -2": lambda n: n // -2,
    "abs(n)": lambda n: abs(n),
    "n * n": lambda n: n * n,
    "n & 5": lambda n: n & 5,
    "int(n * .5)": lambda n: int(n * 0.5),
}


def attempt(function, *args):
    try:
        return function(*args)
    except Exception as error:
        return error


def same(a, b) -> bool:
    if isinstance(a, Exception) or isinstance(b, Exception):
        # Dynamo has a type of its own for what a fake tensor refuses
        return isinstance(a, Exception) and isinstance(b, Exception)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.allclose(a.double(), b.double(), rtol=1e-2 if a.dtype.itemsize == 2 else 1e-5, equal_nan=True)


def check(function, values, graphs: int = 6) -> None:
    torch._dynamo.reset()
    statistics.reset()
    x = torch.linspace(-2, 3, 8)
    compiled = torch.compile(function, backend="mlirc", dynamic=True)
    for n in values:
        expected, found = attempt(function, x, n), attempt(compiled, x, n)
        if not same(found, expected):
            judge = attempt(torch.compile(function, backend="aot_eager", dynamic=True), x, n)
            assert same(found, judge), f"at {n}: {found!r:.200} for {expected!r:.200}"
        if n in SMALL and not isinstance(expected, Exception):
            assert not statistics.fallbacks, (n, statistics.fallbacks)
        statistics.fallbacks.pop(BEYOND, None)
        if isinstance(expected, Exception):  # of a graph for this number alone
            for why in [why for why in statistics.fallbacks if why.startswith(NO_MEMORY)]:
                del statistics.fallbacks[why]
    assert not statistics.fallbacks
    if len(statistics.graphs) > graphs:  # where Dynamo does not take the number as a symbol
        made = len(statistics.graphs)
        torch._dynamo.reset()
        counter = CompileCounter()
        plain = torch.compile(function, backend=counter, dynamic=True)
        for n in values:
            attempt(plain, x, n)
        assert made <= counter.frame_count, "a graph for every value"


def test_every_function_of_pytorch_is_here():
    assert FUNCTIONS.keys() == METHOD_TO_OPERATOR.keys()


@pytest.mark.thinned(6)
@pytest.mark.parametrize("name", [*FUNCTIONS, *MORE])
def test_functions(name):
    function = (FUNCTIONS | MORE)[name]
    check(lambda x, n: x * function(n), [*SMALL, *HUGE])


@pytest.mark.thinned(5)
@pytest.mark.parametrize("name", POSITIONS)
def test_positions(name):
    check(POSITIONS[name], [*SMALL, *HUGE])


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", SIZED)
def test_positions_of_sizes(name):
    check(SIZED[name], [*SMALL, 2**60, 2**62, -(2**62)])


@pytest.mark.full
@pytest.mark.parametrize("what", [x for x in OF_NUMBER if x != "n"])
@pytest.mark.parametrize("name", POSITIONS | SIZED)
def test_functions_in_positions(name, what):
    use, number = (POSITIONS | SIZED)[name], OF_NUMBER[what]
    check(lambda x, n: use(x, number(n)), [*SMALL, 2**62, -(2**62)] if name in SIZED else [*SMALL, *HUGE], graphs=9)


BITS = {
    "n & 5": lambda n: n & 5,
    "n | 1": lambda n: n | 1,
    "n ^ 5": lambda n: n ^ 5,
    "~n": lambda n: ~n,
    "n << 1": lambda n: n << 1,
    "n >> 1": lambda n: n >> 1,
    "1 | n + 2": lambda n: 1 | n + 2,
}
BOUNDS = {
    "start": lambda x, n: x[n:] * 2,
    "end": lambda x, n: x[:n] * 2,
    "both": lambda x, n: x[:, None].expand(8, 3)[n : n + 2].t() + 1,
    "pad": lambda x, n: F.pad(x, (n, n)),
    "size": lambda x, n: torch.zeros(n, 2) + x[0],
    "narrow": lambda x, n: x.narrow(0, n, 1) + 1,
}


@pytest.mark.parametrize("what", BITS)
@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.thinned(2)
def test_bits_as_bounds(name, what):
    """Where a view begins is said by nothing but its offset: a sum of a size and bits of a number."""
    if name not in ("start", "pad") and what not in ("n ^ 5", "n | 1"):
        pytest.skip("the functions differ in what Python computes, not in where it is used")
    check(lambda x, n: BOUNDS[name](x, BITS[what](n)), [3, -3, 0, 1])


TRAINED = {
    "abs": lambda x, n: (x * abs(n)).sin(),
    "quotient": lambda x, n: (x * (n / 3)).sin(),
    "bits": lambda x, n: x.sin() * (n & 5) + x**2 * (n | 3),
    "truth": lambda x, n: x.sin() * (n > 2),
    "size": lambda x, n: x[: abs(n)].sin(),
    "square": lambda x, n: (x * (n * n)).sigmoid(),
}


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", TRAINED)
def test_gradients(name):
    function = TRAINED[name]
    torch._dynamo.reset()
    statistics.reset()
    compiled = torch.compile(function, backend="mlirc", dynamic=True)
    for n in (3, -3, 5, -6, 2**20):
        grads = []
        for run in (function, compiled):
            x = torch.linspace(-2, 3, 8, requires_grad=True)
            run(x, n).sum().backward()
            grads.append(x.grad)
        torch.testing.assert_close(*grads)
    assert not statistics.fallbacks and len(statistics.graphs) <= (
        4 if name == "size" else 2
    )  # a slice beyond the end is another graph


def test_numbers_as_results():
    def function(x, n):
        return x * n, abs(n), n / 2, n > 2, n * n, n // -3, max(n, -n), n & 6

    torch._dynamo.reset()
    compiled = torch.compile(function, backend="mlirc", dynamic=True)
    x = torch.randn(3)
    for n in (3, -3, 4, 2**40, -(2**63)):
        found, expected = compiled(x, n), function(x, n)
        assert found[1:] == expected[1:] and [*map(type, found)] == [*map(type, expected)]


def test_formulas_of_sizes():
    def function(x):
        rows, columns = x.shape
        return x[: int(rows * 0.5)] * abs(rows - 7) / math.sqrt(columns) * (rows / 3) + rows**3

    torch._dynamo.reset()
    statistics.reset()
    compiled = torch.compile(function, backend="mlirc", dynamic=True)
    for rows in (6, 9, 20):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(compiled(x), function(x))
    assert not statistics.fallbacks and len(statistics.graphs) == 1


def test_a_call_in_eager_is_counted_and_shown():
    torch._dynamo.reset()
    statistics.reset()
    compiled = torch.compile(lambda x, n: x + n * n, backend="mlirc", dynamic=True)
    x = torch.randn(3)
    assert torch.equal(compiled(x, 3), x + 9)
    with pytest.raises(OverflowError):
        compiled(x, 2**33)
    assert torch.equal(compiled(x, -4), x + 16)
    assert statistics.fallbacks == {BEYOND: 1}
    assert statistics.graphs[0].eager_calls == {BEYOND: 1}


HUGE_TENSORS = {
    "linspace": lambda x, n: torch.linspace(0, 1, n),
    "arange": lambda x, n: torch.arange(n),
    "zeros": lambda x, n: torch.zeros(n),
    "empty": lambda x, n: torch.empty(n, 2),
    "sum of zeros": lambda x, n: torch.zeros(n).sum() + x,
    "rand": lambda x, n: torch.rand(n),
    "eye": lambda x, n: torch.eye(n),
    "pad": lambda x, n: F.pad(x, (0, n)),
    "expanded": lambda x, n: x[:1].expand(n) + 1,
    "repeat": lambda x, n: x.repeat(n),
    "strided": lambda x, n: torch.empty_strided((2,), (n,)),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", HUGE_TENSORS)
@pytest.mark.thinned(3)
def test_tensors_that_no_memory_holds(name, dynamic):
    """Eager's error, of its type, reaches the user: no warning, no file that reproduces a bug."""
    torch._dynamo.reset()
    statistics.reset()
    x, function = torch.ones(8), HUGE_TENSORS[name]
    for n in (2**50, 2**60):
        expected = attempt(function, x, n)
        assert isinstance(expected, Exception)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = attempt(torch.compile(function, backend="mlirc", dynamic=dynamic), x, n)
        judge = attempt(torch.compile(function, backend="aot_eager", dynamic=dynamic), x, n)
        assert type(found) is type(judge) and isinstance(found, Exception), (found, judge)
    assert all(why == BEYOND or why.startswith(NO_MEMORY) for why in statistics.fallbacks)


def expression(rng: random.Random, depth: int) -> str:
    """Python text of a number computed of n and the size s; quotients and remainders make large numbers small again."""
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(("n", "n", "s", "3", "1001"))
    a, b = (expression(rng, depth - 1) for _ in range(2))
    forms = (
        "({a} + {b})",
        "({a} - {b})",
        "({a} * {b})",
        "({a} * {b})",
        "({a} // 7)",
        "({a} % 1000003)",
        "({a} // ({b} * {b} + 1))",
    )
    return rng.choice((*forms, "({a} % 13)", "max({a}, {b})", "min({a}, 7)", "abs({a})", "({a} & 255)", "-{a}")).format(
        a=a, b=b
    )


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.thinned(2)
def test_numbers_that_are_large_on_the_way(seed):
    """What 64 bits do not hold may be an operand of a quotient, a remainder, max or min, whose result is small."""
    rng = random.Random(seed)
    texts = [f"{expression(rng, 4)} % {rng.choice((5, 97, 1001))}" for _ in range(4)]
    scope: dict = {}
    exec(
        f"def f(x, n):\n    s = x.shape[0]\n    return ({', '.join(texts)}), x * 0 + ({texts[0]}), x[: {texts[1]}]",
        scope,
    )
    torch._dynamo.reset()
    compiled = torch.compile(scope["f"], backend="mlirc", dynamic=True)
    for n in (*SMALL, *HUGE, 2**40 + 1, 2**61 + 5, -(2**40) - 3):
        x = torch.ones(rng.choice((8, 9)))
        found, expected = compiled(x, n), scope["f"](x, n)
        assert found[0] == expected[0], (n, texts)
        assert torch.equal(found[1], expected[1]) and torch.equal(found[2], expected[2]), (n, texts)


def test_every_part_of_an_expression_is_checked():
    cases = {
        "a remainder": lambda x, n: x + n * n % 1000003,
        "a multiple": lambda x, n: x + n * 3 % 7,
        "a quotient": lambda x, n: x + n * 5000 // 2**60,
        "a computed number": lambda x, n: x + abs(n) * abs(n) % 1000003,
        "max": lambda x, n: x + max(n * 3, 5) % 5,
        "a size": lambda x, n: torch.arange(n * n % 7),
    }
    for name, function in cases.items():
        torch._dynamo.reset()
        compiled = torch.compile(function, backend="mlirc", dynamic=True)
        for n in (3, 5, 2**31, 2**40 + 1, 2**62, 2**63 - 1, -(2**40) - 3):
            x = torch.arange(3)
            assert torch.equal(compiled(x, n), function(x, n)), (name, n)


@pytest.mark.parametrize("number", [3, 0.5])
def test_numbers_beside_complex_ones_of_two_halves(number):
    def program(x, n):
        return torch.where(x <= 0.1, 7, torch.complex(x, x)), torch.complex(x, x).fill_(n), torch.complex(x, x) * n

    compiled = torch.compile(program, backend="mlirc", dynamic=True, options={"fallback": "error"})
    x = torch.randn(4, 5).half()
    for n in (number, number + 2):
        for y, z in zip(compiled(x, n), program(x, n), strict=True):
            assert y.dtype == z.dtype
            torch.testing.assert_close(y.to(torch.complex64), z.to(torch.complex64), equal_nan=True)


def test_an_end_that_a_guard_says_is_negative():
    """The slice's size is (h*w + n - 1)//2, of which the rows that it reads follow for a negative n alone."""

    def program(x, n):
        return x.cos().flatten(0, 1)[2:n:2]

    torch._dynamo.reset()
    compiled = torch.compile(program, backend="mlirc", dynamic=True, options={"fallback": "error"})
    for shape, n in (((7, 6), -1), ((7, 5), -3), ((7, 6), -(2**63)), ((4, 3), 5), ((2, 3), -4)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x, n), program(x, n))

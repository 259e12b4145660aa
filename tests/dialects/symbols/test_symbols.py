"""Size expressions: what is simplified, bounded, printed and emitted has the value that Python gives, for numbers of both signs."""

import random

import pytest
import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Expr, Int
from mlirc.dialects.interpreter.kernels import TorchIndices

DIMS = {"d0": 4, "d1": 3}
SIGNED, COUNTS = ("u0", "us1"), ("s0", "s1")
VALUES = (-7, -3, -2, -1, 0, 1, 2, 3, 5, 8)
OPERATIONS = ("+", "-", "*", "//", "%", "max", "min")


@pytest.mark.parametrize(
    ("text", "known"),
    [("-uns0", True), ("uns0", False), ("uns0*uns1", True), ("-s0*uns1", True), ("s0*uns1", False), ("3 - us0", False)],
)
def test_signs_that_names_tell(text, known):
    assert symbols.known_nonnegative(symbols.parse(text)) == known


class Undefined(Exception):
    pass


def tree(rng: random.Random, depth: int) -> object:
    if depth == 0 or rng.random() < 0.15:
        return rng.choice([*SIGNED, *COUNTS, *DIMS, *range(-4, 5)])
    return rng.choice(OPERATIONS), tree(rng, depth - 1), tree(rng, depth - 1)


def build(t: object) -> Int:
    """The simplified expression."""
    if isinstance(t, str):
        return symbols.symbol(t)
    if isinstance(t, int):
        return t
    name, x, y = t  # type: ignore[misc]
    a, b = build(x), build(y)
    if name in ("//", "%"):
        if isinstance(b, int) and b == 0:
            raise Undefined
        return symbols.floordiv(a, b, DIMS) if name == "//" else symbols.mod(a, b, DIMS)
    return {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b}.get(
        name, lambda: symbols.maximum(a, b) if name == "max" else symbols.minimum(a, b)
    )()


def value(t: object, at: dict[str, int]) -> int:
    """What Python makes of it."""
    if isinstance(t, str):
        return at[t]
    if isinstance(t, int):
        return t
    name, x, y = t  # type: ignore[misc]
    a, b = value(x, at), value(y, at)
    if name in ("//", "%") and b == 0:
        raise Undefined
    return {
        "+": lambda: a + b,
        "-": lambda: a - b,
        "*": lambda: a * b,
        "//": lambda: a // b,
        "%": lambda: a % b,
        "max": lambda: max(a, b),
        "min": lambda: min(a, b),
    }[name]()


def points(rng: random.Random, count: int = 12):
    for _ in range(count):
        at = {name: rng.choice(VALUES) for name in SIGNED} | {name: abs(rng.choice(VALUES)) for name in COUNTS}
        yield at | {name: rng.randrange(size) for name, size in DIMS.items()}


@pytest.mark.thinned(8)
@pytest.mark.parametrize("seed", range(40))
def test_simplified_forms_have_pythons_value(seed):
    rng = random.Random(seed)
    for _ in range(50):
        t = tree(rng, rng.choice((1, 2, 2, 3)))
        try:
            simplified = build(t)
        except Undefined:
            continue
        again = symbols.parse(str(simplified))
        most = symbols.upper_bound(simplified, DIMS)
        small = symbols.in_range(simplified, 4, DIMS)
        nonnegative = symbols.known_nonnegative(simplified)
        for at in points(rng):
            try:
                expected = value(t, at)
            except Undefined:
                continue
            told = f"{t} = {simplified} at {at}"
            assert symbols.evaluate(simplified, at) == expected, told
            assert symbols.evaluate(again, at) == expected, told
            emitted = int(symbols.emit(simplified, TorchIndices(at)))
            assert emitted == expected, told
            assert not nonnegative or expected >= 0, told
            assert not small or 0 <= expected < 4, told
            if most is not None:
                named = {name: x for name, x in at.items() if name not in DIMS}
                bound = symbols.substitute(most, named)
                assert symbols.known_nonnegative(bound - expected) or symbols.free_symbols(bound), told


@pytest.mark.parametrize("seed", range(10))
def test_text_is_read_back(seed):
    rng = random.Random(seed)
    for _ in range(50):
        try:
            made = build(tree(rng, 3))
        except Undefined:
            continue
        again = symbols.parse(str(made))  # simplified without ranges, and so perhaps more or less
        assert symbols.parse(str(again)) == again


def test_the_first_letter_is_the_sign():
    count, number = symbols.symbol("s3"), symbols.symbol("us3")
    assert symbols.maximum(count, 0) == count
    assert isinstance(symbols.maximum(number, 0), Expr) and symbols.maximum(number, 0) != number
    assert symbols.known_nonnegative(symbols.maximum(number, 0))
    assert not symbols.known_nonnegative(symbols.mod(count, number))
    assert symbols.mod(count * number, number) == 0


def test_division_by_zero_is_no_text():
    for text in ("s0 // 0", "s0 % 0", "3 // 0"):
        with pytest.raises(ValueError):
            symbols.parse(text)


def test_dimension_times_a_number_of_unknown_sign_has_no_bound():
    d0, number = symbols.symbol("d0"), symbols.symbol("u0")
    assert symbols.upper_bound(d0 * number, DIMS) is None
    assert symbols.upper_bound(d0 + number, DIMS) == number + 3
    assert torch.tensor(-7).div(2, rounding_mode="floor") == symbols.evaluate(symbols.floordiv(number, 2), {"u0": -7})


@pytest.mark.parametrize("seed", range(4))
def test_remainders_written_as_quotients(seed):
    rng = random.Random(seed)
    d0, d1 = symbols.symbol("d0"), symbols.symbol("d1")
    assert symbols.without_mods(8 * (d0 // 8) + d0 % 8) == d0
    for _ in range(30):
        n, m, k = (rng.choice([-3, 1, 2, 5, 8]) for _ in range(3))
        value = (d0 % n) * (k * d1 % m) + k * (d0 // n) + (d1 + k) % m
        plain = symbols.without_mods(value)
        assert "%" not in str(plain)
        for a, b in ((0, 0), (3, 7), (11, 2), (8, 5)):
            assert symbols.evaluate(plain, {"d0": a, "d1": b}) == symbols.evaluate(value, {"d0": a, "d1": b})


def test_sums_and_products_with_0_and_1():
    x = symbols.symbol("s0") * 2 + 3
    for other in (x + 0, 0 + x, x * 1, 1 * x, x - 0, x + symbols.symbol("s1") - symbols.symbol("s1")):
        assert other == x and hash(other) == hash(x) and str(other) == str(x)
    assert x * 0 == 0 and 0 * x == 0 and x - x == 0
    assert isinstance(x - symbols.symbol("s0") * 2, int)

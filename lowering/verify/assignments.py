"""Values of symbols at which facts hold, to try a claim about all sizes at."""

import random
from collections.abc import Iterable, Iterator, Sequence

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Expr, Int, evaluate, free_symbols
from mlirc.dialects.interpreter.kernels import TorchIndices

SAMPLES = (12, 17, 24, 9, 30)  # of symbols
SMALL = (2, 3, 4, 5, 6, 7, 8, 9, 12, 17, 24, 30, 33)
SIGNED = (-17, -5, -3, -2, -1, 0, 1)  # of symbols that may be negative, beside these
FAR = 64  # from a bound that a fact is
DRAWN = 8192  # assignments, of which those are taken at which the facts hold


def related(names: Iterable[str], exprs: Iterable[Int]) -> set[str]:
    """The symbols that expressions tie to these, directly or by others; these among them."""
    found = set(names)
    left = [free_symbols(n) for n in exprs]
    while joined := [x for x in left if x & found and not x <= found]:
        found = found.union(*joined)
    return found


def assignments(names: Sequence[str], facts: Sequence[Int], count: int) -> Iterator[dict[str, int]]:
    """Assignments of numbers to all of `names`, at each of which the facts hold: SAMPLES, and where the facts exclude some of these `count`
    that are drawn. None where none are found."""
    made = 0
    for k in range(len(SAMPLES)):
        values = {name: SAMPLES[(k + j * (1 + k % 2)) % len(SAMPLES)] for j, name in enumerate(names)}
        values = {name: -n if name.startswith(symbols.NEGATIVE) else n for name, n in values.items()}
        if all(holds(f, values) for f in facts):
            made += 1
            yield values
    if made < len(SAMPLES) and names:
        yield from drawn(names, facts, count)


def drawn(names: Sequence[str], facts: Sequence[Int], count: int) -> Iterator[dict[str, int]]:
    """Assignments of many that are drawn at random, always the same ones: those that the facts bound most narrowly."""
    numbers = random.Random(0)
    columns = {}
    for name in names:
        below = name.startswith(symbols.NEGATIVE)
        choices: list[int] = [-n for n in SMALL] if below else list(SMALL)
        choices += () if below or symbols.known_nonnegative(symbols.symbol(name)) else SIGNED
        columns[name] = torch.tensor(numbers.choices(choices, k=DRAWN))
    inside, distance = torch.ones(DRAWN, dtype=torch.bool), torch.zeros(DRAWN, dtype=torch.int64)
    for f in facts:
        try:
            value = symbols.emit(f, TorchIndices(columns))
        except RuntimeError:  # some of them divide by 0
            continue
        inside, distance = inside & (value >= 0), distance + value.clamp(max=FAR)
    for k in torch.where(inside, distance, FAR * (len(facts) + 1)).argsort(stable=True)[: 2 * count].tolist():
        values = {name: int(column[k]) for name, column in columns.items()}
        if all(holds(f, values) for f in facts):
            yield values
            count -= 1
        if not count:
            return


def holds(fact: Int, values: dict[str, int]) -> bool:
    """Whether the fact is 0 or more for these values; no call has values for which it divides by 0."""
    try:
        return (evaluate(fact, values) if isinstance(fact, Expr) else fact) >= 0
    except ZeroDivisionError:
        return False

"""Algebra of index expressions that proofs do: divides, takes apart, and replaces parts of them."""

from collections.abc import Iterable

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Expr, Int, floordiv, free_symbols, known_nonnegative, symbol

TERMS = 16  # of the longest quotient of polynomials that is sought


def sign(x: Int) -> int:
    """0 or more where x is known to be at least 0; else -1."""
    return 0 if known_nonnegative(x) else -1


def floordiv_of(a: Int, b: Int) -> Int:
    """a // b, simplified: terms that are multiples of b are divided by it, and a rest that is a number is rounded down."""
    if isinstance(b, int) and isinstance(a, Expr):
        rest = a.terms.get((), 0)
        whole = a - rest
        if all(c % b == 0 for c in whole.terms.values()) if isinstance(whole, Expr) else True:
            return floordiv(whole, b) + rest // b
    if isinstance(b, Expr) and isinstance(a, Expr):
        quotient = exact(a + 1, b)  # s0*b - 1
        if quotient is not None:
            return quotient - 1
    return floordiv(a, b)


def factors(a: Int) -> set[str]:
    """The symbols of a product of symbols, none of which is negative, and a positive number; else none. A quotient of such a product by
    a number is 1 or more only where its symbols are."""
    if isinstance(a, int) or len(a.terms) != 1:
        return set()
    ((monomial, coefficient),) = a.terms.items()
    names: set[str] = set()
    for atom in monomial:
        if isinstance(atom, str):
            found = {atom} if known_nonnegative(symbol(atom)) else set()
        else:
            kind, above, below = atom
            found = factors(above) if kind == "floordiv" and isinstance(below, int) and below > 0 else set()
        if not found:
            return set()
        names |= found
    return names if coefficient > 0 else set()


def at_least_one(facts: Iterable[Int]) -> set[str]:
    """The symbols that are 1 or more where the facts are 0 or more: s0 of s0 - s1 - 1, and then s2 of s2 - s0."""
    lows: list[tuple[str, Int]] = []
    for fact in facts:
        for m, c in fact.terms.items() if isinstance(fact, Expr) else ():
            if len(m) == 1 and c == 1 and isinstance(m[0], str):
                lows.append((m[0], symbol(m[0]) - fact))
    found: set[str] = set()
    while (
        more := {s for s, low in lows if known_nonnegative(low - 1) or (factors(low) and factors(low) <= found)} - found
    ):
        found |= more
    return found


def exact(a: Int, b: Int) -> Int | None:
    """a / b; None where that is no polynomial."""
    if b == 0:
        return None
    if isinstance(a, int) and isinstance(b, Expr):
        return 0 if a == 0 else None
    q = floordiv(a, b)
    return q if q * b == a and not any(not isinstance(x, str) for x in atoms(q) - atoms(a)) else None


def divided_by(a: Int, b: Expr) -> Int | None:
    """The polynomial q with a == q * b, by long division; None where there is none, or none of a few terms."""
    names = sorted(atoms(a) | atoms(b), key=str)
    order = lambda monomial: (len(monomial), [monomial.count(name) for name in names])
    leading = max(b.terms, key=order)
    quotient, rest = 0, a
    for _ in range(TERMS):
        if not isinstance(rest, Expr):
            return quotient if rest == 0 else None
        top = max(rest.terms, key=order)
        left = list(top)
        fits = all(atom in left and left.remove(atom) is None for atom in leading)
        if not fits or rest.terms[top] % b.terms[leading]:
            return None
        times = rest.terms[top] // b.terms[leading]
        term = Expr({tuple(left): times}) if left else times
        quotient, rest = quotient + term, rest - term * b
    return None


def atoms(a: Int) -> set:
    return {atom for monomial in a.terms for atom in monomial} if isinstance(a, Expr) else set()


def is_quotient_by_symbol(atom: symbols.Atom) -> bool:
    return not isinstance(atom, str) and atom[0] == "floordiv" and isinstance(atom[2], Expr)


def parted(expr: Int, name: str) -> tuple[Int | None, Int]:
    """(f, r) with expr == f*name + r; f is None where the name stands elsewhere too."""
    factor: Int = 0
    rest: Int = 0
    assert isinstance(expr, Expr)
    for monomial, coefficient in expr.terms.items():
        times = sum(atom == name for atom in monomial)
        if (
            any(not isinstance(atom, str) and name in free_symbols(Expr({(atom,): 1})) for atom in monomial)
            or times > 1
        ):
            return None, rest
        if times:
            left = list(monomial)
            left.remove(name)
            factor = factor + (Expr({tuple(left): coefficient}) if left else coefficient)
        else:
            rest = rest + (Expr({monomial: coefficient}) if monomial else coefficient)
    return factor, rest


def multiples(goal: Int, fact: Int) -> list[Int]:
    """The goal less such multiples of the fact as cancel one of its terms."""
    if isinstance(goal, int) or isinstance(fact, int):
        return []
    found: dict[Int, Int] = {}
    for monomial, coefficient in fact.terms.items():
        if not monomial:
            continue
        for other, times in goal.terms.items():
            left = list(other)
            try:
                for atom in monomial:
                    left.remove(atom)
            except ValueError:
                continue
            if times % coefficient or times // coefficient <= 0:
                continue
            scale: Int = times // coefficient
            if left:
                scale = scale * Expr({tuple(left): 1})
            if known_nonnegative(scale):
                found[scale] = goal - fact * scale
    return list(found.values())


def extreme_atom(expr: Int) -> tuple[str, Int, Int] | None:
    """A max or min of the expression, an innermost one."""
    if isinstance(expr, int):
        return None
    for atom in atoms(expr):
        if isinstance(atom, str):
            continue
        kind, a, b = atom
        inner = extreme_atom(a) or extreme_atom(b)
        if inner:
            return inner
        if kind in ("max", "min"):
            return atom
    return None


def replaced(expr: Int, atom: tuple[str, Int, Int], value: Int) -> Int:
    """`expr` with `value` in place of an atom, wherever it stands."""
    if isinstance(expr, int):
        return expr
    total: Int = 0
    for monomial, coefficient in expr.terms.items():
        product: Int = coefficient
        for part in monomial:
            if part == atom:
                product = product * value
            elif isinstance(part, str):
                product = product * symbol(part)
            else:
                kind, a, b = part
                a, b = replaced(a, atom, value), replaced(b, atom, value)
                apply = {"floordiv": floordiv, "mod": symbols.mod, "max": symbols.maximum, "min": symbols.minimum}
                product = product * apply[kind](a, b)
        total = total + product
    return total

"""Bounds what arithmetic on an index reaches, so that 64 bits hold it."""

from collections import Counter
from collections.abc import Iterable, Mapping

from mlirc.dialects.core.symbols import Atom, Expr, Int

LARGEST = 1 << 62  # a bound on positions in memory, for which 64-bit arithmetic suffices
TYPICAL = 1 << 20  # what a symbol is taken to be when that bound is checked
POINTS_OF_A_SPACE = 1 << 48  # as a loop may go through: at one each nanosecond they take three days


def magnitude(expr: Int, sizes: Mapping[str, Int]) -> int:
    """About the largest absolute value that the expression or a part of it takes at a point of the space."""
    if isinstance(expr, int):
        return abs(expr)
    total = 0
    for monomial, coefficient in expr.terms.items():
        product = 1
        for atom in monomial:
            if isinstance(atom, str):
                size = sizes.get(atom, TYPICAL)
                product *= max(size, 1) if isinstance(size, int) else TYPICAL
            else:
                kind, a, b = atom
                left, right = magnitude(a, sizes), magnitude(b, sizes)
                product *= max(left, right, 1) if kind in ("max", "min", "mod") else max(left, 1)
                if right >= LARGEST:
                    return right
        if product > POINTS_OF_A_SPACE and _factors(monomial, sizes) <= _factors(sizes, sizes):
            product = POINTS_OF_A_SPACE  # at most as many as there are points
        total += abs(coefficient) * product
    return total


def _factors(monomial: Iterable[Atom], sizes: Mapping[str, Int]) -> Counter[Atom]:
    """A product's factors, where a dimension counts as its size if that is a product of symbols."""
    found: Counter[Atom] = Counter()
    for atom in monomial:
        size = sizes.get(atom) if isinstance(atom, str) else None
        if isinstance(size, Expr) and len(size.terms) == 1 and min(size.terms.values()) > 0:
            found.update(next(iter(size.terms)))
        else:
            found[atom] += 1
    return found

"""The matrices of Winograd's transform (Lavin and Gray, arXiv 1509.09308), in one dimension.

A convolution is a product of polynomials. Its values at n = m + 2 points, one of which is infinity, give `m` results of three taps each:

    y = results(weights(g) * inputs(d))            d [n], g [3], y [m]; in two dimensions each map is used along both

The points are 0, infinity, and pairs of a and -a. The two of a pair share even and odd parts: one adds them, the other subtracts them.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import cache, cached_property
from typing import Any

from mlirc.dialects.core.scalar_builder import Value
from mlirc.dialects.lazy_dataclass import dataclass

TAPS = 3
# by m, the a of each pair. Of the pairs that were tried, 5/8 and 3/2 have the smallest errors; those of 1 and 2 are twice as large
PAIRS = {2: (Fraction(1),), 4: (Fraction(5, 8), Fraction(3, 2))}


@dataclass(frozen=True)
class Winograd:
    """The maps for `m` results, 2 or 4, as scalar code for `b`, a ScalarBuilder."""

    m: int

    @property
    def n(self) -> int:
        return self.m + TAPS - 1

    @cached_property
    def points(self) -> list[Fraction]:
        """All but infinity: 0, then a and -a of each pair."""
        return [Fraction(0), *(x for a in PAIRS[self.m] for x in (a, -a))]

    def inputs(self, b: Any, d: Sequence[Value]) -> list[Value]:
        """Row i: the coefficients of the product of (x - q) over all points q except point i; the last row, over all points."""
        return self.mirrored(b, input_rows(self), d)

    def weights(self, b: Any, g: Sequence[Value]) -> list[Value]:
        """The values of the polynomial g at the points, each divided by the product of the distances to the other points; at infinity, its
        last coefficient."""
        return self.mirrored(b, weight_rows(self), g)

    def results(self, b: Any, x: Sequence[Value]) -> list[Value]:
        """Result i: the sum of x times the i-th power of its point; infinity counts for the last one."""
        pairs = PAIRS[self.m]
        sums = [b.add(x[2 * k + 1], x[2 * k + 2]) for k in range(len(pairs))]
        differences = [b.sub(x[2 * k + 1], x[2 * k + 2]) for k in range(len(pairs))]
        made = []
        for i in range(self.m):
            terms = [(a**i, side) for a, side in zip(pairs, differences if i % 2 else sums, strict=True)]
            terms += [(Fraction(1), x[0])] * (i == 0) + [(Fraction(1), x[-1])] * (i == self.m - 1)
            made.append(combined(b, terms))
        return made

    def mirrored(self, b: Any, rows: Sequence[Sequence[Fraction]], x: Sequence[Value]) -> list[Value]:
        """rows @ x; the two rows of a pair are even(x) + odd(x) and even(x) - odd(x)."""
        every = [list(zip(row, x, strict=False)) for row in rows]
        made = [combined(b, every[0])]
        for terms in every[1:-1:2]:
            even, odd = combined(b, terms[::2]), combined(b, terms[1::2])
            made += [b.add(even, odd), b.sub(even, odd)]
        return [*made, combined(b, every[-1])]


@cache
def input_rows(maps: Winograd) -> list[list[Fraction]]:
    """The matrix of Winograd.inputs, as exact fractions."""
    rows = [polynomial([q for q in maps.points if q != p]) for p in maps.points]
    return [*rows, polynomial(maps.points)]


@cache
def weight_rows(maps: Winograd) -> list[list[Fraction]]:
    """The matrix of Winograd.weights, as exact fractions."""
    rows = []
    for p in maps.points:
        apart = Fraction(1)
        for q in maps.points:
            apart *= p - q if q != p else 1
        rows.append([p**k / apart for k in range(TAPS)])
    return [*rows, [Fraction(0), Fraction(0), Fraction(1)]]


def polynomial(roots: Sequence[Fraction]) -> list[Fraction]:
    """The coefficients of the product of (x - root), the constant one first."""
    made = [Fraction(1)]
    for root in roots:
        made = [low - root * high for low, high in zip([Fraction(0), *made], [*made, Fraction(0)], strict=True)]
    return made


def combined(b: Any, terms: Sequence[tuple[Fraction, Value]]) -> Value:
    """The sum of factor * value; a value with factor 0 is not read."""
    total = None
    # those that need no product first: one fma for each of the others
    for factor, x in sorted(((f, x) for f, x in terms if f), key=lambda term: term[0] != 1):
        if total is None:
            total = x if factor == 1 else b.mul(x, b.constant(float(factor)))
        elif abs(factor) == 1:
            total = b.add(total, x) if factor > 0 else b.sub(total, x)
        else:
            total = b.fma(x, b.constant(float(factor)), total)
    assert total is not None
    return total

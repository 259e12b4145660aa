"""Bounds what arithmetic on an index reaches, so that 64 bits hold it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import islice, product

from mlirc.dialects.core.symbols import Atom, Expr, Int, known_nonnegative

LARGEST = 1 << 62  # a bound on positions in memory, for which 64-bit arithmetic suffices
TYPICAL = 1 << 20  # what a symbol is taken to be when that bound is checked
POINTS_OF_A_SPACE = 1 << 48  # as a loop may go through: at one each nanosecond they take three days
SMALL = 1 << 44  # what is taken from a size does not matter, of products that may be larger
REMOVED = 3  # the most sizes that are tried to be taken out of an expression
CHOICES = 256  # the most products of terms that are looked at, of sizes that are sums

Terms = dict[tuple[Atom, ...], Fraction]


def magnitude(expr: Int, sizes: Mapping[str, Int], shapes: Sequence[Sequence[Int]] = (), steps: int = 4) -> int:
    """About the largest absolute value that the expression or a part of it takes at a point of the space.

    `shapes` has the sizes of tensors that exist: each has no more elements than a space has points.
    At most `steps` sizes are taken out of the expression.
    """
    if isinstance(expr, int):
        return abs(expr)
    total = _of_terms(expr, sizes, shapes)
    if total >= LARGEST and steps:
        for rest in _without_a_size(expr, (*sizes.values(), *(n for shape in shapes for n in shape))):
            reached = POINTS_OF_A_SPACE + magnitude(rest, sizes, shapes, steps - 1)
            if reached < LARGEST:
                return reached
    return total


def _without_a_size(expr: Expr, sizes: Iterable[Int]) -> list[Int]:
    """What is left of the expression without one of the sizes that are sums, whose products may be larger than they: d0 of
    d0 - s0*s1 + 2*s1 for s0*s1 - 2*s1. Where such a product overflows, the whole is right nevertheless: 64-bit sums and products
    are taken modulo 2**64. The shortest come first; what is no shorter than the expression is left out."""
    sums = {size for size in sizes if isinstance(size, Expr) and len(size.terms) > 1}
    rests = [rest for size in sums for rest in (expr - size, expr + size) if _length(rest) < _length(expr)]
    return sorted(rests, key=lambda rest: (_length(rest), str(rest)))[:REMOVED]


def _length(expr: Int) -> int:
    return sum(map(abs, expr.terms.values())) if isinstance(expr, Expr) else abs(expr)


def _of_terms(expr: Expr, sizes: Mapping[str, Int], shapes: Sequence[Sequence[Int]]) -> int:
    """The sum of what each product reaches."""
    total = 0
    for monomial, coefficient in expr.terms.items():
        reached = 1
        for atom in monomial:
            if isinstance(atom, str):
                size = sizes.get(atom, TYPICAL)
                reached *= max(size, 1) if isinstance(size, int) else TYPICAL
            else:
                kind, a, b = atom
                left, right = magnitude(a, sizes, shapes), magnitude(b, sizes, shapes)
                reached *= max(left, right, 1) if kind in ("max", "min", "mod") else max(left, 1)
                if right >= LARGEST:
                    return right
        if reached > POINTS_OF_A_SPACE and _is_counted(monomial, sizes, shapes):
            reached = POINTS_OF_A_SPACE  # at most as many as there are points, or elements
        total += abs(coefficient) * reached
    return total


def _is_counted(monomial: Iterable[Atom], sizes: Mapping[str, Int], shapes: Sequence[Sequence[Int]]) -> bool:
    """Whether the product is a part of a number of points or of elements: s0*s1*s2*s3 of a space of s0*s1*s2*s3 + 3 points."""
    wanted = _factors([_size_of_part(atom, shapes) for atom in monomial], sizes)
    spaces = [[_of_dimension(name, sizes) for name in sizes], *([_terms_of(n) for n in shape] for shape in shapes)]
    return any(wanted <= found for space in spaces for found in _chosen_factors(space))


def _size_of_part(atom: Atom, shapes: Sequence[Sequence[Int]]) -> Atom:
    """The size that a minimum of it is at most, as that of a part of a tensor is: s0 of min(2, s0)."""
    if isinstance(atom, str) or atom[0] != "min":
        return atom
    _, a, b = atom
    for size, other in ((a, b), (b, a)):
        is_size = known_nonnegative(other) and any(size == n for shape in shapes for n in shape)
        if is_size and isinstance(size, Expr) and [*size.terms.values()] == [1]:
            (found,) = size.terms
            return found[0] if len(found) == 1 else atom
    return atom


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


def _of_dimension(name: str, sizes: Mapping[str, Int]) -> list[Counter[Atom]]:
    own = _factors([name], sizes)
    return [own, *(terms for terms in _terms_of(sizes[name]) if terms != own)]


def _chosen_factors(space: Sequence[Sequence[Counter[Atom]]]) -> Iterator[Counter[Atom]]:
    """The factors of products of one term of each size."""
    for chosen in islice(product(*filter(None, space)), CHOICES):
        yield sum(chosen, Counter())


@lru_cache(maxsize=4096)
def _terms_of(size: Int) -> list[Counter[Atom]]:
    """The factors of each product in the size that is no more than a multiple of the size: s0*s1 in s0*s1 + 3, and in
    s0*s1 - s0*s1//2; none where a difference is not known to leave any."""
    found = [dict(size.terms), _parts(size)] if isinstance(size, Expr) else []
    return [Counter(m) for terms in found if _grows(terms) for m, c in terms.items() if m and c > 0]


def _parts(size: Int) -> Terms:
    """A sum of products from which the size differs by less than a number, whatever the symbols are: s0*s1/2 for (s0*s1 + 3)//2."""
    found: Terms = {}
    for monomial, coefficient in size.terms.items() if isinstance(size, Expr) else ():
        for m, c in _parts_of_atom(monomial[0]).items() if len(monomial) == 1 else ((monomial, Fraction(1)),):
            found[m] = found.get(m, Fraction(0)) + coefficient * c
    return {m: c for m, c in found.items() if m and c}


def _parts_of_atom(atom: Atom) -> Terms:
    if isinstance(atom, str):
        return {(atom,): Fraction(1)}
    kind, *operands = atom
    known = [n for n in operands if isinstance(n, int)]
    if kind == "floordiv" and known == operands[1:] and known[0] > 0:
        return {m: c / known[0] for m, c in _parts(operands[0]).items()}
    if kind == "mod" and known == operands[1:]:
        return {}
    other = next((n for n in operands if isinstance(n, Expr)), 0)
    if kind in ("max", "min") and known and _grows(_parts(other)):
        return _parts(other) if kind == "max" else {}
    return {(atom,): Fraction(1)}


def _grows(terms: Terms) -> bool:
    """Whether no product is more than a multiple of the sum, or than a number: what is taken away is small."""
    return all(
        (c > 0 and all(known_nonnegative(Expr({(atom,): 1})) for atom in m))
        or (all(isinstance(atom, str) for atom in m) and abs(c) * TYPICAL ** len(m) <= SMALL)
        for m, c in terms.items()
    )

"""Proofs that an index expression stays in bounds: at every point of an iteration space, for every value of the symbols.

A goal is an expression that is to be at least 0. What is known is a list of facts, expressions that are at least 0:
sizes of dimensions (d0 and s0 - 1 - d0), what a mask says, sizes of tensors.

    max, min        either operand, with what that says as a fact: both cases must hold
    a // b, a % b   a number q with b*q <= a < b*q + b, where b is at least 1; the remainder is a - b*q. A factor of the size of a dimension
                    that the goal names is at least 1: it has an index
    d0, d1, ...     the first or the last index, as the sign of what it is multiplied by asks for
    facts           a multiple of a fact that is taken from the goal

Where every size is a number and the rules do not decide, the goal is evaluated at all points.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field
from itertools import count

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Expr, Int, free_symbols, known_nonnegative, substitute, symbol
from mlirc.dialects.interpreter.kernels import TorchIndices
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.verify.assignments import assignments, related
from mlirc.lowering.verify.index_algebra import (
    at_least_one,
    atoms,
    divided_by,
    exact,
    extreme_atom,
    factors,
    floordiv_of,
    is_quotient_by_symbol,
    multiples,
    parted,
    replaced,
    sign,
)
from mlirc.lowering.verify.magnitude import LARGEST, magnitude

POINTS = 1 << 20  # the most points of a space that is evaluated point by point
STEPS = 400  # the most steps of one proof
FACTS = 3  # the most facts that one proof uses

TRIED = 12  # values of the symbols, in a search for a counterexample, beside the common ones

Facts = tuple[Int, ...]


class _TooLong(Exception):
    pass


@dataclass
class Space:
    """Dimensions with their sizes, and facts that hold at each of their points."""

    sizes: Mapping[str, Int] = field(default_factory=dict)
    facts: Facts = ()

    def given(self, facts: Iterable[Int]) -> "Space":
        return Space(self.sizes, (*self.facts, *(f for f in facts if isinstance(f, Expr) or f < 0)))

    def nonnegative(self, goal: Int) -> bool:
        """Whether `goal` is known to be at least 0 at every point."""
        if isinstance(goal, int):
            return goal >= 0 or self.impossible()
        if known_nonnegative(goal) and not free_symbols(goal) & set(self.sizes):
            return True
        known = (*self.facts, *self.below(goal))
        plain = _without_extremes(known)
        for facts in [known] if len(plain) == len(known) else [plain, known]:
            for merged in (False, True):
                try:
                    if _Proof(self.sizes, free_symbols(goal), merged, facts).holds(goal, facts):
                        return True
                except _TooLong:
                    pass
        return self._looked_at(goal)

    def below(self, goal: Int) -> Facts:
        """That an index in the goal is below its size, where that is a quotient by a symbol, of which no rule knows the sign."""
        named = ((d, n) for d, n in self.sizes.items() if isinstance(n, Expr) and d in free_symbols(goal))
        return tuple(n - 1 - symbol(d) for d, n in named if any(is_quotient_by_symbol(atom) for atom in atoms(n)))

    def left(self, goal: Int) -> list[Int] | None:
        """Expressions in symbols alone: where they are at least 0, so is the goal at every point; None if none are found.

        Where the cases of facts are too many, the facts without a max or min may do.
        """
        for facts in (self.facts, _without_extremes(self.facts)):
            proof = _Proof(self.sizes, free_symbols(goal), facts=facts)
            proof.left = []
            try:
                if proof.holds(goal, facts):
                    return proof.left
            except _TooLong:
                pass
        return None

    def impossible(self) -> bool:
        """Whether the facts are known to contradict each other, so that the space has no point."""
        return any(isinstance(f, int) and f < 0 for f in self.facts)

    def empty(self) -> bool:
        """Whether the space has no point, as far as is seen: a fact contradicts the others, or holds at none of the points. It takes a
        proof for each fact, and is asked where a goal that fails is about to be told."""
        for k, fact in enumerate(self.facts):
            others = Space(self.sizes, (*self.facts[:k], *self.facts[k + 1 :]))
            if isinstance(fact, int):
                if fact < 0:
                    return True
            elif free_symbols(fact) & set(self.sizes):
                if others.nonnegative(-1 - fact):
                    return True
                points = self.points(free_symbols(fact))
                if points is not None and not points[1].any():
                    return True
        return False

    def _looked_at(self, goal: Int) -> bool:
        points = self.points(free_symbols(goal))
        if points is None:
            return False
        names, inside = points
        if magnitude(goal, self.sizes) >= LARGEST:  # 64 bits are too few
            return False
        value = symbols.emit(goal, TorchIndices(names))
        return not bool((inside & (value < 0)).any())

    def points(self, wanted: set[str]) -> tuple[dict[str, torch.Tensor], torch.Tensor] | None:
        """The index of each dimension at the points where facts about `wanted` hold, and a mask of these points; None if there are
        symbols, or too many points."""
        wanted = set(wanted)
        facts = [f for f in self.facts if free_symbols(f) and free_symbols(f) <= set(self.sizes)]
        for f in facts:
            wanted |= free_symbols(f) if free_symbols(f) & wanted else set()
        if any(magnitude(f, self.sizes) >= LARGEST for f in facts if free_symbols(f) <= wanted):
            return None
        sizes = {name: self.sizes.get(name) for name in sorted(wanted)}
        total = 1
        for n in sizes.values():
            if not isinstance(n, int):
                return None
            total *= max(n, 0)
        if total > POINTS:
            return None
        shape = list(sizes.values())
        names = {
            name: torch.arange(max(shape[k], 0)).view([-1 if e == k else 1 for e in range(len(shape))])  # type: ignore[type-var]
            for k, name in enumerate(sizes)
        }
        inside = torch.ones([max(n, 0) for n in shape], dtype=torch.bool)  # type: ignore[type-var]
        for f in facts:
            if free_symbols(f) <= wanted:
                inside = inside & (symbols.emit(f, TorchIndices(names)) >= 0)
        return names, inside


def _without_extremes(facts: Facts) -> Facts:
    """The facts without a max or min, each of which doubles the cases of a proof: most goals need no other."""
    return tuple(f for f in facts if extreme_atom(f) is None)


def unless_by_zero(expr: Int, atom: tuple[str, Int, Int], value: Int, otherwise: Int) -> Int:
    """`expr` with `value` in place of an atom; `otherwise` where that divides by 0, as an index modulo the size of an empty tensor does."""
    try:
        return replaced(expr, atom, value)
    except ZeroDivisionError:
        return otherwise


class _Proof:
    """The proof of one goal, with the names in it. `quotients` maps (a, b) to the symbol that stands for a // b.

    Where quotients of quotients are `merged`, the digits of an index add up to it: x%19 + 19*((x//19)%8) + 152*(x//152) is x. Where
    they are not, (x//19)%8 is seen to be below 8.
    """

    def __init__(self, sizes: Mapping[str, Int], names: Collection[str] = (), merged: bool = False, facts: Facts = ()):
        self.sizes = dict(sizes)
        self.merged = merged
        self.ones = {factor for name, size in sizes.items() if name in names for factor in factors(size)}
        self.ones |= at_least_one(facts)
        self.indexed = [size for name, size in sizes.items() if name in names and isinstance(size, Expr)]
        self.quotients: dict[tuple[Int, Int], str] = {}
        self.bounds: dict[str, tuple[Int, Int]] = {}  # q: (a, b)
        self.numbers = count()
        self.known: dict[Int, Int] = {}  # what `flat` gave
        self.steps = 0
        self.leaf: Int | None = None  # of the last look at extremes: what was to be at least 0 in the end
        self.left: list[Int] | None = None  # goals that were not proved, if they are to be collected

    def holds(self, goal: Int, facts: Facts, used: int = 0) -> bool:
        self.steps += 1
        if self.steps > STEPS:
            raise _TooLong
        if isinstance(goal, int):
            return goal >= 0
        split = self.split(goal, facts)
        if split is not None:
            return all(self.holds(substituted, given, used) for substituted, given in split)
        goal = self.flat(goal)
        if isinstance(goal, int):
            return goal >= 0
        flat = tuple(self.flat(f) for f in facts)
        self.leaf = None
        if self.extreme(goal):
            return True
        leaf, collected = self.leaf, self.left
        if free_symbols(goal) & self.bounds.keys() and self.extreme(self.at_ends(goal)):
            return True
        self.left = None
        if used < FACTS and any(self.holds(rest, facts, used + 1) for fact in flat for rest in multiples(goal, fact)):
            self.left = collected
            return True
        if any(self.holds(whole, facts, used) for whole in self.multiplied(goal)):
            self.left = collected
            return True
        self.left = collected
        if used or self.left is None or not isinstance(leaf, Expr) or any("'" in name for name in free_symbols(leaf)):
            return False
        self.left.append(leaf)
        return True

    def at_ends(self, goal: Expr) -> Int:
        """The goal where each dimension that is multiplied by a number has the index that makes it least: its size may have the goal's quotients."""
        least: Int = goal
        for name in free_symbols(goal) & set(self.sizes):
            factor, rest = parted(least, name)
            if isinstance(factor, int):
                least = rest if factor >= 0 else rest + factor * (self.flat(self.sizes[name]) - 1)
            if isinstance(least, int):
                break
        return least

    def multiplied(self, goal: Expr) -> Iterator[Int]:
        """Goals without the last quotient that are at least 0 where this one is: x - a//b by b, as b*(x + 1) - 1 - a, and x + a//b as
        b*x + a. Facts about what is divided apply to them."""
        names = free_symbols(goal)
        name = next((name for name in reversed(list(self.bounds)) if name in names), None)
        if name is None:
            return
        factor, rest = parted(goal, name)
        a, b = self.bounds[name]
        if factor in (1, -1) and self.positive(b):
            yield b * rest + a if factor == 1 else b * (rest + 1) - 1 - a

    def split(self, goal: Int, facts: Facts) -> list[tuple[Int, Facts]] | None:
        """The two cases of the first max or min in the goal or in a fact; None if there is none."""
        for expr in (goal, *facts):
            atom = extreme_atom(expr)
            if atom is None:
                continue
            kind, a, b = atom
            cases = []
            for kept, other in ((a, b), (b, a)):
                fact = kept - other if kind == "max" else other - kept
                known = [unless_by_zero(f, atom, kept, 0) for f in facts]
                cases.append((unless_by_zero(goal, atom, kept, -1), (*known, fact)))
            return [case for case in cases if not any(known_nonnegative(f * -1 - 1) for f in case[1])]
        return None

    def flat(self, expr: Int) -> Int:
        """`expr` with a number for each quotient, and remainders by quotients. The facts are asked for at each step."""
        if isinstance(expr, int):
            return expr
        if expr not in self.known:
            total: Int = 0
            for monomial, coefficient in expr.terms.items():
                product: Int = coefficient
                for atom in monomial:
                    product = product * (symbol(atom) if isinstance(atom, str) else self.divided(*atom))
                total = total + product
            self.known[expr] = total
        return self.known[expr]

    def divided(self, kind: str, a: Int, b: Int) -> Int:
        a, b = self.flat(a), self.flat(b)
        key = self.whole(a, b) if self.merged else (a, b)
        if key not in self.quotients:
            name = self.quotients[key] = f"u{next(self.numbers)}'"
            self.bounds[name] = key
        q = symbol(self.quotients[key])
        return q if kind == "floordiv" else a - b * q

    def whole(self, a: Int, b: Int) -> tuple[Int, Int]:
        """(x, m*b) where a is x // m and both divisors are numbers above 0: floor(floor(x/m) / b) is floor(x / (m*b))."""
        if isinstance(a, Expr) and isinstance(b, int) and b > 0 and len(a.terms) == 1:
            ((monomial, coefficient),) = a.terms.items()
            if coefficient == 1 and len(monomial) == 1 and monomial[0] in self.bounds:
                x, m = self.bounds[monomial[0]]  # type: ignore[index]
                if isinstance(m, int) and m > 0:
                    return x, m * b
        return a, b

    def extreme(self, goal: Int) -> bool:
        """Whether the goal is at least 0 where each quotient and dimension has the value that makes it least."""
        self.steps += 1
        if self.steps > STEPS:
            raise _TooLong
        if isinstance(goal, int):
            return goal >= 0
        names = free_symbols(goal)
        quotients = [name for name in reversed(list(self.bounds)) if name in names]
        if quotients:
            name = quotients[0]
            return any(self.extreme(substituted) for substituted in self.without(goal, name))
        dims = [name for name in self.sizes if name in names]
        # first a quotient whose factor has a known sign
        for name in dims:
            factor, rest = parted(goal, name)
            if factor is None:
                return False
            low = self.least(factor)
            if low is not None and sign(low) >= 0:
                return self.extreme(rest)
            high = self.least(factor * -1)
            if high is not None and sign(high) >= 0:
                return self.extreme(rest + factor * (self.sizes[name] - 1))
        if dims:
            return False
        if known_nonnegative(goal):
            return True
        self.leaf = goal
        return False

    def least(self, expr: Int) -> Int | None:
        """A lower bound without dimensions and quotients; None where none is found."""
        if isinstance(expr, int):
            return expr
        total: Int = 0
        for monomial, coefficient in expr.terms.items():
            local = [a for a in monomial if a in self.sizes or a in self.bounds]
            if not local:
                total = total + (Expr({monomial: coefficient}) if monomial else coefficient)
            elif coefficient > 0 and all(self.plainly_nonnegative(a) for a in monomial):
                continue
            elif coefficient < 0 and len(local) == 1 and local[0] in self.sizes:
                rest: Int = coefficient
                for a in monomial:
                    rest = rest * (self.sizes[a] - 1 if a in self.sizes else symbol(a))  # type: ignore[index,arg-type]
                if not all(known_nonnegative(symbol(a)) for a in monomial if a not in self.sizes):  # type: ignore[arg-type]
                    return None
                total = total + rest
            else:
                return None
        return total

    def plainly_nonnegative(self, name: symbols.Atom) -> bool:
        if not isinstance(name, str):
            return known_nonnegative(Expr({(name,): 1}))
        if name in self.bounds:
            a, b = self.bounds[name]
            return self.positive(b) and self.extreme(a)
        return name in self.sizes or known_nonnegative(symbol(name))

    def positive(self, b: Int) -> bool:
        """A product of factors that are at least 1 is, too; and what a size with an index is a multiple of that is not negative."""
        if sign(b - 1) >= 0 or (bool(found := factors(b)) and found <= self.ones):
            return True
        if not isinstance(b, Expr) or len(b.terms) < 2:
            return False
        times = (divided_by(self.flat(n), b) for n in self.indexed)
        return any(n is not None and self.extreme(n) for n in times)

    def without(self, goal: Int, name: str) -> list[Int]:
        """Lower bounds of the goal that do not name the quotient."""
        factor, rest = parted(goal, name)
        a, b = self.bounds[name]
        if factor is None or not self.positive(b):
            return []
        found: list[Int] = []
        low, high = self.least(factor), self.least(factor * -1)
        if low is not None and sign(low) >= 0:
            times = exact(factor, b)
            if times is not None:
                found.append(rest + times * (a - b + 1))
            least = self.lowest(a)
            if least is not None:
                found.append(rest + factor * floordiv_of(least, b))
        elif high is not None and sign(high) >= 0:
            times = exact(factor, b)
            if times is not None:
                found.append(rest + times * a)
            most = self.lowest(a * -1)
            if most is not None:
                found.append(rest + factor * floordiv_of(most * -1, b))
        return found

    def lowest(self, a: Int) -> Int | None:
        """A lower bound of an expression in symbols alone, by its extremes."""
        self.steps += 1
        if self.steps > STEPS:
            raise _TooLong
        if isinstance(a, int):
            return a
        names = free_symbols(a)
        for name in reversed(list(self.bounds)):
            if name in names:
                lows = [low for x in self.without(a, name) if (low := self.lowest(x)) is not None]
                return lows[-1] if lows else None
        for name in self.sizes:
            if name not in names:
                continue
            factor, rest = parted(a, name)
            if factor is None:
                return None
            low, high = self.least(factor), self.least(factor * -1)
            if low is not None and sign(low) >= 0:
                return self.lowest(rest)
            if high is not None and sign(high) >= 0:
                return self.lowest(rest + factor * (self.sizes[name] - 1))
            return None
        return a


def flat(sizes: Mapping[str, Int], expr: Int) -> Int:
    """`expr` with a number of its own for each quotient: equal values of quotients and remainders cancel."""
    return _Proof(sizes).flat(expr)


def counterexample(space: Space, goal: Int) -> dict[str, int] | None:
    """Values of the symbols, and a point, at which the goal is less than 0; None if none of those tried is one.

    Values at which a fact does not hold are none of a call.
    """
    names = free_symbols(goal)
    for f in space.facts:
        names |= free_symbols(f) & set(space.sizes)
    for d in list(names & set(space.sizes)):
        names |= free_symbols(space.sizes[d])
    names |= related(names - set(space.sizes), space.facts)
    free = sorted(names - set(space.sizes))
    whole = [f for f in space.facts if isinstance(f, Expr) and free_symbols(f) <= set(free)]
    for values in assignments(free, whole, TRIED):
        try:
            sizes = {d: substitute(n, values) for d, n in space.sizes.items() if d in names}
            facts = tuple(substitute(f, values) for f in space.facts)
            left = substitute(goal, values)
        except ZeroDivisionError:  # no call has these values
            continue
        if any(isinstance(f, int) and f < 0 for f in facts):
            continue
        found = Space(sizes, facts).points(free_symbols(left) & set(sizes))
        if found is None or magnitude(left, sizes) >= LARGEST:
            continue
        points, inside = found
        bad = inside & (symbols.emit(left, TorchIndices(points)) < 0)
        if bad.any():
            where = bad.nonzero()[0].tolist()
            return {**values, **dict(zip(points, where, strict=True))}
    return None

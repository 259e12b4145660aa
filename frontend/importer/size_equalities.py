"""Equalities of sizes that follow from PyTorch's guards, such as `s39//s65 == 1`, so that equal sizes are written alike.

A graph runs only for sizes that pass the guards. PyTorch itself replaces symbols that are equal to something simple, and leaves
a quotient, a remainder, a maximum as it is, even where it has noted what that equals: [s65, s39//s65] is then promised as [s65, 1].
What no single size follows from, `16*(s0//2)*(s1//2) == 1024`, is a relation: sizes are its remainders, as in a division of polynomials.
A guard that is no equation may leave one value all the same: `s97//2 < 2` says that s97 is 2 or 3, so that s97//2 is 1.
Powers are divided first: where a batch and its heads have one symbol, s30**2//s30 == 2 says that s30 is 2.
What is rewritten has sizes of the graph's own inputs alone (`without_symbols`): `s97//3 == s48 - s58 + 3` says nothing of a graph that has s97 alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import sympy
from sympy.core.function import Application

from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.frontend.torch_compat.dynamo.symbolic_shapes import (
    FloorDiv,
    Max,
    Min,
    Mod,
    ShapeEnv,
    TensorPropertySource,
)


@dataclass
class SizeFacts:
    """What an environment says of sizes, while it says no more than that.

    guards, ranges, replacements    all that this follows from: how many guards, and copies of its dictionaries
    absent      symbols that are left out (`without_symbols`)
    equal       symbols and functions of symbols, and what to write instead, in which none of them occurs
    relations   sums that are 0
    simplest    expressions, and their simplest form (`simplest`)
    sizes       expressions, and the dialect's (sizes.py)
    inequalities    expressions that are at least 0 (`inequalities`), where they have been asked for
    """

    guards: int
    ranges: dict[Any, Any]
    replacements: dict[Any, Any]
    absent: frozenset[Any]
    equal: dict[Any, Any]
    relations: list[Any]
    simplest: dict[Any, Any] = field(default_factory=dict)
    sizes: dict[Any, Any] = field(default_factory=dict)
    inequalities: list[Any] | None = None

    def hold(self, environment: ShapeEnv) -> bool:
        """Whether the environment says nothing else by now."""
        return (
            self.guards == len(environment.guards)
            and self.ranges == environment.var_to_range
            and self.replacements == environment.replacements
        )

    @property
    def symbols(self) -> frozenset[Any]:
        """The symbols that sizes may be rewritten with; none of data."""
        values = [*self.equal.values(), *self.relations]
        return frozenset(s for value in values for s in value.free_symbols if not _is_of_data(s))


_known: WeakKeyDictionary[ShapeEnv, dict[frozenset[Any], SizeFacts]] = WeakKeyDictionary()
_absent: ContextVar[frozenset[Any]] = ContextVar("absent", default=frozenset())


@contextmanager
def without_symbols(absent: frozenset[Any]) -> Iterator[None]:
    """Within it, no size is rewritten with one of these symbols: nothing gives the graph their values."""
    before = _absent.set(absent)
    try:
        yield
    finally:
        _absent.reset(before)


def facts_of(environment: ShapeEnv) -> SizeFacts:
    """What the environment says by now; one object while that stays, to keep what follows from it in."""
    absent = _absent.get()
    of_graphs = _known.setdefault(environment, {})
    found = of_graphs.get(absent)
    if found is None or not found.hold(environment):
        equal, relations = _solve(environment, absent)
        given = len(environment.guards), dict(environment.var_to_range), dict(environment.replacements)
        found = of_graphs[absent] = SizeFacts(*given, absent, equal, relations)
    return found


def simplest(expr: sympy.Expr, environment: ShapeEnv) -> Any:
    """`expr` with what the guards say: sizes that are equal by one of them become equal expressions."""
    facts = facts_of(environment)
    if expr not in facts.simplest:
        bounded = _bounded(_rewritten(expr, facts.equal, environment), environment)
        facts.simplest[expr] = _reduced(bounded, facts.relations)
    return facts.simplest[expr]


def _bounded(expr: Any, environment: ShapeEnv) -> Any:
    """`expr` with numbers for functions that have one value at all sizes that pass the guards; what data says is still to be checked."""
    found = {}
    for atom in expr.atoms(Application):
        if not _is_of_data(atom):
            bounds = environment.bound_sympy(atom)
            if bounds.is_int and bounds.is_singleton():
                found[atom] = bounds.lower
    return expr.xreplace(found)


def _rewritten(expr: Any, equal: dict[Any, Any], environment: ShapeEnv) -> Any:
    expr = _divided(expr, environment)
    for _ in equal:  # an argument that is rewritten may make a function one of them
        before, expr = expr, _divided(expr.xreplace(equal), environment)
        if expr == before:
            break
    return expr


def _divided(expr: Any, environment: ShapeEnv) -> Any:
    """`expr` with quotients without remainder as products: s0**2//s0 as s0, which PyTorch does of s0*s1//s0, not of powers."""
    if not expr.has(sympy.Pow):
        return expr
    found = {}
    for function in expr.atoms(FloorDiv):
        quotient = _quotient(*function.args)
        if quotient is not None and environment.bound_sympy(function.args[1]).lower >= 1:
            found[function] = quotient
    return _divided(expr.xreplace(found), environment) if found else expr


def _quotient(dividend: Any, divisor: Any) -> Any:
    """The sum of products that `divisor`, one product, times is `dividend`; else None."""
    if divisor.is_Add:
        return None
    quotients = [term / divisor for term in sympy.Add.make_args(sympy.expand(dividend))]
    wholes = [q.as_coeff_Mul() for q in quotients]
    return sympy.Add(*quotients) if all(c.is_Integer and _is_product(rest) for c, rest in wholes) else None


def _reduced(expr: Any, relations: list[Any]) -> Any:
    """The remainder of `expr`, and those of the arguments of the functions in it: max(s25 - s34, 1) as s25 alone is written.

    A relation that has the function in it says nothing of what that one is made of: s52 == 2*(s52//3) would go on for ever.
    """
    inner = {}
    for function in expr.atoms(Application) if relations else ():
        others = [r for r in relations if not r.has(function)]
        arguments = [_reduced(x, others) for x in function.args]
        if arguments != list(function.args):
            inner[function] = function.func(*arguments)
    return _remainder(expr.xreplace(inner), relations)


def _remainder(expr: Any, relations: list[Any]) -> Any:
    """`expr` less multiples of the relations, each of which is 0, until none of their leading terms divides one of its terms.

    A factor of the leading term leaves a rest from 0 on: 2*(s52//3) == s52 makes of s52 - s52//3 the size s52//3.
    """
    for relation in relations:
        factor, leading = _leading(relation)
        if factor < 0:
            factor, relation = -factor, -relation
        multiple: Any = True
        while multiple:
            terms = sympy.expand(expr).as_coefficients_dict()
            quotients = ((count, term / leading) for term, count in terms.items())
            multiple = sum(count // factor * q for count, q in quotients if _is_product(q))
            expr = sympy.expand(expr - multiple * relation) if multiple else expr
    return expr


@lru_cache(maxsize=4096)
def _leading(relation: Any) -> tuple[Any, Any]:
    """(factor, term): the highest in the graded lexicographic order of monomials, so that division by it ends.

    Functions come before symbols: 2*(s15//2) == s15 makes s15 of 2*(s15//2), as inputs have it, and not the other way. Kept,
    since each size is divided by each relation again, and the names of long functions take sympy milliseconds.
    """
    terms = relation.as_coefficients_dict()
    powers = {term: term.as_powers_dict() for term in terms}
    atoms = sorted({atom for each in powers.values() for atom in each if atom.free_symbols}, key=_order)
    degrees = {term: [each.get(atom, 0) for atom in atoms] for term, each in powers.items()}
    term = max(terms, key=lambda term: (sum(degrees[term]), degrees[term]))
    return terms[term], term


def _order(atom: Any) -> tuple[bool, str]:
    return not isinstance(atom, Application), str(atom)


def _is_product(term: Any) -> bool:
    """Whether it is 1 or a product of sizes, symbols or functions of symbols, to whole powers."""
    atoms = term.as_powers_dict().items()
    return term == 1 or all((b.is_Symbol or isinstance(b, Application)) and e.is_Integer and e > 0 for b, e in atoms)


def _solve(environment: ShapeEnv, absent: frozenset[Any]) -> tuple[dict[Any, Any], list[Any]]:
    stated: Any = (_equation(g.expr, environment) for g in environment.guards)
    equations: list[Any] = [environment.replace(equation) for equation in stated if equation is not None]
    equations = _eliminated(equations, absent) if absent else equations
    equal: dict[Any, Any] = {}
    progress = True
    while progress:  # what one equation says may make another one simple enough
        progress = False
        for guard in [*equations, *_wholes(equal)]:
            equation = _bounded(_rewritten(guard, equal, environment), environment)
            if not isinstance(equation, sympy.Eq):
                continue
            sides: Any = equation.args
            learned = _solved(_cancelled(sides[0] - sides[1], environment))
            if learned is not None and learned[0] not in equal:
                atom, value = learned
                equal = {a: b.xreplace({atom: value}) for a, b in equal.items()} | {atom: value}
                progress = True
    rest = (_bounded(_rewritten(e, equal, environment), environment) for e in [*equations, *_wholes(equal)])
    unsolved: Any = (e.args for e in rest if isinstance(e, sympy.Eq))
    return equal, _reduced_by_each_other([a - b for a, b in unsolved], environment)


def _wholes(equal: dict[Any, Any]) -> list[Any]:
    """What remainders of 0 say of quotients: s97 == 2*(s97//2) where s97 % 2 is 0."""
    exact: Any = (f.args for f, n in equal.items() if n == 0 and isinstance(f, Mod))
    return [sympy.Eq(a, FloorDiv(a, b) * b, evaluate=False) for a, b in exact]


def _eliminated(equations: list[Any], absent: frozenset[Any]) -> list[Any]:
    """What equations say without these symbols: s97//3 == s48 - s58 and s12//2 == s48 - s58 say that s97//3 == s12//2.

    Gauss's elimination of the terms that such a symbol is in.
    """
    kept = [e for e in equations if e.free_symbols.isdisjoint(absent)]
    others: Any = (e.args for e in equations if isinstance(e, sympy.Eq) and e not in kept)
    sums: list[Any] = [sympy.expand(a - b) for a, b in others]
    while sums:
        first = sums.pop()
        terms = first.as_coefficients_dict()
        gone = [term for term in terms if not term.free_symbols.isdisjoint(absent)]
        if not gone:
            kept += [sympy.Eq(first, 0, evaluate=False)] if first != 0 else []
            continue
        pivot = min(gone, key=str)
        factors = [other.as_coefficients_dict().get(pivot, 0) for other in sums]
        pairs = zip(sums, factors, strict=True)
        sums = [sympy.expand(terms[pivot] * other - k * first) if k else other for other, k in pairs]
    return kept


def _reduced_by_each_other(sums: list[Any], environment: ShapeEnv) -> list[Any]:
    """Relations in simplest sizes: s15*s77 == 2*(s15*s77//2) makes of s15//2 * (s15*s77 // (s15*s77//2)) == s15 that 2*(s15//2) == s15."""
    relations = _relations(sums, environment)
    relations = _relations([*relations, *_combined(relations, environment)], environment)
    for k, relation in enumerate(relations):
        relations[k] = _reduced(relation, [r for r in relations if r is not relation and r.free_symbols])
    return _relations(relations, environment)


def _combined(relations: list[Any], environment: ShapeEnv) -> list[Any]:
    """Sizes that two relations say together, of which no division does: s0 == 8*(s0//8) and s0 == s0//8 * (s0//(s0//8)) say that
    s0//(s0//8) is 8."""
    found = []
    for first in relations:
        factor, leading = _leading(first)
        for second in relations if abs(factor) > 1 else ():
            other, product = _leading(second)
            if second is not first and _is_product(product / leading):
                total = _cancelled(other * (product / leading) * first - factor * second, environment)
                found += [total] if _solved(total) is not None else []
    return found


def _relations(sums: list[Any], environment: ShapeEnv) -> list[Any]:
    primitive = (_cancelled(s, environment) for s in sums)
    return [s for s in dict.fromkeys(primitive) if s.free_symbols and all(map(_is_product, s.as_coefficients_dict()))]


def _cancelled(total: Any, environment: ShapeEnv) -> Any:
    """A sum that is 0 without the factors of all its terms that are not: 8*a == 8*b and n*a == n*b say that a == b, where n is at least 1."""
    total = sympy.expand(total).primitive()[1]
    terms = total.as_coefficients_dict()
    powers = [term.as_powers_dict() for term in terms]
    for atom in powers[0] if terms and all(map(_is_product, terms)) else ():
        common = min(each.get(atom, 0) for each in powers)
        if common > 0 and not _is_of_data(atom) and environment.bound_sympy(atom).lower >= 1:
            total = sympy.expand(total / atom**common)
    return total


def inequalities(environment: ShapeEnv) -> list[Any]:
    """What the guards and the ranges of symbols say, as expressions that are at least 0 in every call; none of data.

    Each guard stands for itself, not rewritten by others. Ranges have what guards say of one symbol. That a size is 2 or more goes without
    saying: PyTorch makes graphs of their own for 0 and 1.
    """
    facts = facts_of(environment)
    if facts.inequalities is not None:
        return facts.inequalities
    found: dict[Any, None] = {}
    for guard in environment.guards:
        if not guard.expr.free_symbols <= environment.var_to_range.keys():
            continue  # the ragged size of a nested tensor has no range
        for expr in _at_least_0(environment.replace(guard.expr), environment):
            found |= {part: None for part in _plain(expr, environment) if len(part.free_symbols) > 1}
    for name, known in environment.var_to_range.items():
        sources = environment.var_to_sources.get(name, ())
        low = 2 if any(isinstance(source, TensorPropertySource) for source in sources) else 0
        if known.is_int and known.lower > low and known.lower.is_Integer:
            found[name - known.lower] = None
        if known.is_int and known.upper.is_Integer:
            found[known.upper - name] = None
    facts.inequalities = [expr for expr in found if not _is_of_data(expr)]
    return facts.inequalities


def _at_least_0(guard: Any, environment: ShapeEnv) -> Iterator[Any]:
    """Expressions that are at least 0 where the guard holds; none for what no conjunction of inequalities says."""
    if isinstance(guard, sympy.And):
        for part in guard.args:
            yield from _at_least_0(part, environment)
    if not isinstance(guard, sympy.core.relational.Relational):
        return
    sides: Any = guard.args
    above = sides[0] - sides[1]
    if isinstance(guard, (sympy.Ge, sympy.Eq)):
        yield above
    if isinstance(guard, (sympy.Le, sympy.Eq)):
        yield -above
    if isinstance(guard, sympy.Gt):
        yield above - 1
    if isinstance(guard, sympy.Lt):
        yield -above - 1
    if isinstance(guard, sympy.Ne) and not above.has(Mod):
        bounds = environment.bound_sympy(above)
        if bounds.lower == 0:
            yield above - 1
        elif bounds.upper == 0:
            yield -above - 1


def _plain(expr: Any, environment: ShapeEnv) -> Iterator[Any]:
    """Expressions without quotients, maxima and minima of which all are at least 0 where `expr` is; itself where there are none.

    x//n + r    x + n*r              min(x, y) + r    x + r and y + r
    r - x//n    n*r + n - 1 - x      r - max(x, y)    r - x and r - y
    """
    expr = sympy.expand(expr)
    for atom, count in expr.as_coefficients_dict().items():
        rest = expr - count * atom
        if abs(count) != 1 or not isinstance(atom, Application) or rest.has(atom):
            continue
        args: Any = atom.args
        if isinstance(atom, FloorDiv) and environment.bound_sympy(args[1]).lower >= 1:
            x, n = args
            yield from _plain(x + n * rest if count > 0 else n * rest + n - 1 - x, environment)
            return
        if isinstance(atom, Min if count > 0 else Max):
            for x in args:
                yield from _plain(count * x + rest, environment)
            return
    yield expr


def _is_of_data(expr: Any) -> bool:
    return any(s.name.startswith(("u", "zu")) for s in expr.free_symbols)


def _equation(guard: Any, environment: ShapeEnv) -> Any:
    """An equation, or one that a bound says, as `s0 % 32 <= 0`, what is left of `if padding > 0`; None for any other guard."""
    if isinstance(guard, sympy.Le):
        sides: Any = guard.args
        if sides[1].is_Integer and environment.bound_sympy(sides[0]).lower == sides[1]:
            return sympy.Eq(*sides, evaluate=False)
    return guard if isinstance(guard, sympy.Eq) else None


def _solved(difference: Any) -> tuple[Any, Any] | None:
    """(atom, value) where difference == 0 says that atom == value: a function of sizes, or a symbol that is another one or a number."""
    terms = difference.as_coefficients_dict()
    functions = [atom for atom in terms if isinstance(atom, Application)]
    plain = [atom for atom in terms if atom.is_Symbol] if len(terms) <= 2 else []
    for atom in sorted(functions, key=lambda f: -f.count_ops()) + sorted(plain, key=str, reverse=True):
        rest = difference - terms[atom] * atom
        value = sympy.expand(-rest / terms[atom])
        whole = all(c.is_Integer for c in value.as_coefficients_dict().values())
        if whole and not value.has(atom) and (atom in functions or value.is_Symbol or value.is_Integer):
            return atom, value
    return None

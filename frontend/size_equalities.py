"""What PyTorch's guards say of sizes beyond replacing one symbol: `s39//s65 == 1`, so that both are written alike.

A graph runs only for sizes that pass the guards. PyTorch itself replaces symbols that are equal to something simple, and leaves
a quotient, a remainder, a maximum as it is, even where it has noted what that equals: [s65, s39//s65] is then promised as [s65, 1].
"""

from typing import Any
from weakref import WeakKeyDictionary

import sympy
from sympy.core.function import Application
from torch.fx.experimental.symbolic_shapes import ShapeEnv

_known: WeakKeyDictionary[ShapeEnv, tuple[int, dict[Any, Any]]] = WeakKeyDictionary()


def simplest(expr: sympy.Expr, environment: ShapeEnv) -> Any:
    """`expr` with what the guards say: sizes that are equal by one of them become equal expressions."""
    return _rewritten(expr, _equalities(environment))


def _rewritten(expr: Any, equal: dict[Any, Any]) -> Any:
    for _ in equal:  # an argument that is rewritten may make a function one of them
        before, expr = expr, expr.xreplace(equal)
        if expr == before:
            break
    return expr


def _equalities(environment: ShapeEnv) -> dict[Any, Any]:
    """Symbols and functions of symbols, and what to write instead, in which none of them occurs."""
    count = len(environment.guards)
    found = _known.get(environment)
    if found is None or found[0] != count:
        found = _known[environment] = (count, _solve(environment))
    return found[1]


def _solve(environment: ShapeEnv) -> dict[Any, Any]:
    equations: list[Any] = [environment.replace(g.expr) for g in environment.guards if isinstance(g.expr, sympy.Eq)]
    equal: dict[Any, Any] = {}
    progress = True
    while progress:  # what one equation says may make another one simple enough
        progress = False
        for guard in equations:
            equation = _rewritten(guard, equal)
            if not isinstance(equation, sympy.Eq):
                continue
            learned = _solved(*equation.args)
            if learned is not None and learned[0] not in equal:
                atom, value = learned
                equal = {a: b.xreplace({atom: value}) for a, b in equal.items()} | {atom: value}
                progress = True
    return equal


def _solved(left: Any, right: Any) -> tuple[Any, Any] | None:
    """(atom, value) where left == right says that atom == value: a function of sizes, or a symbol that is another one."""
    difference = sympy.expand(left - right)
    terms = difference.as_coefficients_dict()
    functions = [atom for atom in terms if isinstance(atom, Application)]
    plain = [atom for atom in terms if atom.is_Symbol] if set(terms.values()) == {1, -1} and len(terms) == 2 else []
    for atom in sorted(functions, key=lambda f: -f.count_ops()) + sorted(plain, key=str, reverse=True):
        rest = difference - terms[atom] * atom
        value = sympy.expand(-rest / terms[atom])
        whole = all(c.is_Integer for c in value.as_coefficients_dict().values())
        if whole and not value.has(atom) and (atom in functions or value.is_Symbol):
            return atom, value
    return None

"""Integer expressions over symbols: sizes, strides, offsets, and the index maps of kernels.

An `Int` is a Python int, or an `Expr` when it depends on a symbol. An Expr is a polynomial with integer coefficients
in atoms; an atom is a symbol (`s0`, or an iteration dimension `d1`) or one of floordiv, mod, max, min of two Ints.
The form is canonical, so equal polynomials compare equal and hash alike, and it prints as text that `parse` reads back:

    2*s0 + 1        (s0 + 1)//2        d0 % 4        max(s0, 1)

A symbol's first letters say what its sign may be: one that begins with `un` (`uns3`, a Python int that a guard says is below 0)
is negative, another one with `u` (`u0`, what `.item()` returned; `us3`, a Python int) may be, any other one is at least 0.
floordiv and mod are Python's: the quotient is rounded down, the remainder has the divisor's sign, whatever the signs of the operands.
"""

import ast
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Protocol, Union

NEGATIVE = "un"  # how the name of a symbol below 0 begins
Int = Union[int, "Expr"]
Atom = str | tuple[str, Int, Int]


class Expr:
    """A polynomial {monomial: coefficient}, none of them 0, with an atom; a monomial is a sorted tuple of atoms, () for the constant term."""

    __slots__ = ("_hash", "_text", "terms")

    def __init__(self, terms: Mapping[tuple[Atom, ...], int]):
        self.terms = dict(sorted(terms.items(), key=_order)) if len(terms) > 1 else dict(terms)
        self._hash: int | None = None
        self._text: str | None = None

    def __hash__(self) -> int:
        found = self._hash
        if found is None:
            found = self._hash = hash(tuple(self.terms.items()))
        return found

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Expr) and self.terms == other.terms)

    def __add__(self, other: Int) -> Int:
        if other == 0:
            return self
        terms = dict(self.terms)
        for monomial, coefficient in _terms(other):
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return _canonical(terms)

    def __mul__(self, other: Int) -> Int:
        if other == 1:
            return self
        if other == 0:
            return 0
        terms: dict[tuple[Atom, ...], int] = {}
        for a, x in self.terms.items():
            for b, y in _terms(other):
                monomial = tuple(sorted(a + b, key=_atom_order)) if a and b else a or b
                terms[monomial] = terms.get(monomial, 0) + x * y
        return _canonical(terms)

    def __neg__(self) -> Int:
        return self * -1

    def __sub__(self, other: Int) -> Int:
        return self + (other * -1)

    def __rsub__(self, other: Int) -> Int:
        return (self * -1) + other

    __radd__ = __add__
    __rmul__ = __mul__

    def __floordiv__(self, other: Int) -> Int:
        return floordiv(self, other)

    def __mod__(self, other: Int) -> Int:
        return mod(self, other)

    def __rfloordiv__(self, other: Int) -> Int:
        return floordiv(other, self)

    def __rmod__(self, other: Int) -> Int:
        return mod(other, self)

    def __bool__(self) -> bool:
        raise TypeError(f"the truth of the symbolic size {self} is not known; compare with ==, or use known_*")

    def __repr__(self) -> str:
        if self._text is None:
            self._text = _print(self)
        return self._text


def _terms(value: Int) -> Iterable[tuple[tuple[Atom, ...], int]]:
    return value.terms.items() if isinstance(value, Expr) else (((), value),)


def _atom_order(atom: Atom) -> str:
    return atom if isinstance(atom, str) else "~" + _print_atom(atom)


def _order(item: tuple[tuple[Atom, ...], int]) -> tuple[int, str]:
    return _monomial_order(item[0])


@lru_cache(maxsize=65536)
def _monomial_order(monomial: tuple[Atom, ...]) -> tuple[int, str]:
    return (-len(monomial), " ".join(map(_atom_order, monomial)))


def _canonical(terms: dict[tuple[Atom, ...], int]) -> Int:
    if 0 in terms.values():
        terms = {m: c for m, c in terms.items() if c}
    if not terms:
        return 0
    if len(terms) == 1 and () in terms:
        return terms[()]
    return Expr(terms)


@lru_cache(maxsize=65536)
def symbol(name: str) -> Expr:
    return Expr({(name,): 1})


def _call(name: str, a: Int, b: Int) -> Expr:
    return Expr({((name, a, b),): 1})


def _split_multiples(a: Int, b: Int) -> tuple[Int, Int]:
    """(q, r) with a == q*b + r, q taking every term that is plainly a multiple of b."""
    quotient: Int = 0
    rest: Int = 0
    divisor = next(iter(b.terms.items())) if isinstance(b, Expr) and len(b.terms) == 1 else None
    for monomial, coefficient in _terms(a):
        if isinstance(b, int):
            q = coefficient // b if coefficient % b == 0 else None
            if q is not None:
                quotient = quotient + _canonical({monomial: q})
                continue
        elif divisor is not None and coefficient % divisor[1] == 0:
            left = list(monomial)
            try:
                for atom in divisor[0]:
                    left.remove(atom)
            except ValueError:
                pass
            else:
                quotient = quotient + _canonical({tuple(left): coefficient // divisor[1]})
                continue
        rest = rest + _canonical({monomial: coefficient})
    if rest == b:
        return quotient + 1, 0
    return quotient, rest


def floordiv(a: Int, b: Int, ranges: Mapping[str, Int] | None = None) -> Int:
    """a // b rounded down. `ranges` gives exclusive upper bounds of iteration dimensions."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if b == 1:
        return a
    if b != 0 and known_nonnegative(b * -1):
        return floordiv(a * -1, b * -1, ranges)
    quotient, rest = _split_multiples(a, b)
    if rest == 0 or in_range(rest, b, ranges):
        return quotient
    return quotient + _call("floordiv", rest, b)


def mod(a: Int, b: Int, ranges: Mapping[str, Int] | None = None) -> Int:
    """a % b with the sign of b: in [0, b) where that is positive."""
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    if b == 1:
        return 0
    if b != 0 and known_nonnegative(b * -1):
        return mod(a * -1, b * -1, ranges) * -1
    _, rest = _split_multiples(a, b)
    if rest == 0 or in_range(rest, b, ranges):
        return rest
    return _call("mod", rest, b)


def maximum(a: Int, b: Int) -> Int:
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    if known_nonnegative(a - b):
        return a
    if known_nonnegative(b - a):
        return b
    return _call("max", *sorted((a, b), key=str))


def minimum(a: Int, b: Int) -> Int:
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    if known_nonnegative(a - b):
        return b
    if known_nonnegative(b - a):
        return a
    return _call("min", *sorted((a, b), key=str))


def upper_bound(a: Int, ranges: Mapping[str, Int] | None = None) -> Int | None:
    """The largest value of `a` when each name in `ranges` stays below its bound, or None if that is not known."""
    if isinstance(a, int):
        return a
    total: Int = 0
    for monomial, coefficient in a.terms.items():
        ranged = any(_mentions(atom, ranges or {}) for atom in monomial)
        if all(map(_atom_nonnegative, monomial)):
            if coefficient > 0:
                total = total + product(_atom_bound(atom, ranges or {}) for atom in monomial) * coefficient
            elif not ranged:
                total = total + _canonical({monomial: coefficient})
            # else its largest value is 0, at dimension 0
        elif not ranged:
            total = total + _canonical({monomial: coefficient})
        elif coefficient > 0 and len(monomial) == 1:
            total = total + _atom_bound(monomial[0], ranges or {}) * coefficient
        else:
            return None
    return total


def _mentions(atom: Atom, ranges: Mapping[str, Int]) -> bool:
    return any(name in ranges for name in _atom_symbols(atom))


def _atom_bound(atom: Atom, ranges: Mapping[str, Int]) -> Int:
    if isinstance(atom, str):
        return ranges[atom] - 1 if atom in ranges else symbol(atom)
    name, _, b = atom
    if name == "mod" and known_nonnegative(b) and not any(s in ranges for s in free_symbols(b)):
        return b - 1
    if name == "floordiv" and isinstance(b, int) and b > 0:
        bound = upper_bound(atom[1], ranges)
        if bound is not None:
            return floordiv(bound, b)
    return Expr({(atom,): 1})


def in_range(a: Int, size: Int, ranges: Mapping[str, Int] | None = None) -> bool:
    """Whether 0 <= a < size holds for every value of the symbols (False: not known)."""
    if not known_nonnegative(a):
        return False
    bound = upper_bound(a, ranges)
    return bound is not None and known_nonnegative(size - 1 - bound)


def known_nonnegative(a: Int) -> bool:
    if isinstance(a, int):
        return a >= 0
    return all(_term_nonnegative(m, c) for m, c in a.terms.items())


def _term_nonnegative(monomial: tuple[Atom, ...], coefficient: int) -> bool:
    negative = [atom for atom in monomial if isinstance(atom, str) and atom.startswith(NEGATIVE)]
    others = (atom for atom in monomial if atom not in negative)
    return (coefficient > 0) == (len(negative) % 2 == 0) and all(map(_atom_nonnegative, others))


def _atom_nonnegative(atom: Atom) -> bool:
    if isinstance(atom, str):
        return not atom.startswith("u")
    name, a, b = atom
    if name == "mod":
        return known_nonnegative(b)
    if name == "max":
        return known_nonnegative(a) or known_nonnegative(b)
    return known_nonnegative(a) and known_nonnegative(b)


def known_positive(a: Int) -> bool:
    return known_nonnegative(a - 1)


def _atom_symbols(atom: Atom) -> set[str]:
    return {atom} if isinstance(atom, str) else free_symbols(atom[1]) | free_symbols(atom[2])


def free_symbols(a: Int) -> set[str]:
    if isinstance(a, int):
        return set()
    return {name for monomial in a.terms for atom in monomial for name in _atom_symbols(atom)}


def substitute(a: Int, values: Mapping[str, Int], ranges: Mapping[str, Int] | None = None) -> Int:
    """`a` with symbols replaced; floordiv and mod are simplified again under `ranges`."""
    if isinstance(a, int):
        return a
    total: Int = 0
    for monomial, coefficient in a.terms.items():
        product: Int = coefficient
        for atom in monomial:
            product = product * _substitute_atom(atom, values, ranges)
        total = total + product
    return total


def _substitute_atom(atom: Atom, values: Mapping[str, Int], ranges: Mapping[str, Int] | None) -> Int:
    if isinstance(atom, str):
        return values[atom] if atom in values else symbol(atom)
    name, x, y = atom
    a, b = substitute(x, values, ranges), substitute(y, values, ranges)
    if name == "floordiv":
        return floordiv(a, b, ranges)
    if name == "mod":
        return mod(a, b, ranges)
    return maximum(a, b) if name == "max" else minimum(a, b)


def without_mods(a: Int) -> Int:
    """`a` with each x % y written as x - y*(x//y): 8*(d0//8) + d0 % 8 is d0 then."""
    if isinstance(a, int):
        return a
    total: Int = 0
    for monomial, coefficient in a.terms.items():
        product: Int = coefficient
        for atom in monomial:
            if isinstance(atom, str) or atom[0] != "mod":
                product = product * Expr({(atom,): 1})
            else:
                _, x, y = atom
                product = product * (x - y * _call("floordiv", x, y))
        total = total + product
    return total


def evaluate(a: Int, values: Mapping[str, int]) -> int:
    """The value of `a`; every free symbol must be in `values`."""
    result = substitute(a, values)
    if not isinstance(result, int):
        raise KeyError(f"no value for {', '.join(sorted(free_symbols(result)))} in {a}")
    return result


def sign(a: Int) -> Int:
    """1 where a > 0, -1 where a < 0, 0 for 0."""
    return maximum(minimum(a, 1), -1)


def with_positive_divisor(atom: tuple[str, Int, Int]) -> tuple[str, Int, Int]:
    """A quotient or remainder by a number of either sign as one by a number above 0; of a remainder, that is to be multiplied
    by the divisor's sign. By 0 it is something that can be computed, and has no meaning."""
    name, a, b = atom
    if name not in ("floordiv", "mod") or known_nonnegative(b):
        return atom
    return name, a * sign(b), maximum(maximum(b, b * -1), 1)


class IndexEmitter(Protocol):
    """What `emit` writes an expression with: code for the host program or a kernel. Values are the emitter's own."""

    def constant(self, value: int) -> Any: ...
    def symbol(self, name: str) -> Any: ...
    def add(self, a: Any, b: Any, /) -> Any: ...
    def mul(self, a: Any, b: Any, /) -> Any: ...
    def floordiv(self, a: Any, b: Any, /) -> Any: ...
    def mod(self, a: Any, b: Any, /) -> Any: ...
    def max(self, a: Any, b: Any, /) -> Any: ...
    def min(self, a: Any, b: Any, /) -> Any: ...


def emit(a: Int, emitter: IndexEmitter) -> Any:
    """Write code that computes `a`. The emitter's floordiv and mod are Python's for divisors above 0, and need no others."""
    if isinstance(a, int):
        return emitter.constant(a)
    total = None
    for monomial, coefficient in a.terms.items():
        product = None
        for atom in monomial:
            if isinstance(atom, str):
                value = emitter.symbol(atom)
            else:
                name, x, y = with_positive_divisor(atom)
                value = getattr(emitter, name)(emit(x, emitter), emit(y, emitter))
                if atom[0] == "mod" and y != atom[2]:
                    value = emitter.mul(value, emit(sign(atom[2]), emitter))
            product = value if product is None else emitter.mul(product, value)
        if product is None:
            product = emitter.constant(coefficient)
        elif coefficient != 1:
            product = emitter.mul(product, emitter.constant(coefficient))
        total = product if total is None else emitter.add(total, product)
    return total


def product(values: Iterable[Int]) -> Int:
    total: Int = 1
    for value in values:
        total = total * value
    return total


def _print_atom(atom: Atom) -> str:
    if isinstance(atom, str):
        return atom
    name, a, b = atom
    if name in ("max", "min"):
        return f"{name}({a}, {b})"
    left, right = (str(x) if isinstance(x, int) or _is_name(x) else f"({x})" for x in (a, b))
    return f"{left}//{right}" if name == "floordiv" else f"{left} % {right}"


def _is_name(a: Int) -> bool:
    return isinstance(a, Expr) and str(a).isidentifier()


def _print(expr: Expr) -> str:
    parts = []
    for monomial, coefficient in expr.terms.items():
        factors = [a if isinstance(a, str) else f"({_print_atom(a)})" for a in monomial]
        if not factors:
            text = str(abs(coefficient))
        else:
            text = "*".join([str(abs(coefficient))] * (abs(coefficient) != 1) + factors)
        sign = "-" if coefficient < 0 else "+"
        parts.append(f" {sign} {text}" if parts else ("-" + text if sign == "-" else text))
    text = "".join(parts)
    if len(expr.terms) == 1 and text.startswith("(") and text.count("(") == 1 and text.endswith(")"):
        return text[1:-1]
    return text


@lru_cache(maxsize=65536)
def parse(text: str) -> Int:
    """Read an expression back; nothing in the text is executed. Raises ValueError on anything but + - * // % max min."""
    try:
        return _read(ast.parse(_short(text).strip(), mode="eval").body)
    except (SyntaxError, TypeError, KeyError, RecursionError, MemoryError, ZeroDivisionError) as error:
        raise ValueError(f"'{text[:80]}' is not a size expression (names, integers, + - * // %, max, min)") from error


@lru_cache(maxsize=65536)
def parse_list(text: str) -> tuple[Int, ...]:
    """'s0, 128' as (s0, 128); the empty text as ()."""
    if not text.strip():
        return ()
    try:
        node = ast.parse(f"({_short(text)},)", mode="eval").body
        assert isinstance(node, ast.Tuple)
        return tuple(map(_read, node.elts))
    except (SyntaxError, TypeError, KeyError, AssertionError, RecursionError, MemoryError, ZeroDivisionError) as error:
        raise ValueError(f"'{text[:80]}' is not a list of size expressions") from error


LONGEST = 20_000  # characters of an expression
MOST_TERMS = 2_000  # of a product


def _short(text: str) -> str:
    if len(text) > LONGEST:
        raise TypeError(f"{len(text)} characters")
    return text


def _times(a: Int, b: Int) -> Int:
    if isinstance(a, Expr) and isinstance(b, Expr) and len(a.terms) * len(b.terms) > MOST_TERMS:
        raise TypeError(f"a product of {len(a.terms)} and {len(b.terms)} terms")
    return a * b


def parse_numbers(text: str) -> tuple[int, ...]:
    """'0, 2' as (0, 2). Raises ValueError for a symbol."""
    values = parse_list(text)
    numbers = tuple(n for n in values if isinstance(n, int))
    if len(numbers) != len(values):
        raise ValueError(f"'{text}' is not a list of integers")
    return numbers


def print_list(values: Iterable[Int]) -> str:
    return ", ".join(map(str, values))


_BINARY: dict[type, Callable[[Int, Int], Int]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: _times,
    ast.FloorDiv: floordiv,
    ast.Mod: mod,
}


def _read(node: ast.AST) -> Int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return symbol(node.id)
    if isinstance(node, ast.BinOp):
        return _BINARY[type(node.op)](_read(node.left), _read(node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _read(node.operand) * -1
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 2 and not node.keywords:
        return {"max": maximum, "min": minimum}[node.func.id](_read(node.args[0]), _read(node.args[1]))
    raise TypeError(ast.dump(node))

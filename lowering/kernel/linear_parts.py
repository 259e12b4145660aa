"""Index maps that are linear in each of a few parts of an axis: those of pads, of what stops at an edge, and of rolls.

before:  for d in 0..58:  read(x, max(d - 1, 0))
after:   for d in 0..1:   read(x, 0)
         for d in 1..58:  read(x, d - 1)

A cut is where the larger of two expressions changes, or a quotient. It may be a symbol's: what is decided in a part follows from its first index, or
from its end, whichever of them a size moves.
"""

from collections.abc import Sequence

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Expr, Int
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.kernel.nodes import Access, Linear, is_dim, linear_form, monomial_of, terms

MOST = 5  # parts: each is a loop of its own in the text


@dataclass(frozen=True)
class Part:
    """The indices lo <= d < hi of an axis, and what each expression is there."""

    lo: Int
    hi: Int
    values: tuple[Int, ...]


def parts(values: Sequence[Int], name: str, size: Int) -> list[Part]:
    """Parts of the axis `name` of this size, first to last, in which no `max` or `min` with a linear difference is left, nor a quotient by a
    number. Empty where one part is enough, or `MOST` are not."""
    left: list[tuple[tuple[Int, ...], Int]] = [((0,), size)]
    found = []
    while left:
        starts, hi = left.pop()
        inside = _Inside(name, starts, hi)
        simpler = tuple(map(inside.simplified, values))
        if inside.cut is None:
            found.append(Part(starts[-1], hi, simpler))
        else:
            left += [((*starts, inside.cut), hi), (starts, inside.cut)]
        if len(left) + len(found) > MOST:
            return []
    return found if len(found) > 1 else []


def access_parts(access: Access, name: str, size: Int) -> list[Part]:
    """The parts of an axis in which a read's address has fewer terms that are not linear."""
    return parts([access.address.rest], name, size) if name in symbols.free_symbols(access.address.rest) else []


def is_read_in_runs(access: Access, name: str, size: Int) -> bool:
    """Whether the read is linear in each part of an axis, and one element or neighbouring ones in the longest."""
    found = access_parts(access, name, size)
    if not found or any(name in node.dims for node in access.scalars):
        return False
    linears = [linear(access, part.values[0]) for part in found]
    lengths = [part.hi - part.lo for part in found]
    if any(name in symbols.free_symbols(x.rest) for x in linears):
        return False
    known = [length if isinstance(length, int) else None for length in lengths]
    longest = known.index(None) if None in known else max(range(len(known)), key=lambda k: known[k] or 0)
    return linears[longest].strides.get(name, 0) in (0, 1)


def linear(access: Access, rest: Int) -> Linear:
    """The address of a read whose terms that are not linear come to `rest`."""
    total = rest
    for dim, stride in access.address.strides.items():
        total = total + symbols.symbol(dim) * stride
    return linear_form(total, frozenset(filter(is_dim, symbols.free_symbols(total))))


def read_with(access: Access, rest: Int) -> Access:
    """The read, its terms that are not linear having come to `rest`."""
    address = linear(access, rest)
    return Access(access.operand, access.dtype, address, access.scalars, access.mask, access.contiguous_lanes)


class _Inside:
    """Simplifies expressions for d from each of `starts` on and below `hi`; `cut` is an index that would decide the first one that is not
    decided.

    A loop over parts of which some are empty, or end before they start, never goes back: in a part the index is past all earlier ends.
    It is not below later ones.
    """

    def __init__(self, name: str, starts: Sequence[Int], hi: Int):
        self.name, self.starts, self.hi = name, starts, hi
        self.cut: Int | None = None

    def simplified(self, value: Int) -> Int:
        total: Int = 0
        for monomial, coefficient in terms(value):
            product: Int = coefficient
            for atom in monomial:
                product = product * self.atom(atom)
            total = total + product
        return total

    def atom(self, atom: symbols.Atom) -> Int:
        if isinstance(atom, str):
            return symbols.symbol(atom)
        if self.name not in symbols.free_symbols(Expr({(atom,): 1})):
            return Expr({(atom,): 1})
        kind, x, y = atom
        a, b = self.simplified(x), self.simplified(y)
        if kind in ("floordiv", "mod"):
            quotient = self.quotient(a, b)
            if quotient is not None:
                return quotient if kind == "floordiv" else a - b * quotient
            return symbols.floordiv(a, b) if kind == "floordiv" else symbols.mod(a, b)
        larger = self.is_larger(a, b)
        if larger is None:
            return symbols.maximum(a, b) if kind == "max" else symbols.minimum(a, b)
        return a if larger == (kind == "max") else b

    def is_larger(self, a: Int, b: Int) -> bool | None:
        """Whether a >= b, or a <= b, in the whole part; None, and perhaps a cut, where neither is known."""
        step, rest = self.in_steps(a - b)
        if step is None or step == 0:
            return None
        firsts, last = [rest + start * step for start in self.starts], rest + (self.hi - 1) * step
        lowest, highest = (firsts, [last]) if step > 0 else ([last], firsts)
        if any(map(symbols.known_nonnegative, lowest)):
            return True
        if any(symbols.known_nonnegative(x * -1) for x in highest):
            return False
        if self.cut is None and all(c % step == 0 for _, c in terms(rest)):
            zero = symbols.floordiv(rest, step) * -1  # the index at which they are equal
            self.cut = zero if step > 0 else zero + 1
        elif self.cut is None and isinstance(rest, int):
            self.cut = -(rest // step) if step > 0 else rest // -step + 1
        return None

    def quotient(self, a: Int, b: Int) -> Int | None:
        """a // b, where it is the same in the whole part; None, and perhaps a cut, where it is not."""
        step, rest = self.in_steps(a)
        if step is None or step == 0 or not isinstance(rest, int) or not isinstance(b, int) or b <= 0:
            return None
        lo, hi = self.starts[-1], self.hi
        if not isinstance(lo, int) or not isinstance(hi, int):
            return None
        first, last = (rest + lo * step) // b, (rest + (hi - 1) * step) // b
        if first == last:
            return first
        if self.cut is None:  # where the quotient becomes first + 1 or, going down, less than `first`
            self.cut = -((rest - (first + 1) * b) // step) if step > 0 else (rest - first * b) // -step + 1
        return None

    def in_steps(self, value: Int) -> tuple[int | None, Int]:
        """(step, rest) with value == step*d + rest; step is None where the value is not linear in d."""
        step: int = 0
        rest: Int = 0
        for monomial, coefficient in terms(value):
            if monomial == (self.name,):
                step = coefficient
            elif self.name in symbols.free_symbols(term := monomial_of(monomial, coefficient)):
                return None, 0
            else:
                rest = rest + term
        return step, rest

"""Index maps between iteration spaces: composing them, solving them for the dimensions, are all points reached once.

A *space* is a tuple of sizes: dimension `dk` runs over `space[k]`. A *map* is a tuple of expressions in the dimensions
of a space. A *substitution* is a tuple too: its k-th entry is what replaces `dk` (None where that is not known).
All are hashable, and layers of a model repeat them: what is costly here is cached.
"""

from functools import lru_cache

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Expr, Int

Map = tuple[Int, ...]
Space = tuple[Int, ...]


@lru_cache(maxsize=65536)
def dimension(k: int) -> Expr:
    return symbols.symbol(f"d{k}")


def is_dimension(atom: object) -> bool:
    return isinstance(atom, str) and atom[0] == "d" and atom[1:].isdigit()


@lru_cache(maxsize=65536)
def dims_in(map_: Map) -> frozenset[int]:
    """The numbers of the dimensions that a map names."""
    names = set().union(*map(symbols.free_symbols, map_)) if map_ else set()
    return frozenset(int(name[1:]) for name in names if is_dimension(name))


@lru_cache(maxsize=65536)
def is_gathered(map_: Map) -> bool:
    """Whether a map depends on index values that a kernel reads (i0, i1, ...)."""
    return any(name[0] == "i" and name[1:].isdigit() for expr in map_ for name in symbols.free_symbols(expr))


@lru_cache(maxsize=65536)
def is_affine(map_: Map) -> bool:
    """Whether a map has no division, maximum or minimum."""
    terms = [term for expr in map_ if isinstance(expr, Expr) for term in expr.terms]
    return all(isinstance(atom, str) for term in terms for atom in term)


@lru_cache(maxsize=65536)
def identity(rank: int) -> Map:
    return tuple(map(dimension, range(rank)))


@lru_cache(maxsize=65536)
def substitute(map_: Map, values: Map, space: Space) -> Map:
    """`map_` with `dk` replaced by `values[k]`, an expression in the dimensions of `space`, and simplified in it."""
    named = {f"d{k}": value for k, value in enumerate(values) if value is not None}
    ranges = {f"d{k}": size for k, size in enumerate(space)}
    return tuple(symbols.substitute(expr, named, ranges) for expr in map_)


@lru_cache(maxsize=65536)
def without_unit_dims(map_: Map, space: Space) -> Map:
    """`map_` with 0 for each dimension of size 1, so that equal maps are spelled alike."""
    if 1 not in space:
        return map_
    return substitute(map_, tuple(0 if n == 1 else dimension(k) for k, n in enumerate(space)), space)


@lru_cache(maxsize=65536)
def chain(expr: Int, space: Space) -> tuple[int, ...] | None:
    """The dimensions that `expr` counts through row-major, outermost first: d0*S + d1 is (0, 1) where d1 runs over S.

    () for 0, and None for any other form. Such an expression takes each value below the product of the sizes once.
    """
    if isinstance(expr, int):
        return () if expr == 0 else None
    strides: dict[int, Int] = {}
    for monomial, coefficient in expr.terms.items():
        named = [k for k, atom in enumerate(monomial) if is_dimension(atom)]
        if len(named) != 1:
            return None
        dim = int(str(monomial[named[0]])[1:])
        rest = monomial[: named[0]] + monomial[named[0] + 1 :]
        if rest and dims_in((Expr({rest: 1}),)):
            return None
        strides[dim] = strides.get(dim, 0) + (Expr({rest: coefficient}) if rest else coefficient)
    found: list[int] = []
    running: Int = 1
    while strides:
        dim = next((d for d, stride in strides.items() if stride == running), None)
        if dim is None or dim >= len(space):
            return None
        del strides[dim]
        found.insert(0, dim)
        running = running * space[dim]
    return tuple(found)


def count_through(dims: tuple[int, ...], space: Space) -> Int:
    """The expression that counts through `dims` row-major: the inverse of `chain`."""
    total: Int = 0
    for dim in dims:
        total = total * space[dim] + dimension(dim)
    return total


@lru_cache(maxsize=65536)
def solve(map_: Map, space: Space, index: Map, index_space: Space) -> tuple[Int | None, ...] | None:
    """The dimensions of `space` at the point where `map_` evaluates to `index` (a map over `index_space`).

    None where the map cannot be solved; an entry is None where the map does not name that dimension.
    Example: the map (d0, d1*4 + d2) at (d1, d0) gives (d1, d0//4, d0 % 4).
    """
    ranges = {f"d{k}": size for k, size in enumerate(index_space)}
    solved: list[Int | None] = [0 if n == 1 else None for n in space]
    for expr, at in zip(without_unit_dims(map_, space), index, strict=True):
        dims = chain(expr, space)
        if dims is None:
            return None
        running: Int = 1
        for dim in reversed(dims):
            value = symbols.floordiv(at, running, ranges)
            solved[dim] = value if dim == dims[0] else symbols.mod(value, space[dim], ranges)
            running = running * space[dim]
    return tuple(solved)


@lru_cache(maxsize=65536)
def reaches_once(values: Map, space: Space, over: Space, dims: frozenset[int]) -> bool:
    """Whether `values`, a map over the dimensions `dims` of `over`, reaches each point of `space` exactly once."""
    used: list[int] = []
    for value, size in zip(values, space, strict=True):
        counted = chain(value, over)
        if counted is None or symbols.product(over[d] for d in counted) != size:
            return False
        used += counted
    return sorted(used) == sorted(d for d in dims if over[d] != 1)


def pair_up(left: list[tuple[int, Int]], right: list[tuple[int, Int]]) -> list[tuple[list[int], list[int]]] | None:
    """Two lists of (dimension, size) cut into groups of equal product, in order: one dimension against one or several.

    None where there is no such cut. Example: sizes 8, 3, 4 against 8, 12 give ([8], [8]), ([3, 4], [12]).
    """
    groups = []
    i = j = 0
    while i < len(left) and j < len(right):
        one_left, one_right = left[i][1], right[j][1]
        ends = _until(left, i, one_right), _until(right, j, one_left)
        if ends[0] is not None:
            groups.append(([d for d, _ in left[i : ends[0]]], [right[j][0]]))
            i, j = ends[0], j + 1
        elif ends[1] is not None:
            groups.append(([left[i][0]], [d for d, _ in right[j : ends[1]]]))
            i, j = i + 1, ends[1]
        else:
            return None
    return groups if i == len(left) and j == len(right) else None


def _until(sizes: list[tuple[int, Int]], start: int, wanted: Int) -> int | None:
    running: Int = 1
    for end in range(start, len(sizes)):
        running = running * sizes[end][1]
        if running == wanted:
            return end + 1
    return None

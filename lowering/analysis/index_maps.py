"""Index maps between iteration spaces: compose, invert (delinearize), test for a bijection, and reassociate dimensions.

A *space* is a tuple of sizes: dimension `dk` runs over `space[k]`. A *map* is a tuple of expressions in the dimensions
of a space. A *substitution* is a tuple too: entry k replaces `dk`; None leaves `dk` as it is (`substitute`), or is unknown (`invert`).
All are hashable tuples, and layers of a model repeat them: results are cached.
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
    """The dimensions that a map uses, by number."""
    names = set().union(*map(symbols.free_symbols, map_)) if map_ else set()
    return frozenset(int(name[1:]) for name in names if is_dimension(name))


@lru_cache(maxsize=65536)
def is_indirect(map_: Map) -> bool:
    """Whether a map uses indices loaded from memory (i0, i1, ...), as a gather does."""
    return any(name[0] == "i" and name[1:].isdigit() for expr in map_ for name in symbols.free_symbols(expr))


@lru_cache(maxsize=65536)
def is_polynomial(map_: Map) -> bool:
    """Whether no entry of a map has a division, a remainder, a maximum or a minimum."""
    monomials = [monomial for expr in map_ if isinstance(expr, Expr) for monomial in expr.terms]
    return all(isinstance(atom, str) for monomial in monomials for atom in monomial)


@lru_cache(maxsize=65536)
def identity(rank: int) -> Map:
    return tuple(map(dimension, range(rank)))


@lru_cache(maxsize=65536)
def substitute(map_: Map, values: Map, space: Space) -> Map:
    """`map_` with `dk` replaced by `values[k]`, an expression in the dimensions of `space`, and simplified in it."""
    replaced = {f"d{k}": value for k, value in enumerate(values) if value is not None}
    ranges = {f"d{k}": size for k, size in enumerate(space)}
    return tuple(symbols.substitute(expr, replaced, ranges) for expr in map_)


@lru_cache(maxsize=65536)
def without_unit_dims(map_: Map, space: Space) -> Map:
    """`map_` with 0 for each dimension of size 1, so that equal maps are spelled alike."""
    if 1 not in space:
        return map_
    return substitute(map_, tuple(0 if n == 1 else dimension(k) for k, n in enumerate(space)), space)


@lru_cache(maxsize=65536)
def linearized_dims(expr: Int, space: Space) -> tuple[int, ...] | None:
    """The dimensions of which `expr` is the row-major linear index, outermost first: d0*S + d1 is (0, 1) where d1 has size S.

    () for 0; None for any other form. Such an expression is a bijection onto [0, product of the sizes).
    """
    if isinstance(expr, int):
        return () if expr == 0 else None
    strides: dict[int, Int] = {}
    for monomial, coefficient in expr.terms.items():
        positions = [k for k, atom in enumerate(monomial) if is_dimension(atom)]
        if len(positions) != 1:
            return None
        dim = int(str(monomial[positions[0]])[1:])
        others = monomial[: positions[0]] + monomial[positions[0] + 1 :]
        if others and dims_in((Expr({others: 1}),)):
            return None
        strides[dim] = strides.get(dim, 0) + (Expr({others: coefficient}) if others else coefficient)
    found: list[int] = []
    stride: Int = 1
    while strides:
        dim = next((d for d, known in strides.items() if known == stride), None)
        if dim is None or dim >= len(space):
            return None
        del strides[dim]
        found.insert(0, dim)
        stride = stride * space[dim]
    return tuple(found)


def linearize(dims: tuple[int, ...], space: Space) -> Int:
    """The row-major linear index of `dims`: the inverse of `linearized_dims`."""
    total: Int = 0
    for dim in dims:
        total = total * space[dim] + dimension(dim)
    return total


@lru_cache(maxsize=65536)
def invert(map_: Map, space: Space, index: Map, index_space: Space) -> tuple[Int | None, ...] | None:
    """The point of `space` at which `map_` equals `index`, by delinearization. `index` and the results are over `index_space`.

    None if an entry of `map_` is not a linearized index; an entry is None if `map_` does not use that dimension. Where two entries
    use one dimension, the last one says what it is: whether they agree is not checked.
    Example: the map (d0, d1*4 + d2) at (d1, d0) gives (d1, d0//4, d0 % 4).
    """
    ranges = {f"d{k}": size for k, size in enumerate(index_space)}
    solved: list[Int | None] = [0 if n == 1 else None for n in space]
    for expr, at in zip(without_unit_dims(map_, space), index, strict=True):
        dims = linearized_dims(expr, space)
        if dims is None:
            return None
        running: Int = 1
        for dim in reversed(dims):
            value = symbols.floordiv(at, running, ranges)
            # the outermost dimension needs no remainder
            solved[dim] = value if dim == dims[0] else symbols.mod(value, space[dim], ranges)
            running = running * space[dim]
    return tuple(solved)


@lru_cache(maxsize=65536)
def is_bijection(values: Map, codomain: Space, domain: Space, dims: frozenset[int]) -> bool:
    """Whether `values`, as a function of the dimensions `dims` of `domain`, is a bijection onto `codomain`."""
    used: list[int] = []
    for value, size in zip(values, codomain, strict=True):
        counted = linearized_dims(value, domain)
        if counted is None or symbols.product(domain[d] for d in counted) != size:
            return False
        used += counted
    return sorted(used) == sorted(d for d in dims if domain[d] != 1)


def reassociate(left: list[tuple[int, Int]], right: list[tuple[int, Int]]) -> list[tuple[list[int], list[int]]] | None:
    """Groups two lists of (dimension, size), in order, so that the sizes of both sides of a group have equal products.

    One side of each group is a single dimension: the reassociation of MLIR's expand_shape and collapse_shape. None if there is none.
    Example: sizes 8, 3, 4 against 8, 12 give ([8], [8]), ([3, 4], [12]).
    """
    groups = []
    i = j = 0
    while i < len(left) and j < len(right):
        left_end, right_end = _end_of_product(left, i, right[j][1]), _end_of_product(right, j, left[i][1])
        if left_end is not None:
            groups.append(([d for d, _ in left[i:left_end]], [right[j][0]]))
            i, j = left_end, j + 1
        elif right_end is not None:
            groups.append(([left[i][0]], [d for d, _ in right[j:right_end]]))
            i, j = i + 1, right_end
        else:
            return None
    return groups if i == len(left) and j == len(right) else None


def _end_of_product(sizes: list[tuple[int, Int]], start: int, wanted: Int) -> int | None:
    running: Int = 1
    for end in range(start, len(sizes)):
        running = running * sizes[end][1]
        if running == wanted:
            return end + 1
    return None

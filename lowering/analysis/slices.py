"""Slices: evenly spaced parts of a tensor, a span of indices in each dimension; and the slice of an operand that a reader needs."""

from functools import lru_cache

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Atom, Expr, Int
from mlirc.dialects.core.tensor_info import contiguous
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.analysis.index_maps import Map, dimension, dims_in, identity, substitute
from mlirc.lowering.kernel.nodes import linear_form
from mlirc.lowering.kernel.typical_sizes import typical


@dataclass(frozen=True)
class Span:
    """The indices first, first + step, ... of a dimension, `count` of them."""

    first: Int
    step: Int
    count: Int


Slice = tuple[Span, ...]


def whole(shape: tuple[Int, ...]) -> Slice:
    return tuple(Span(0, 1, n) for n in shape)


def sizes(slice_: Slice) -> tuple[Int, ...]:
    return tuple(span.count for span in slice_)


def hull(slices: list[Slice], shape: tuple[Int, ...]) -> Slice:
    """A slice that holds all of these: where they differ, the whole dimension."""
    first, *others = slices
    return tuple(
        span if all(slice_[d] == span for slice_ in others) else Span(0, 1, n)
        for d, (span, n) in enumerate(zip(first, shape, strict=True))
    )


def is_small(slice_: Slice, shape: tuple[Int, ...]) -> bool:
    """Whether the slice is worth computing alone: it has elements, and at most half of the tensor's."""
    have, all_ = typical(symbols.product(sizes(slice_))), typical(symbols.product(shape))
    return 0 < 2 * have <= all_


def broadcast(slice_: Slice, shape: tuple[Int, ...]) -> Slice:
    """What an operand of this shape, which broadcasts, gives to the slice of the result."""
    return tuple(
        Span(0, 1, 1) if n == 1 else span for span, n in zip(slice_[len(slice_) - len(shape) :], shape, strict=True)
    )


@lru_cache(maxsize=65536)
def read_by_view(map_: Map, slice_: Slice, shape: tuple[Int, ...]) -> Slice:
    """What a view with this map reads, for a slice of its elements, of a tensor of this shape."""
    indices = _indices(map_, slice_)
    return tuple(_span(index, sizes(slice_), n) for index, n in zip(indices, shape, strict=True))


@lru_cache(maxsize=65536)
def view_of_slice(
    map_: Map, slice_: Slice, within: Slice, shape: tuple[Int, ...]
) -> tuple[Map, tuple[Int, ...], Int] | None:
    """The slice of a view's elements as a view of a row-major tensor that holds the slice `within` of the operand, whose shape is
    `shape`: map, strides and offset. `within` is what read_by_view says, or whole, in each dimension. None where no strides
    say where the elements are."""
    indices, counts = list(_indices(map_, slice_)), sizes(slice_)
    for d, span in enumerate(within):
        if span != Span(0, 1, shape[d]):
            named = list(dims_in((indices[d],)))
            indices[d] = dimension(named[0]) if named and span.count != 1 else 0
    address: Int = 0
    for index, step in zip(indices, contiguous(sizes(within)), strict=True):
        address = address + index * step
    ranges = {f"d{k}": n for k, n in enumerate(counts)}
    linear = linear_form(symbols.substitute(joined(address), {}, ranges), frozenset(ranges))
    if dims_in((linear.rest,)):
        return None
    strides = tuple(linear.strides.get(f"d{k}", 0) for k in range(len(counts)))
    return tuple(indices), strides, linear.rest


def part(stride: tuple[Int, ...], slice_: Slice) -> tuple[Map, tuple[Int, ...], Int]:
    """A slice of a tensor with these strides as a view of it: map, strides and offset."""
    map_ = tuple(span.step * d + span.first for span, d in zip(slice_, identity(len(slice_)), strict=True))
    strides = tuple(span.step * s for span, s in zip(slice_, stride, strict=True))
    offset: Int = 0
    for span, s in zip(slice_, stride, strict=True):
        offset = offset + span.first * s
    return map_, strides, offset


def joined(value: Int) -> Int:
    """c * (a % n) + c * n * (a // n) as c * a: what a view that takes a dimension apart leaves of an address."""
    if isinstance(value, int):
        return value
    for monomial, c in value.terms.items():
        if len(monomial) != 1 or isinstance(monomial[0], str) or monomial[0][0] != "mod":
            continue
        (_, a, n), lies = monomial[0], value - Expr({monomial: c})
        quotient: tuple[Atom, ...] = (("floordiv", a, n),)
        if isinstance(n, int) and isinstance(lies, Expr) and lies.terms.get(quotient) == c * n:
            return joined(lies - Expr({quotient: c * n}) + c * a)
    return value


def _indices(map_: Map, slice_: Slice) -> Map:
    """The operand's indices for those of the slice: dimension dk counts through its k-th span."""
    at = tuple(
        span.first if span.count == 1 else span.step * dimension(k) + span.first for k, span in enumerate(slice_)
    )
    return substitute(map_, at, sizes(slice_))


def _span(index: Int, counts: tuple[Int, ...], size: Int) -> Span:
    """The span that an index takes, if it is one; else the whole dimension."""
    named = dims_in((index,))
    if not named:
        return Span(index, 1, 1)
    if len(named) > 1:
        return Span(0, 1, size)
    (k,) = named
    linear = linear_form(index, frozenset((f"d{k}",)))
    step = linear.strides.get(f"d{k}", 0)
    if dims_in((linear.rest,)) or (isinstance(step, int) and step <= 0):
        return Span(0, 1, size)
    return Span(linear.rest, step, counts[k])

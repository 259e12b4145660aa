"""Aligns two kernels to one iteration space, so that reductions over the same rows can be one kernel.

producer    parallel = "256"     inner = "768"     its result is read by the consumer at "d0*32 + d1"
consumer    parallel = "8, 32, 768"
aligned     parallel = "8, 32"   inner = "768"     the producer's d0 becomes d0*32 + d1, its d1 d2; the consumer's stay
"""

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.analysis.index_maps import Map, Space, dimension, dims_in, linearize, linearized_dims, reassociate
from mlirc.lowering.fusion.body import Body


@dataclass(frozen=True)
class Alignment:
    """The space, and what the dimensions of each kernel are in it."""

    parallel: Space
    inner: Space
    producer: Map
    consumer: Map


def align(producer: Body, consumer: Body, solution: tuple[Int | None, ...], alike: dict[int, int]) -> Alignment | None:
    """One iteration space for both kernels, or None. `solution` gives the producer's dimensions at each point of the consumer's space.

    It may leave out inner dimensions (None): they pair up with dimensions of the consumer that nothing else explains,
    by `alike` (consumer's -> producer's, a guess from tensors that both read) or else by size and order.
    """
    space, other = producer.space, consumer.space
    parts: dict[int, list[int]] = {}  # the producer's dimension -> the consumer's that count through it
    wholes: dict[int, list[int]] = {}  # the consumer's dimension -> the producer's that count through it
    open_dims = []
    for dim, value in enumerate(solution):
        if space[dim] == 1:
            continue
        if value is None:
            open_dims.append(dim)
            continue
        counted = linearized_dims(value, other)
        if counted:
            parts[dim] = list(counted)
        else:
            used = dims_in((value,))
            if len(used) != 1:
                return None
            wholes.setdefault(next(iter(used)), []).append(dim)
    explained = {c for found in parts.values() for c in found} | set(wholes)
    rest = [c for c in range(len(other)) if c not in explained and other[c] != 1]
    if rest and not _pair_rest(rest, open_dims, space, other, alike, parts, wholes):
        return None
    return _common_space(producer, consumer, parts, wholes)


def _pair_rest(
    rest: list[int],
    open_dims: list[int],
    space: Space,
    other: Space,
    alike: dict[int, int],
    parts: dict[int, list[int]],
    wholes: dict[int, list[int]],
) -> bool:
    """Pairs the consumer's dimensions `rest` with the producer's `open_dims`; False where they do not match."""
    for c in list(rest):
        dim = alike.get(c)
        if dim in open_dims and space[dim] == other[c]:
            parts[dim] = [c]
            open_dims.remove(dim)
            rest.remove(c)
    groups = reassociate([(c, other[c]) for c in rest], [(d, space[d]) for d in open_dims])
    if groups is None:
        return False
    for theirs, ours in groups:
        if len(ours) == 1:
            parts[ours[0]] = theirs
        else:
            wholes[theirs[0]] = ours
    return True


def _common_space(
    producer: Body, consumer: Body, parts: dict[int, list[int]], wholes: dict[int, list[int]]
) -> Alignment | None:
    space, other = producer.space, consumer.space
    inner = _inner_dims(producer, consumer, parts, wholes)
    if inner is None:
        return None
    sizes: list[Int] = []
    places: dict[int, tuple[int, ...]] = {}  # the producer's dimension -> its dimensions in the common space
    of_consumer: list[Int | None] = [0 if n == 1 else None for n in other]
    parallel_rank = 0
    for dim in sorted(range(len(space)), key=lambda d: d in inner):
        found = parts.get(dim, [])
        if found and symbols.product(other[c] for c in found) != space[dim]:
            return None
        places[dim] = tuple(range(len(sizes), len(sizes) + max(len(found), 1)))
        sizes += [other[c] for c in found] or [space[dim]]
        for c, place in zip(found, places[dim], strict=False):
            if of_consumer[c] is not None:
                return None
            of_consumer[c] = dimension(place)
        if dim not in inner:
            parallel_rank = len(sizes)
    common = tuple(sizes)
    for c, dims in wholes.items():
        if of_consumer[c] is not None or symbols.product(space[d] for d in dims) != other[c]:
            return None
        of_consumer[c] = linearize(tuple(p for d in dims for p in places[d]), common)
    consumer_dims = tuple(value for value in of_consumer if value is not None)
    if len(consumer_dims) != len(other):
        return None
    of_producer = tuple(linearize(places[dim], common) for dim in range(len(space)))
    inner_sizes = common[parallel_rank:] or (1,) * bool(consumer.inner)  # it may fold dimensions of size 1 alone
    found = Alignment(common[:parallel_rank], inner_sizes, of_producer, consumer_dims)
    return found if _levels_agree(found, consumer) else None


def _inner_dims(
    producer: Body, consumer: Body, parts: dict[int, list[int]], wholes: dict[int, list[int]]
) -> set[int] | None:
    """The dimensions of the producer that are inner: its own, or those of the consumer. None: one is both."""
    if producer.inner or not consumer.inner:
        return set(producer.inner_dims)
    inner = {d for c, dims in wholes.items() if c in consumer.inner_dims for d in dims}
    for dim, found in parts.items():
        levels = {c in consumer.inner_dims for c in found}
        if len(levels) > 1:
            return None
        if True in levels:
            inner.add(dim)
    return inner


def _levels_agree(found: Alignment, consumer: Body) -> bool:
    """SAME ROWS: the consumer runs over all parallel points and, if it folds, over the same inner ones;
    if it does not, over all inner points or none."""
    common = found.parallel + found.inner
    rank = len(found.parallel)
    long = {d for d, n in enumerate(common) if n != 1}
    parallel = {d for d in long if d < rank}
    count = len(consumer.parallel)
    rows, columns = dims_in(found.consumer[:count]) & long, dims_in(found.consumer[count:]) & long
    if consumer.inner:
        return rows == parallel and columns == long - parallel
    return rows in (parallel, long)

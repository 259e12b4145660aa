"""Horizontal fusion: merges two kernels that read the same tensor and do not depend on each other."""

from mlirc.lowering.analysis.index_maps import invert, substitute, without_unit_dims
from mlirc.lowering.fusion import cost as cost
from mlirc.lowering.fusion.align import Alignment, align
from mlirc.lowering.fusion.body import Body, BodyNode, Tensor
from mlirc.lowering.fusion.merge import Limits, NotWorthIt, Refused, alike_dims, join_aligned, root_index

WORTH = 8  # a merge must save at least 1/8 of the bytes that the smaller kernel reads and writes


def merge_horizontally(first: Body, second: Body, keep: set[Tensor], limits: Limits) -> Body:
    """One kernel that computes the results of both, and reads each tensor that both read once. Raises Refused.

    SAME READS: in a common space both read a tensor at the same index.
    """
    if first.contraction is not None or second.contraction is not None:
        raise Refused("MATMULS STAY")
    if second.inner and not first.inner:
        first, second = second, first  # the space of the one that folds rules
    theirs: dict[int, list[BodyNode]] = {}
    for read in second.reads:
        theirs.setdefault(id(read.tensor.root), []).append(read)
    for read in sorted(first.reads, key=lambda r: -cost.size_bytes(r.tensor)):
        for other in theirs.get(id(read.tensor.root), ()):
            aligned = _align_reads(first, second, read, other)
            if aligned is None:
                continue
            saved = _bytes_read_twice(first, second, aligned)
            smaller = min(_traffic(first), _traffic(second))
            if limits.costs and saved * WORTH < smaller:
                raise NotWorthIt("WORTH IT", read_twice=saved, least=-(-smaller // WORTH))
            return limits.check(join_aligned(first, second, keep, aligned, {}))
    raise Refused("SAME READS")


def _align_reads(first: Body, second: Body, read: BodyNode, other: BodyNode) -> Alignment | None:
    here, there = root_index(read, first.space), root_index(other, second.space)
    if here is None or there is None:
        return None
    solution = invert(here, first.space, there, second.space)
    if solution is None:
        return None
    aligned = align(first, second, solution, alike_dims(first, second))
    if aligned is None:
        return None
    space = aligned.parallel + aligned.inner
    same = without_unit_dims(substitute(here, aligned.producer, space), space)
    return aligned if same == without_unit_dims(substitute(there, aligned.consumer, space), space) else None


def _bytes_read_twice(first: Body, second: Body, aligned: Alignment) -> int:
    space = aligned.parallel + aligned.inner
    places = set()
    for read in first.reads:
        index = root_index(read, first.space)
        if index is not None and read.mask is None:
            places.add((id(read.tensor.root), substitute(index, aligned.producer, space)))
    saved = {}
    for read in second.reads:
        index = root_index(read, second.space)
        if index is not None and (id(read.tensor.root), substitute(index, aligned.consumer, space)) in places:
            saved[id(read.tensor.root)] = cost.size_bytes(read.tensor)
    return sum(saved.values())


def _traffic(body: Body) -> int:
    nodes = body.reads
    moved = {id(read.tensor): cost.size_bytes(read.tensor) for read in nodes}
    return sum(moved.values()) + cost.total_bytes(r.tensor for r in body.results)

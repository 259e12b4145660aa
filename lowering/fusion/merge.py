"""Merges two kernels: `inline` puts a producer's expression where its result is read, `join` puts both in one space."""

from collections.abc import Callable

import torch

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.graph_builder import constant_text
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import dtype_of, element_type, opmath
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.analysis.index_maps import (
    Map,
    Space,
    dims_in,
    identity,
    invert,
    is_bijection,
    is_indirect,
    is_polynomial,
    linearized_dims,
    substitute,
    without_unit_dims,
)
from mlirc.lowering.fusion import cost as cost
from mlirc.lowering.fusion.align import Alignment, align
from mlirc.lowering.fusion.body import IMPLICIT, Body, BodyNode, NodePool, Result, Tensor
from mlirc.lowering.fusion.matmuls import stays_matmul
from mlirc.lowering.kernel.label import merge_labels

SLACK = 1 + 1 / 64  # numbers of points that differ by a smaller factor count as equal: padding of a large matrix's rows
MANY_READS = 6  # a producer with more reads of one tensor, as of a pool's window, is not recomputed


class Refused(Exception):
    """Two kernels are not merged, by this rule. `numbers` are what it compared."""

    def __init__(self, rule: str, **numbers: int):
        super().__init__(rule)
        self.rule, self.numbers = rule, numbers


class NotWorthIt(Refused):
    """Merging would be legal, and slower by the cost model."""


@dataclass(frozen=True)
class Limits:
    """How large a merged kernel may get: scalar ops, and tensors read. Without `costs` what does not pay is merged too. Without `checks` an
    index need not be checked at a point at which the merged kernel does not compute."""

    ops: int
    reads: int
    costs: bool = True
    checks: bool = True

    def check(self, body: Body) -> Body:
        ops, reads = cost.work(body.nodes), len(body.tensors)
        if self.costs and (ops > self.ops or reads > self.reads):
            raise NotWorthIt("LIMITS", ops=ops, most_ops=self.ops, reads=reads, most_reads=self.reads)
        return body


@dataclass(eq=False, slots=True)
class ReadSite:
    """A read in the consumer of a producer's result: `index` is the result's index there.

    solution   the producer's point that makes what is read there, over the consumer's space (`invert`)
    """

    read: BodyNode
    result: Result
    index: Map
    solution: tuple[Int | None, ...] | None


def sites(producer: Body, consumer: Body) -> list[ReadSite]:
    """Where the consumer reads the producer. Raises Refused where an index is not known."""
    found = []
    results = {id(r.tensor): r for r in producer.results}
    for read in consumer.reads:
        result = results.get(id(read.tensor.root))
        if result is None:
            continue
        index = root_index(read, consumer.space)
        if index is None:
            raise Refused("VIEW WITHOUT MAP")
        if is_indirect(read.map):  # a view's index need not have it
            raise Refused("GATHERED")  # how often an element is asked for is not known
        solution = invert(result.map, producer.space, index, consumer.space)
        found.append(ReadSite(read, result, index, solution))
    return found


def root_index(read: BodyNode, space: Space) -> Map | None:
    """The index into the root of what is read."""
    tensor = read.tensor
    if tensor.view is None:
        return without_unit_dims(read.map, space)
    if tensor.to_root is None:
        return None
    return without_unit_dims(substitute(tensor.to_root, read.map, space), space)


# ---- a producer without reductions, into any consumer


def inline(
    producer: Body, consumer: Body, keep: set[Tensor], limits: Limits, found: list[ReadSite] | None = None
) -> Body:
    """The consumer with the producer's expressions in place of reads of its results. `keep`: results to write
    all the same; `found`: its sites, where they are known.

    ONE SPACE: for each point of the consumer there is one point of the producer. Raises Refused.
    """
    found = sites(producer, consumer) if found is None else found
    solutions: dict[BodyNode, Map] = {}
    for site in found:
        known = tuple([value for value in site.solution or () if value is not None])
        if len(known) != len(producer.space):
            raise Refused("ONE SPACE")
        solutions[site.read] = known
    _allow_evaluation(producer, consumer, found, solutions, limits)
    kept = [r for r in producer.results if r.tensor in keep]
    once = _written_once(producer, consumer, [solutions[s.read] for s in found if s.read.mask is None]) if kept else ()
    pool = NodePool(consumer.inner_dims)
    replacements = {site.read: site for site in found}

    def replace(read: BodyNode, mask: BodyNode | None) -> BodyNode | None:
        site = replacements.get(read)
        if site is None:
            return None
        root = site.result.node
        made = rewrite_nodes(producer.below([root]), pool, solutions[read], consumer.space, mask=mask)
        return select_or_zero(pool, mask, made[root])

    rewritten = rewrite_nodes(consumer.nodes, pool, None, consumer.space, replace)
    written = rewrite_nodes(producer.below([r.node for r in kept]), pool, once, consumer.space)
    results = [Result(written[r.node], substitute(r.map, once, consumer.space), r.tensor) for r in kept]
    results += [Result(rewritten[r.node], r.map, r.tensor) for r in consumer.results]
    merged = Body(consumer.parallel, consumer.inner, results, merge_labels(producer.label, consumer.label))
    if not pool.simplified:  # each node that was made is used, and was made behind its operands
        merged.know(list(dict.fromkeys([*written.values(), *pool.nodes.values()])))
    return limits.check(merged)


def points_more(producer: Body, consumer: Body) -> bool:
    """Whether more than a few points of the consumer lie outside of the producer: padding adds less."""
    return cost.points(consumer.space) > SLACK * cost.points(producer.space)


def _allow_evaluation(
    producer: Body, consumer: Body, found: list[ReadSite], solutions: dict[BodyNode, Map], limits: Limits
) -> None:
    """NO RECOMPUTE: what is not trivially cheap is computed at no more points than before. MASKED: nor to be hidden."""
    costs = limits.costs
    evaluations = 0
    seen = set()
    together: dict[
        Map, list[BodyNode]
    ] = {}  # results that are read at the same points share what they are computed from
    for site in found:
        together.setdefault(solutions[site.read], []).append(site.result.node)
    is_matmul = consumer.contraction is not None
    for site in found:
        nodes = producer.below([site.result.node])
        again = _read_again(nodes)
        if costs and again > MANY_READS:  # the end may be a reduction, which goes over its rows several times
            raise NotWorthIt("NO RECOMPUTE", read_again=again, most_read_again=MANY_READS)
        masked = site.read.mask is not None
        solution = solutions[site.read]
        if costs and masked and points_more(producer, consumer) and not cost.is_cheap(nodes):
            raise NotWorthIt("MASKED", evaluations=cost.points(consumer.space), most=cost.points(producer.space))
        checks = limits.checks and any(n.name == "check_index" for n in nodes)
        if checks and (masked or not _is_one_to_one(producer, consumer, solution)):
            raise Refused("EVERY INDEX IS CHECKED")
        inner = bool(_dims(solution, site.read.mask) & consumer.inner_dims)
        if (solution, inner) in seen:
            continue
        seen.add((solution, inner))
        if inner and is_matmul:
            raise Refused("MATMULS STAY")
        evaluations += cost.points(consumer.space if inner else consumer.parallel)
        most = cost.points(producer.space)
        if costs and evaluations > SLACK * most and not cost.is_trivial(producer.below(together[solution])):
            raise NotWorthIt("NO RECOMPUTE", evaluations=evaluations, most=most)


def _read_again(nodes: list[BodyNode]) -> int:
    """How many elements are read of tensors of which others are read too."""
    tensors = [id(n.tensor.root) for n in nodes if n.name == "read"]
    return len(tensors) - len(set(tensors))


def _dims(solution: Map, mask: BodyNode | None) -> frozenset[int]:
    return dims_in(solution) | (mask.dims if mask is not None else frozenset())


def _is_one_to_one(producer: Body, consumer: Body, solution: Map) -> bool:
    """Whether the points of the consumer (or of its parallel space) are those of the producer, each once."""
    everywhere = frozenset(range(len(consumer.space)))
    return any(
        is_bijection(solution, producer.space, consumer.space, dims)
        for dims in (everywhere, everywhere - consumer.inner_dims)
    )


def _written_once(producer: Body, consumer: Body, candidates: list[Map]) -> Map:
    """WRITTEN ONCE: a result that others read too is written by the merged kernel, if it reaches each element once; by this of the
    candidates, which are the producer's points. It is asked before anything is rewritten: of thousands of pairs the answer is no."""
    solution = next((s for s in candidates if _is_one_to_one(producer, consumer, s)), None)
    if solution is None:
        raise Refused("WRITTEN ONCE")
    return solution


# ---- two kernels over the same rows


def join(
    producer: Body, consumer: Body, keep: set[Tensor], limits: Limits, found: list[ReadSite] | None = None
) -> Body:
    """One kernel, in the producer's iteration space, in which the producer's values replace the consumer's reads of them. Raises Refused.

    SAME ROWS: the consumer works on the rows (parallel points) that the producer folds, and on whole rows.
    """
    found = sites(producer, consumer) if found is None else found
    solution: list[Int | None] = [None] * len(producer.space)
    for site in found:
        if site.solution is None:
            raise Refused("SAME ROWS")
        solution = [old if old is not None else new for old, new in zip(solution, site.solution, strict=True)]
    aligned = align(producer, consumer, tuple(solution), alike_dims(producer, consumer))
    if aligned is None:
        raise Refused("SAME ROWS")
    space = aligned.parallel + aligned.inner
    for site in found:
        # at each point the consumer must read what the producer makes at that very point
        there = substitute(site.index, aligned.consumer, space)
        here = substitute(site.result.map, aligned.producer, space)
        if without_unit_dims(there, space) != without_unit_dims(here, space):
            raise Refused("SAME ROWS")
    return limits.check(join_aligned(producer, consumer, keep, aligned, {site.read: site for site in found}))


def join_aligned(
    producer: Body, consumer: Body, keep: set[Tensor], aligned: Alignment, replacements: dict[BodyNode, ReadSite]
) -> Body:
    """One kernel in the iteration space `aligned`. `replacements`: a read in the consumer -> the result of the producer that it reads.
    Raises Refused."""
    if not stays_matmul(producer, consumer, aligned):
        raise Refused("MATMULS STAY")
    space = aligned.parallel + aligned.inner
    body = Body(aligned.parallel, aligned.inner, [], merge_labels(producer.label, consumer.label))
    _keep_order(producer, consumer, aligned)
    pool = NodePool(body.inner_dims)
    shared = {id(t.root) for t in producer.tensors} & {id(t.root) for t in consumer.tensors}

    def of_producer(read: BodyNode, mask: BodyNode | None) -> BodyNode | None:
        return (
            read_root(read, producer.space, pool, aligned.producer, space) if id(read.tensor.root) in shared else None
        )

    made = rewrite_nodes(producer.nodes, pool, aligned.producer, space, of_producer)

    def of_consumer(read: BodyNode, mask: BodyNode | None) -> BodyNode | None:
        site = replacements.get(read)
        if site is not None:
            return select_or_zero(pool, mask, made[site.result.node])
        return (
            read_root(read, consumer.space, pool, aligned.consumer, space) if id(read.tensor.root) in shared else None
        )

    rewritten = rewrite_nodes(consumer.nodes, pool, aligned.consumer, space, of_consumer)
    for result in producer.results:
        if result.tensor in keep:
            map_ = substitute(result.map, aligned.producer, space)
            body.results.append(Result(made[result.node], map_, result.tensor))
    for result in consumer.results:
        map_ = substitute(result.map, aligned.consumer, space)
        body.results.append(Result(rewritten[result.node], map_, result.tensor))
    return body


def read_root(read: BodyNode, old_space: Space, pool: NodePool, values: Map, space: Space) -> BodyNode | None:
    """What both kernels read is read from the tensor itself and not from views of it, so that equal reads become one."""
    index = root_index(read, old_space) if read.tensor.view is not None and not read.operands else None
    if index is None:
        return None
    index = substitute(index, values, space)
    if not is_polynomial(index):
        return None
    return pool.make("read", (), read.type, read.location, read.attributes, read.tensor.root, index)


def _keep_order(producer: Body, consumer: Body, aligned: Alignment) -> None:
    """IN ORDER: scans run along one inner dimension, and argmax counts inner points row-major."""
    rank = len(aligned.parallel)
    for body, values in ((producer, aligned.producer), (consumer, aligned.consumer)):
        ordered = [n for n in body.nodes if n.counts_positions]
        if not ordered:
            continue
        space = aligned.parallel + aligned.inner
        inner = [d for value in values[len(body.parallel) :] for d in linearized_dims(value, space) or ()]
        wanted = [d for d in range(rank, len(space)) if space[d] != 1]
        if [d for d in inner if space[d] != 1] != wanted:
            raise Refused("IN ORDER")
        if len(aligned.inner) != 1 and any(n.name == "scan" for n in ordered):
            raise Refused("IN ORDER")


def alike_dims(producer: Body, consumer: Body) -> dict[int, int]:
    """Consumer's dimension -> producer's, guessed from tensors that both read."""
    ours: dict[int, Map] = {}
    for read in producer.reads:
        ours.setdefault(id(read.tensor.root), root_index(read, producer.space) or ())
    guessed: dict[int, int] = {}
    for read in consumer.reads:
        map_ = ours.get(id(read.tensor.root))
        theirs = root_index(read, consumer.space) if map_ else None
        if not map_ or theirs is None:
            continue
        for a, b in zip(map_, theirs, strict=True):
            dim, c = linearized_dims(a, producer.space), linearized_dims(b, consumer.space)
            if dim and c and len(dim) == len(c) == 1:
                guessed.setdefault(c[0], dim[0])
    return guessed


# ---- rewriting nodes


def rewrite_nodes(
    nodes: list[BodyNode],
    pool: NodePool,
    values: Map | None,
    space: Space,
    replace: Callable[[BodyNode, BodyNode | None], BodyNode | None] | None = None,
    mask: BodyNode | None = None,
) -> dict[BodyNode, BodyNode]:
    """These nodes, operands before their users, in `pool`: the old one -> the new one.

    `values` replace the iteration dimensions, by expressions over `space`. `replace(read, its new mask)` may give a
    node to stand for a read. Reads are masked by `mask` as well.
    """
    if values == identity(len(space)):
        values = None
    if values is None and replace is None and mask is None:
        taken = pool.take(nodes)
        if taken is not None:
            return taken
    made: dict[BodyNode, BodyNode] = {}
    for node in nodes:
        operands: tuple[BodyNode, ...] = tuple([made[x] for x in node.operands]) if node.operands else node.operands
        if node.name == "read":
            found = replace(node, operands[-1] if node.masked else None) if replace else None
            if found is not None:
                made[node] = found
                continue
        map_ = substitute(node.map, values, space) if values is not None and node.map else node.map
        if mask is not None and node.name == "read":
            made[node] = _masked_read(pool, node, operands, map_, mask)
        else:
            made[node] = pool.again(node, operands, map_)
    return made


def _masked_read(pool: NodePool, node: BodyNode, operands: tuple[BodyNode, ...], map_: Map, mask: BodyNode) -> BodyNode:
    if node.masked:
        mask = pool.make("logical_and", (operands[-1], mask), mask.type, node.location)
    elif operands:
        raise Refused("MASKED")  # a masked read has no indices
    return pool.make("read", (mask,), node.type, node.location, node.attributes, node.tensor, map_, True)


def select_or_zero(pool: NodePool, mask: BodyNode | None, value: BodyNode) -> BodyNode:
    """What a masked read of `value` gives: 0 where the mask is false."""
    if mask is None or (value.name == "read" and value.mask is mask):
        return value
    stored = dtype_of(value.type)
    computed = opmath(stored)
    wide = value if computed == stored else _implicit_cast(pool, value, computed)
    zero = ir.StringAttr.get(constant_text(0, computed))
    zero_node = pool.make("constant", (), wide.type, value.location, (("value", zero),))
    chosen = pool.make("select", (mask, wide, zero_node), wide.type, value.location)
    return chosen if computed == stored else _implicit_cast(pool, chosen, stored)


def _implicit_cast(pool: NodePool, value: BodyNode, dtype: torch.dtype) -> BodyNode:
    attributes = ((IMPLICIT, ir.BoolAttr.get(True)),)
    return pool.make("cast", (value,), element_type(dtype), value.location, attributes)

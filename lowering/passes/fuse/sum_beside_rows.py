"""The pass sum-beside-rows: see SumBesideRows."""

from dataclasses import dataclass
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.kernel_ops import ROUNDED
from mlirc.dialects.core.tensor_types import TEXT_DTYPE, TensorInfo
from mlirc.lowering.analysis.index_maps import (
    Map,
    count_through,
    dimension,
    dims_in,
    solve,
    substitute,
    without_unit_dims,
)
from mlirc.lowering.fusion import cost as cost
from mlirc.lowering.fusion.body import Body, BodyNode, NodePool, Result, Tensor, nodes_below, write_body
from mlirc.lowering.fusion.graph import FusionGraph, Unit
from mlirc.lowering.fusion.merge import read_root, rewrite, root_index
from mlirc.lowering.kernel.label import merge_labels
from mlirc.lowering.module.source_lines import source_line
from mlirc.lowering.passes.fuse.batch_kernels import move_views
from mlirc.lowering.pipeline.ledger import Ledger

MOST_ROWS, FEWEST_ROWS = 16, 8  # that a program sums up: what it leaves is written and read once more
LONGEST, SHORTEST = 4096, 256  # rows: one and its sums are kept in registers


@dataclass(frozen=True)
class SumBesideRows:
    """Have the kernel that goes through rows on a GPU sum up columns of what it has in registers, where another one reads the same
    again for it: the gradients of a norm's input and of its weight. What programs leave is folded by a kernel of its own.

    before:  %0 = "mlircx.kernel"(%g, %x) ({ ..., yield "d0, d1" })             {parallel = "4096", inner = "2048"}
             %1 = "mlircx.kernel"(%g, %x) ({ mul, reduce sum, yield "d0" })     {parallel = "2048", inner = "4096"}
    after:   %0, %2 = "mlircx.kernel"(%g, %x) ({ ..., mul, yield "d0, d1", "d0//16, d1" {sums = [0, 16]} })
                                                                                {parallel = "4096", inner = "2048"}
             %1 = "mlircx.kernel"(%2) ({ reduce sum, yield "d0" })              {parallel = "2048", inner = "256"}

    SAME READS   all that the sums read at each point is read there by the rows' kernel, or is little
    MANY ROWS    of sizes that are known, enough for `programs` of FEWEST_ROWS to MOST_ROWS rows, SHORTEST to LONGEST long
    IN ORDER     one of the two has a place where both can be
    """

    name = "sum-beside-rows"
    takes = "kernel"
    programs: int = 256

    def run(self, function: Any, ledger: Ledger) -> None:
        if not any(
            op.operation.name == "mlircx.kernel" and _on_gpu(op) for op in function.regions[0].blocks[0].operations
        ):
            return
        graph = FusionGraph(function)
        rows = [u for u in graph.kernels() if _on_gpu(u.ops[0]) and goes_through_rows(u.body)]
        taken: set[int] = set()
        for columns in [u for u in graph.kernels() if _on_gpu(u.ops[0]) and sums_columns(u.body)]:
            roots = {id(t.root) for t in columns.inputs}
            for unit in rows:
                count = self.rows_of(unit.body)
                if id(unit) in taken or not count or roots.isdisjoint(id(t.root) for t in unit.inputs):
                    continue
                values = aligned(unit.body, columns.body)
                if values is None:
                    continue
                joined = join(unit.body, columns.body, values, count)
                place = place_of(unit, columns) if joined else None
                rule = "SAME READS" if joined is None else "IN ORDER"
                label, line = columns.body.label, source_line(columns.location)
                ledger.record(self.name, "join", label, rule, place is not None, line)
                if joined is not None and place is not None and ledger.allows(self.name, columns.ops[0]):
                    replace(unit, columns, joined, place)
                    taken.add(id(unit))
                    break

    def rows_of(self, body: Body) -> int:
        """How many rows a program goes through; 0: there are too few."""
        total = symbols.product(body.parallel)
        if not isinstance(total, int):
            return 0
        count = MOST_ROWS
        while count >= FEWEST_ROWS:
            if total % count == 0 and total // count >= self.programs:
                return count
            count //= 2
        return 0


def _on_gpu(op: Any) -> bool:
    return "cuda" in str(op.results[0].type)


def goes_through_rows(body: Body) -> bool:
    """Whether a program can hold a row of the kernel, which folds it and writes at its points."""
    length = symbols.product(body.inner)
    if not isinstance(length, int) or not SHORTEST <= length <= LONGEST or body.matmul is not None:
        return False
    names = {n.name for n in body.nodes}
    plain = "reduce" in names and names.isdisjoint(("scan", "check_index"))
    return plain and not any(n.counts_positions for n in body.nodes) and any(map(body.inner_dims.issubset, _dims(body)))


def sums_columns(body: Body) -> bool:
    """Whether all that the kernel does is to sum up, in float32."""
    folds = [n for n in body.nodes if n.name in ("reduce", "scan", "check_index")]
    sums = [n for n in folds if n.name == "reduce" and TEXT_DTYPE[str(n.type)] == torch.float32 and _kind(n) == "sum"]
    nested = any(x.name == "reduce" for n in sums for x in nodes_below(list(n.operands)))
    outer = not any(dims & body.inner_dims for dims in _dims(body))
    return bool(sums) and len(sums) == len(folds) and not nested and outer and body.matmul is None


def _kind(fold: BodyNode) -> str:
    return ir.StringAttr(dict(fold.attributes)["kind"]).value


def _dims(body: Body) -> list[frozenset[int]]:
    return [r.node.dims | dims_in(r.map) for r in body.results]


def aligned(rows: Body, columns: Body) -> Map | None:
    """What the dimensions of `columns` are at the points of `rows`, whose rows are what is summed up; None where they are not."""
    sizes = [symbols.product(space) for space in (rows.parallel, rows.inner, columns.inner, columns.parallel)]
    if sizes[:2] != sizes[2:]:
        return None
    places = {id(r.tensor.root): at for r in rows.reads if (at := _whole_index(r, rows)) is not None}
    for read in columns.reads:
        here, there = places.get(id(read.tensor.root)), _whole_index(read, columns)
        if here is None or there is None or len(here) != len(there):
            continue
        solution = solve(there, columns.space, here, rows.space)
        back = solve(here, rows.space, there, columns.space)
        if solution is None or back is None or None in back:
            continue
        values = tuple(v for v in solution if v is not None)
        if len(values) < len(columns.space) or substitute(there, values, rows.space) != here:
            continue
        beside = [dims_in((v,)) <= rows.inner_dims for v in values[: len(columns.parallel)]]
        down = [dims_in((v,)).isdisjoint(rows.inner_dims) for v in values[len(columns.parallel) :]]
        return values if all(beside) and all(down) else None
    return None


def _whole_index(read: BodyNode, body: Body) -> Map | None:
    """The index into the root of what is read without a mask, and not at an index that is data."""
    index = None if read.operands else root_index(read, body.space)
    return None if index is None else without_unit_dims(index, body.space)


@dataclass(frozen=True)
class Joined:
    """The rows' kernel with the sums of `rows` rows each, and those tensors; `folds`: the reductions that they are parts of."""

    body: Body
    parts: list[Tensor]
    folds: list[BodyNode]


def join(rows: Body, columns: Body, values: Map, count: int) -> Joined | None:
    """One kernel, in the space of `rows`; None where it would read much that `rows` does not."""
    pool = NodePool(rows.inner_dims)
    space = rows.space
    shared = {id(t.root) for t in rows.tensors} & {id(t.root) for t in columns.tensors}
    folds = [n for n in columns.nodes if n.name == "reduce"]
    same = tuple(map(dimension, range(len(space))))

    def from_root(read: BodyNode, old: Body, at: Map) -> BodyNode | None:
        return read_root(read, old.space, pool, at, space) if id(read.tensor.root) in shared else None

    made = rewrite([r.node for r in rows.results], pool, same, space, lambda read, _: from_root(read, rows, same))
    before = {id(n) for n in nodes_below([made[id(r.node)] for r in rows.results])}
    summed = rewrite(
        [n.operands[0] for n in folds], pool, values, space, lambda read, _: from_root(read, columns, values)
    )
    reads = [n for n in nodes_below([summed[id(n.operands[0])] for n in folds]) if n.name == "read"]
    new = cost.total_bytes({id(n.tensor): n.tensor for n in reads if id(n) not in before}.values())
    if WORTH * new > cost.total_bytes({id(n.tensor): n.tensor for n in reads}.values()):
        return None
    across = values[: len(columns.parallel)]
    number = symbols.floordiv(count_through(tuple(range(len(rows.parallel))), space), count)
    total = symbols.product(rows.parallel)
    assert isinstance(total, int)
    device = rows.results[0].tensor.info.device
    info = TensorInfo(torch.float32, (total // count, *columns.parallel), device=device)
    parts = [Tensor(None, info) for _ in folds]  # type: ignore[arg-type]
    results = [Result(made[id(r.node)], r.map, r.tensor) for r in rows.results]
    results += [
        Result(summed[id(n.operands[0])], (number, *across), part, count) for n, part in zip(folds, parts, strict=True)
    ]
    return Joined(Body(rows.parallel, rows.inner, results, merge_labels(rows.label, columns.label)), parts, folds)


WORTH = 8  # one part in so many of what the sums read may be new


def folded(columns: Body, joined: Joined) -> Body:
    """The kernel that folds what programs left, and does what `columns` did with its sums."""
    rank = len(columns.parallel)
    pool = NodePool(frozenset((rank,)))
    made: dict[int, BodyNode] = {}
    parts = {id(n): part for n, part in zip(joined.folds, joined.parts, strict=True)}
    at = (dimension(rank), *map(dimension, range(rank)))

    def again(node: BodyNode) -> BodyNode:
        if id(node) not in made:
            if id(node) in parts:
                read = pool.make("read", (), node.type, node.location, (), parts[id(node)], at)
                made[id(node)] = pool.make("reduce", (read,), node.type, node.location, node.attributes)
            else:
                made[id(node)] = pool.again(node, tuple(map(again, node.operands)), node.map)
        return made[id(node)]

    results = [Result(again(r.node), r.map, r.tensor) for r in columns.results]
    count = joined.parts[0].info.shape[0]
    return Body(columns.parallel, (count,), results, columns.label)


# ---- back to MLIR


def place_of(rows: Unit, columns: Unit) -> Unit | None:
    """The unit in whose place both can be: all that both read is there, and nobody has read what they give."""
    first, second = sorted((rows, columns), key=lambda u: u.position)
    if second in first.users:
        return None
    if all(u.position > second.position for u in first.users):
        return second
    ready = all(t.root.unit is None or t.root.unit.position < first.position for t in second.inputs)
    return first if ready and not second.before else None


def replace(rows: Unit, columns: Unit, joined: Joined, place: Unit) -> None:
    """Writes both kernels in the place of one unit; the old ones go."""
    at = place.ops[0]
    for tensor in joined.body.tensors:
        bring_before(tensor, at)
    location = ir.Location.fused([rows.location, columns.location])
    half = all(r.tensor.info.dtype.itemsize == 2 for r in (*rows.body.results, *columns.body.results))
    with ir.InsertionPoint(at):
        made = write_body(joined.body, location)
        if half:
            made.attributes[ROUNDED] = ir.UnitAttr.get()
        for result, value in zip(joined.body.results, made.results, strict=True):
            result.tensor.value = value
        fold = folded(columns.body, joined)
        last = write_body(fold, columns.location)
    olds = [x for unit in (rows, columns) for x in unit.ops[0].results]
    news = [*list(made.results)[: len(rows.body.results)], *last.results]
    for old, new in zip(olds, news, strict=True):
        old.replace_all_uses_with(new)
    for result, value in zip(columns.body.results, last.results, strict=True):
        result.tensor.value = value
    move_views(last)
    move_views(made)
    for unit in (rows, columns):
        unit.ops[0].erase()
        unit.ops = [made if unit is rows else last]
        unit.position = place.position


def bring_before(tensor: Tensor, op: Any) -> None:
    """The views that `tensor` is made by, before the op."""
    views = []
    while tensor.view is not None:
        views.append(tensor.view)
        tensor = tensor.operand
    for view in reversed(views):
        if not view.is_before_in_block(op):
            view.move_before(op)

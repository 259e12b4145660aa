"""propagate-slices: computes only the slices of a value that its readers need (demand analysis)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import Elementwise, Reduction, attribute_value, create, make_attribute
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.dialects.core.graph_ops import AddMatmul, Copy, Matmul, View
from mlirc.dialects.core.tensor_types import info_of, type_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.dialects.ops.nn.attention import Attention
from mlirc.lowering.analysis import slices
from mlirc.lowering.analysis.slices import Slice, Span
from mlirc.lowering.fusion.cost import points
from mlirc.lowering.layout.moved_views import may_move, move
from mlirc.lowering.pipeline.ledger import Ledger


@dataclass(frozen=True)
class PropagateSlices:
    """Compute of a value only the rows that somebody reads, or other evenly spaced parts, and so of what it is computed from.

    before:  %0 = "mlirc.addmm"(%b, %x, %w) : (tensor<64xf32>, tensor<34x64xf32>, ...) -> tensor<34x64xf32>
             %1 = "mlirc.gelu"(%0) : (tensor<34x64xf32>) -> tensor<34x64xf32>
             %2 = "mlirc.view"(%1) {map = "17*d0, d1", offset = "0"} : (tensor<34x64xf32>) -> tensor<2x64xf32, ...>
    after:   %0 = "mlirc.view"(%x) {map = "17*d0, d1", offset = "0"} : (tensor<34x64xf32>) -> tensor<2x64xf32, ...>
             %1 = "mlirc.addmm"(%b, %0, %w) : (tensor<64xf32>, tensor<2x64xf32, ...>, ...) -> tensor<2x64xf32>
             %2 = "mlirc.gelu"(%1) : (tensor<2x64xf32>) -> tensor<2x64xf32>

    So the last layer of a classifier that looks at one token, or of a prefill, needs all keys and values, and one query.
    ALL READERS  every reader is such a view, or computed in part itself; of two different parts the whole is computed
    HALF         at most half of the elements are needed
    It goes through elementwise work, reductions and matmuls (their rows or columns), views, and attention's queries.
    """

    name = "propagate-slices"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        operations = list(function.regions[0].blocks[0].operations)
        if not any(isinstance(op, View) for op in operations):
            return
        parts = _Parts(lambda op: ledger.allows(self.name, op))
        for op in reversed(operations):
            parts.look_at(op)
        for op in operations:
            if op.operation in parts.computed:
                with ir.InsertionPoint(op), op.location:
                    made = parts.compute(op)
                if made and not isinstance(op, View):
                    ledger.record(self.name, "narrow", op.operation.name, "ALL READERS", True, op)
        gone = [op for op in operations if op.results and op.results[0] in parts.made]
        for view, part in parts.moved:
            move(view.out, part)
            view.operation.erase()
        for op in reversed(gone):
            op.operation.erase()


class _Parts:
    """What of a function is computed in part, as its ops are looked at from the last to the first.

    allows   whether an op may be computed in part
    computed the ops that are computed in part, with the part; of a view that others read in whole, all of it
    reads    for each value what the ops that were looked at read of it
    made     the parts, row-major, of values; of a view it is one of its operand's
    moved    views that others read in whole, of what is computed in part, and what takes their places
    """

    def __init__(self, allows: Callable[[Any], bool]) -> None:
        self.allows = allows
        self.computed: dict[ir.Operation, Slice] = {}
        self.reads: dict[ir.Value, dict[ir.Operation, Slice]] = {}
        self.made: dict[ir.Value, ir.Value] = {}
        self.moved: list[tuple[View, ir.Value]] = []

    def look_at(self, op: Any) -> None:
        """Notes which part of an op is computed; all its readers were looked at before."""
        slice_ = self.wanted(op)
        if slice_ is not None and not isinstance(op, View) and not self.allows(op):
            slice_ = None
        if slice_ is None and isinstance(op, View):
            slice_ = slices.whole(info_of(op.out).shape)
            if points(slices.sizes(slice_)) == points(info_of(op.x).shape):
                return  # it reads all
        if slice_ is None:
            return
        self.computed[op.operation] = slice_
        for operand, needed in operand_slices(op, slice_):
            seen = self.reads.setdefault(operand, {})
            before = seen.get(op.operation)
            seen[op.operation] = slices.hull([before, needed], info_of(operand).shape) if before else needed

    def wanted(self, op: Any) -> Slice | None:
        """The part of an op that is computed; None for all of it."""
        if not isinstance(op, Elementwise | Reduction | Copy | View | Matmul | AddMatmul | Attention):
            return None
        out, *others = op.results
        reads = self.reads.get(out)
        if not reads:
            return None
        uses, info = [use.owner.operation for use in out.uses], info_of(out)
        if not uses or any(list(x.uses) for x in others) or any(user not in reads for user in uses):
            return None
        if not info.device.startswith("cpu") or info.layout != "strided":
            return None
        slice_ = slices.hull([reads[user] for user in uses], info.shape)
        if isinstance(op, Attention):
            slice_ = queries(op, slice_)
        if not slices.is_small(slice_, info.shape):
            return None
        return slice_ if all(self.stays_a_view(user, slice_) for user in uses if user.name == "mlirc.view") else None

    def stays_a_view(self, view: ir.Operation, slice_: Slice) -> bool:
        """Whether the part of a view is one of this part of its operand."""
        op = view.opview
        found = slices.view_of_slice(map_of(op), self.computed[view], slice_, info_of(op.x).shape)
        if found is None:
            return False
        return self.is_part(op) or may_move(op.out, found[1])

    def is_part(self, view: Any) -> bool:
        return self.computed[view.operation] != slices.whole(info_of(view.out).shape)

    # ---- code

    def compute(self, op: Any) -> bool:
        """Makes the op's part, at the insertion point, if it is one."""
        slice_ = self.computed[op.operation]
        if isinstance(op, View):
            return self.view(op, slice_)
        info = info_of(op.results[0])
        parts = [self.part(x, needed) for x, needed in operand_slices(op, slice_)]
        types = [type_of(replace(info, shape=slices.sizes(slice_), stride=None))]
        attributes = dict(op.attributes.items())
        if isinstance(op, Attention):
            attributes["causal"] = make_attribute(causal_of_part(op, slice_))
            types.append(type_of(replace(info_of(op.lse), shape=slices.sizes(slice_)[:3], stride=None)))
        self.made[op.results[0]] = create(type(op).mnemonic, parts, types, attributes).results[0]
        return True

    def view(self, op: View, slice_: Slice) -> bool:
        """The part of a view, or all of one whose operand is computed in part."""
        if op.x not in self.made:
            return False
        found = slices.view_of_slice(map_of(op), slice_, self.computed[op.x.owner.operation], info_of(op.x).shape)
        assert found is not None, "stays_a_view"
        map_, strides, offset = found
        sizes = slices.sizes(slice_)
        strides = [was if n == 1 else s for n, s, was in zip(sizes, strides, info_of(op.out).stride, strict=True)]
        made = GraphBuilder().view(self.made[op.x], sizes, strides, map_, offset)
        if self.is_part(op):
            self.made[op.out] = made
        else:
            self.moved.append((op, made))
        return True

    def part(self, x: ir.Value, slice_: Slice) -> ir.Value:
        """A slice of an operand."""
        shape = info_of(x).shape
        there = slices.whole(shape)
        if x in self.made:
            x, there = self.made[x], self.computed[x.owner.operation]
        if slice_ == there:
            return x
        # where the two differ, what is there is whole
        inner = tuple(Span(0, 1, b.count) if b == t else b for b, t in zip(slice_, there, strict=True))
        map_, strides, offset = slices.part(info_of(x).stride, inner)
        return GraphBuilder().view(x, slices.sizes(slice_), strides, map_, offset)


def map_of(view: View) -> slices.Map:
    return tuple(symbols.parse_list(attribute_value(view.attributes["map"])))


def operand_slices(op: Any, slice_: Slice) -> list[tuple[ir.Value, Slice]]:
    """What a part of an op's result needs of each operand."""
    shapes = [info_of(x).shape for x in op.operands]
    if isinstance(op, View):
        known = bool(map_of(op)) or not shapes[0]
        return [(op.x, slices.read_by_view(map_of(op), slice_, shapes[0]))] if known else []
    if isinstance(op, Reduction):
        return [(op.x, before_reduction(op, slice_, shapes[0]))]
    if isinstance(op, Matmul | AddMatmul):
        *bias, x, y = shapes
        rows = (*slice_[:-1], Span(0, 1, x[-1]))
        columns = (*slice_[:-2], Span(0, 1, y[-2]), slice_[-1])
        needed = [*(slices.broadcast(slice_, b) for b in bias), rows, columns]
        return list(zip(op.operands, needed, strict=True))
    if isinstance(op, Attention):
        q, k, v, *mask = shapes
        needed = [(*slice_[:3], Span(0, 1, q[3])), slices.whole(k), slices.whole(v)]
        seen = [slices.broadcast((*slice_[:3], Span(0, 1, k[2])), m) for m in mask]
        return list(zip(op.operands, [*needed, *seen], strict=True))
    return [(x, slices.broadcast(slice_, shape)) for x, shape in zip(op.operands, shapes, strict=True)]


def before_reduction(op: Reduction, slice_: Slice, shape: slices.Map) -> Slice:
    folded = set(symbols.parse_list(attribute_value(op.attributes["dims"])))
    keeps_rank = len(slice_) == len(shape)
    left = iter(slice_)
    needed = []
    for d, n in enumerate(shape):
        span = next(left) if keeps_rank or d not in folded else None
        needed.append(Span(0, 1, n) if d in folded or span is None else span)
    return tuple(needed)


def queries(op: Attention, slice_: Slice) -> Slice:
    """Attention in part: some queries of all heads. With a diagonal the last ones only, as the others' keys begin alike."""
    shape = info_of(op.out).shape
    slice_ = tuple(span if d == 2 else Span(0, 1, n) for d, (span, n) in enumerate(zip(slice_, shape, strict=True)))
    return slice_ if causal_of_part(op, slice_) else slices.whole(shape)


def causal_of_part(op: Attention, slice_: Slice) -> str:
    """What `causal` says of these queries alone; "" where no word does."""
    causal, queries, keys = op.causal.value, info_of(op.operands[0]).shape[2], info_of(op.operands[1]).shape[2]
    span = slice_[2]
    if causal == "none":
        return causal
    at_end = span.step == 1 and span.first + span.count == queries
    if at_end and span.count == 1 and (causal == "lower_right" or queries == keys):
        return "none"
    return causal if at_end and causal == "lower_right" else ""

"""hoist-gathers: moves a gather before the elementwise ops whose results it picks from."""

from dataclasses import replace
from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import Elementwise, attribute_value, create
from mlirc.dialects.core.graph_ops import Copy, View
from mlirc.dialects.core.tensor_types import info_of, type_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.dialects.ops.movement.indexing import Gather
from mlirc.lowering.pipeline.ledger import Ledger

MOST = 16  # ops that are done again on what is picked


@dataclass(frozen=True)
class HoistGathers:
    """Pick elements before elementwise work, where only those that are picked are needed of it.

    before:  %0 = "mlirc.sub"(%x, %logsum) : (tensor<64x50000xf32>, tensor<64x1xf32>) -> tensor<64x50000xf32>
             %1 = "mlirc.gather"(%0, %label) {dim = 1 : i64} : ... -> tensor<64x1xf32>
    after:   %0 = "mlirc.gather"(%x, %label) {dim = 1 : i64} : ... -> tensor<64x1xf32>
             %1 = "mlirc.sub"(%0, %logsum) : (tensor<64x1xf32>, tensor<64x1xf32>) -> tensor<64x1xf32>

    So a cross entropy writes no log-probabilities.
    ONE OF A ROW  one element is picked of each row, at the end of a chain that nothing else needs
    IN MEMORY     what the chain starts from is there whatever is done: an argument, a sum, a matmul, a view of one.
                  A view within the chain, of a cast say, becomes a view of what is cast
    """

    name = "hoist-gathers"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        block = function.regions[0].blocks[0]
        for op in [op for op in block.operations if isinstance(op, Gather)]:
            if not is_worked(op.x.owner) or len(list(op.x.uses)) != 1:
                continue
            picked = _Picked(op)
            fits = picked.picks_one and picked.fits(op.x) and ledger.allows(self.name, op)
            ledger.record(self.name, "move", "gather", "ONE OF A ROW", fits, op)
            if fits:
                with ir.InsertionPoint(op), op.location:
                    op.out.replace_all_uses_with(picked.value(op.x))
                op.operation.erase()


def is_worked(op: Any) -> bool:
    return isinstance(op, Elementwise | Copy)


class _Picked:
    """What a gather picks of the values that its operand is computed from."""

    def __init__(self, gather: Gather):
        self.index, self.shape = gather.index, info_of(gather.index).shape
        self.attributes = dict(gather.attributes.items())
        self.dim = attribute_value(gather.attributes["dim"])
        self.sizes = info_of(gather.x).shape
        self.ops: set[ir.Operation] = set()
        self.made: dict[ir.Value, ir.Value] = {}

    @property
    def picks_one(self) -> bool:
        others = [a == b for d, (a, b) in enumerate(zip(self.shape, self.sizes, strict=True)) if d != self.dim]
        return all(others) and self.shape[self.dim] == 1 and self.sizes[self.dim] != 1

    def stays(self, x: ir.Value) -> bool:
        """Whether an operand is the same along the dimension picked from: it broadcasts."""
        place = self.dim - len(self.sizes) + info_of(x).rank
        return place < 0 or info_of(x).shape[place] == 1

    def fits(self, x: ir.Value) -> bool:
        if self.stays(x):
            return True
        if info_of(x).shape != self.sizes:
            return False
        if not is_worked(x.owner):
            before = before_view(x)
            return not is_worked(_root(x if before is None else before).owner)
        self.ops.add(x.owner.operation)
        return len(self.ops) <= MOST and all(map(self.fits, x.owner.operands))

    def value(self, x: ir.Value) -> ir.Value:
        if self.stays(x):
            return x
        if x not in self.made:
            self.made[x] = self.make(x)
        return self.made[x]

    def make(self, x: ir.Value) -> ir.Value:
        info = info_of(x)
        type_ = type_of(replace(info, shape=self.shape, stride=None))
        before = before_view(x)
        if before is not None:
            seen = type_of(replace(info, dtype=info_of(before).dtype))
            view = create("view", [before], [seen], dict(x.owner.attributes.items())).out
            picked = create(
                "gather",
                [view, self.index],
                [type_of(replace(info_of(view), shape=self.shape, stride=None))],
                self.attributes,
            ).out
            op = x.owner.x.owner
            with op.location:
                return create(type(op).mnemonic, [picked], [type_], dict(op.attributes.items())).out
        if not is_worked(x.owner):
            return create("gather", [x, self.index], [type_], self.attributes).out
        operands = [self.value(operand) for operand in x.owner.operands]
        if isinstance(x.owner, Copy):
            return operands[0]
        with x.owner.location:
            return create(type(x.owner).mnemonic, operands, [type_], dict(x.owner.attributes.items())).out


def before_view(x: ir.Value) -> ir.Value | None:
    """Where x is a view of what an elementwise op made of one tensor: that tensor, of which it can be a view as well."""
    op = x.owner.x.owner if isinstance(x.owner, View) else None
    if not isinstance(op, Elementwise) or len(op.operands) != 1:
        return None
    made, given = info_of(op.results[0]), info_of(op.operands[0])
    return op.operands[0] if (made.shape, made.stride) == (given.shape, given.stride) else None


def _root(x: ir.Value) -> ir.Value:
    while isinstance(x.owner, View):
        x = x.owner.x
    return x

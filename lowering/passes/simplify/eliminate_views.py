"""eliminate-views: a view of a view becomes one view; views and copies that change nothing go."""

from typing import Any

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.dialects.core.graph_ops import Copy, View
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.analysis.effects import may_write
from mlirc.lowering.analysis.index_maps import substitute
from mlirc.lowering.analysis.provenance import view_root
from mlirc.lowering.pipeline.ledger import Ledger


@dataclass(frozen=True)
class EliminateViews:
    """Make a view of a view one view, and drop views and copies that change nothing.

    before:  %0 = "mlirc.view"(%x) {map = "d1, d0", offset = "0"} : (tensor<4x8xf32>) -> tensor<8x4xf32, ...>
             %1 = "mlirc.view"(%0) {map = "d1, d0", offset = "0"} : (tensor<8x4xf32, ...>) -> tensor<4x8xf32>
    after:   %x

    A view that is left costs nothing: kernels read through it, by its map.
    """

    name = "eliminate-views"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        written = written_roots(function)
        for op in list(function.regions[0].blocks[0].operations):
            if isinstance(op, View):
                replace_view(op, ledger, self.name)
            elif isinstance(op, Copy) and changes_nothing(op, written):
                if not ledger.allows(self.name, op):
                    continue
                op.out.replace_all_uses_with(op.x)
                op.operation.erase()


def replace_view(op: View, ledger: Ledger, pass_name: str) -> None:
    """Drops the view, or makes it a view of what its operand is a view of."""
    x, map_, offset = (
        op.x,
        attribute_value(op.attributes["map"]),
        symbols.parse(attribute_value(op.attributes["offset"])),
    )
    behind = x.owner
    value = None
    changes_nothing = x.type == op.out.type and offset == 0
    if not (changes_nothing or isinstance(behind, View)) or not ledger.allows(pass_name, op):
        return
    if isinstance(behind, View):
        x, offset = behind.x, offset + symbols.parse(attribute_value(behind.attributes["offset"]))
        first = attribute_value(behind.attributes["map"])
        # the map of a 0-d operand is empty, and known
        known = (map_ or info_of(op.x).rank == 0) and (first or info_of(x).rank == 0)
        info = info_of(op.out)
        index = substitute(symbols.parse_list(first), symbols.parse_list(map_), info.shape) if known else None
        with ir.InsertionPoint(op), op.location:
            value = GraphBuilder().view(x, info.shape, info.stride, index, offset)
    if x.type == op.out.type and offset == 0:
        value = x
    if value is not None:
        op.out.replace_all_uses_with(value)
        op.operation.erase()


def changes_nothing(op: Copy, written: set[ir.Value]) -> bool:
    """Whether each reader of the copy may read the copy's operand.

    A tensor that is overwritten later has to be copied before. A result of the graph has memory of its own: without the copy of a part, the
    whole tensor would be kept, or copied.
    """
    if op.x.type != op.out.type or view_root(op.x) in written:
        return False
    return not (isinstance(op.x.owner, View) and is_returned(op.out))


def is_returned(value: ir.Value) -> bool:
    """Whether the value or a view of it is a result of the graph."""
    owners = [use.owner for use in value.uses]
    return any(
        owner.operation.name == "func.return" or (isinstance(view := owner.opview, View) and is_returned(view.out))
        for owner in owners
    )


def written_roots(function: Any) -> set[ir.Value]:
    """The values whose memory, or a view's of them, is overwritten."""
    operations = function.regions[0].blocks[0].operations
    return {view_root(x) for op in operations if may_write(op.operation) for x in op.operands}

"""elide-copies: ATen operators that copy a tensor to change some of it change the tensor itself, if nobody can tell."""

from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.fusion.aten_calls import called, changeable
from mlirc.lowering.memory.argument_updates import update_arguments
from mlirc.lowering.pipeline.ledger import Ledger

IN_PLACE = {
    "aten.index_add.default": "aten.index_add_.default",
    "aten.index_put.default": "aten.index_put_.default",
}
# of an argument: a kernel's result is copied by a kernel of its own, as fast as by ATen
OF_ARGUMENTS = IN_PLACE | {
    "aten.index_copy.default": "aten.index_copy_.default",
    "aten.index_fill.int_Scalar": "aten.index_fill_.int_Scalar",
    "aten.masked_scatter.default": "aten.masked_scatter_.default",
    "aten.scatter.src": "aten.scatter_.src",
    "aten.scatter.value": "aten.scatter_.value",
    "aten.scatter_add.default": "aten.scatter_add_.default",
}
WRITERS = ("mlircx.kernel", "mlirc.matmul", "mlirc.addmm", "mlirc.copy")  # whose results are memory of their own


@dataclass(frozen=True)
class ElideCopies:
    """Let an ATen call that copies a tensor to change some of it change the tensor itself, where nobody can tell.

    before:  %1 = "mlircx.aten"(%0, %i, %x) {op = "aten.index_add.default", aliases = "-1", ...}
    after:   %1 = "mlircx.aten"(%0, %i, %x) {op = "aten.index_add_.default", aliases = "0", ...}

    LAST USE: %0 is what a kernel or a matmul of ours wrote, laid out like the result, and nothing else reads it. A kernel
    that reads nothing (zeros) runs once more for each such call. The last pass before plan-memory: later a clean-up could
    make one value of two equal ones.
    TO INPUT: %0 is an argument, which %1 then overwrites (argument_updates.py).
    """

    name = "elide-copies"
    takes = "kernel"

    def run(self, function: Any, ledger: Ledger) -> None:
        update_arguments(function, OF_ARGUMENTS, ledger, self.name)
        for op in list(function.regions[0].blocks[0].operations):
            name = called(op)
            if name not in IN_PLACE or not changeable(op) or not ledger.allows(self.name, op):
                continue
            own_zeros(op)
            taken = is_last_use(op.operands[0], op.results[0])
            ledger.record(self.name, "update", name, "LAST USE", taken, op)
            if taken:
                op.attributes["op"] = ir.StringAttr.get(IN_PLACE[name])
                op.attributes["aliases"] = ir.StringAttr.get("0")


def own_zeros(op: Any) -> None:
    """A kernel without operands that writes the op's first operand is repeated, where others read that too."""
    x = op.operands[0]
    if isinstance(x.owner, ir.Block) or x.owner.name != "mlircx.kernel" or x.owner.operands or len(list(x.uses)) == 1:
        return
    if len(x.owner.results) == 1:
        op.operands[0] = x.owner.clone(ip=ir.InsertionPoint(op)).results[0]


def is_last_use(x: ir.Value, result: ir.Value) -> bool:
    if isinstance(x.owner, ir.Block) or x.owner.name not in WRITERS or x.type != result.type:
        return False
    info = info_of(x)
    return len(list(x.uses)) == 1 and info.is_dense and info.device == "cpu"

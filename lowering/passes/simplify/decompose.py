"""decompose: composite ops, such as softmax, become the smaller ops that they stand for."""

from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.composites import Expansions
from mlirc.dialects.core.dialect import Composite
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.pipeline.ledger import Ledger


@dataclass(frozen=True)
class Decompose:
    """Replace composite ops (softmax, layer_norm) by the smaller ops that they stand for.

    before:  %0 = "mlirc.softmax"(%x) {dim = 1 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    after:   %0 = "mlirc.amax"(%x) {dims = "1", keepdim = true} : (tensor<4x8xf32>) -> tensor<4x1xf32>
             %1 = "mlirc.sub"(%x, %0) : ...
             %2 = "mlirc.exp"(%1) : ...
             ...

    The new ops have the composite's name in their location, loc("softmax"(...)): kernels are labelled by it.
    """

    name = "decompose"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        block = function.regions[0].blocks[0]
        found = [op for op in block.operations if isinstance(op, Composite)]
        refused: set[ir.Value] = set()
        expansions = Expansions()
        while found:
            for op in found:
                if not ledger.allows(self.name, op):
                    refused.update(op.results)
                    continue
                with ir.InsertionPoint(op), ir.Location.name(type(op).mnemonic, op.location):
                    values = expansions.expand(op)
                for old, new in zip(op.results, values, strict=True):
                    old.replace_all_uses_with(new)
                op.operation.erase()
            # an expansion may hold composites again
            found = [op for op in block.operations if isinstance(op, Composite) and refused.isdisjoint(op.results)]

"""share-heads: on a GPU, cuDNN's attention reads keys that several heads share where they are, not a copy for each head."""

from dataclasses import dataclass
from typing import Any

from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.tensor_types import info_of
from mlirc.lowering.fusion.aten_calls import arguments
from mlirc.lowering.passes.simplify.simplify_attention import before_repeat
from mlirc.lowering.pipeline.ledger import Ledger

ATTENTION = "aten._scaled_dot_product_cudnn_attention.default"
CALLS = ("mlircx.aten", "mlircx.aten_effect")  # PyTorch counts it among random operators, whatever its dropout


@dataclass(frozen=True)
class ShareHeads:
    """Give cuDNN the keys and values that were repeated along the heads.

    before:  %k = "mlirc.copy"(a view of %g in which each head stands four times)
             %0:4 = "mlircx.aten"(%q, %k, %v) {op = "aten._scaled_dot_product_cudnn_attention.default", ...}
                                                        : (tensor<4x32x1024x64>, tensor<4x32x1024x64>, tensor<4x32x1024x64>)
    after:   %0:4 = "mlircx.aten"(%q, %g, %h) {...}     : (tensor<4x32x1024x64>, tensor<4x8x1024x64>, tensor<4x8x1024x64>)

    REPEATED    both are, and equally often
    """

    name = "share-heads"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        for op in list(function.regions[0].blocks[0].operations):
            if op.operation.name not in CALLS or "overridden" in op.attributes:
                continue
            if attribute_value(op.attributes["op"]) != ATTENTION:
                continue
            if arguments(op)[:3] != [{"$": k} for k in range(3)]:
                continue
            shared = [x for x in (before_repeat(op.operands[k]) for k in (1, 2)) if x is not None]
            taken = len(shared) == 2 and info_of(shared[0]).shape[1] == info_of(shared[1]).shape[1]
            ledger.record(self.name, "share", ATTENTION, "REPEATED", taken, op)
            if taken and ledger.allows(self.name, op):
                for k, x in enumerate(shared):
                    op.operands[k + 1] = x

"""convolve-channels-last: on a GPU, images between convolutions lie with their channels innermost, as cuDNN wants them."""

from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.tensor_types import info_of, type_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.fusion.aten_calls import called
from mlirc.lowering.layout.channels_last import (
    channels_last,
    in_channels_last,
    is_put_back,
    relaid,
    spread_channels_last,
)
from mlirc.lowering.pipeline.ledger import Ledger

CONVOLUTIONS = {  # -> operands that are images
    "aten.convolution.default": 2,
    "aten.convolution_backward.default": 3,
    "aten.cudnn_convolution_relu.default": 2,
    "aten.cudnn_convolution_add_relu.default": 3,
}


@dataclass(frozen=True)
class ConvolveChannelsLast:
    """Give convolutions of half types operands in channels-last order, and let their results have it too.

    before:  %0 = "mlircx.aten"(%x, %w) {op = "aten.convolution.default", ...}
             %1 = "mlirc.relu"(%0)
    after:   %a = "mlirc.copy"(%x)  %b = "mlirc.copy"(%w)                    to channels last
             %0 = "mlircx.aten"(%a, %b) {op = "aten.convolution.default", ...}
             %1 = "mlirc.relu"(%0)
             %2 = "mlirc.copy"(%1)                                           back, for readers of eager's order

    cuDNN would copy each operand and result by itself. What stands between convolutions keeps the order (channels_last.py).
    """

    name = "convolve-channels-last"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        block = function.regions[0].blocks[0]
        restored: dict[ir.Value, ir.Value] = {}
        for op in list(block.operations):
            images = convolved_images(op)
            if not images or not ledger.allows(self.name, op):
                continue
            ledger.record(self.name, "layout", called(op), "CHANNELS LAST", True, op)
            with ir.InsertionPoint(op), op.location:
                for k in range(images):
                    op.operands[k] = in_channels_last(op.operands[k])
            for result in op.results:
                before = info_of(result)
                if before.rank == 4 and before != channels_last(before):
                    result.set_type(type_of(channels_last(before)))
                    with ir.InsertionPoint.after(op.operation), op.location:
                        plain = relaid(result, before)
                    result.replace_all_uses_except(plain, plain.owner.operation)
                    restored[plain] = result
        if not restored:
            return
        for op in block.operations:
            if is_put_back(op):
                restored[op.results[0]] = op.operands[0]
        spread_channels_last(block, restored, lambda op: ledger.allows(self.name, op))


def convolved_images(op: Any) -> int:
    """How many of the op's operands are images and weights of a convolution that this is for; 0 if it is none."""
    images = CONVOLUTIONS.get(called(op), 0)
    infos = [info_of(x) for x in list(op.operands)[:images]]
    fits = all(i.rank == 4 and i.device.startswith("cuda") and i.dtype.itemsize == 2 for i in infos)
    return images if fits and len(infos) == images else 0

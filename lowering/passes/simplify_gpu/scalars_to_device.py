"""scalars-to-device: copies 0-d CPU tensors to the GPU whose ops read them."""

from dataclasses import replace
from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import OPS
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.analysis.constant_values import number_of
from mlirc.lowering.pipeline.ledger import Ledger

FREE = ("mlirc.view", "mlirc.copy", "mlirc.assign")  # a view stays where it is; the others go between devices


@dataclass(frozen=True)
class ScalarsToDevice:
    """Copy the 0-d CPU tensors that ops on another device read to that device: eager lets them take part, kernels do not.

    before:  %0 = "mlirc.mul"(%x, %scale) : (tensor<8xf32, {device = "cuda:0"}>, tensor<f32>) -> tensor<8xf32, {device = "cuda:0"}>
    after:   %0 = "mlirc.copy"(%scale) : (tensor<f32>) -> tensor<f32, {device = "cuda:0"}>
             %1 = "mlirc.mul"(%x, %0) : ...

    A number that is known needs no copy: it is made where it is read.
    """

    name = "scalars-to-device"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        copies: dict[tuple[ir.Value, str], ir.Value] = {}
        for op in function.regions[0].blocks[0].operations:
            name = op.operation.name
            if not name.startswith("mlirc.") or name in FREE or name.removeprefix("mlirc.") not in OPS:
                continue
            devices = {info_of(result).device for result in op.results if isinstance(result.type, ir.RankedTensorType)}
            if len(devices) != 1:
                continue
            (device,) = devices
            for k, x in enumerate(op.operands):
                info = info_of(x)
                if info.device == device or info.device != "cpu" or info.rank or not is_tensor(x):
                    continue
                if not ledger.allows(self.name, op):
                    continue
                if (x, device) not in copies:
                    with ir.InsertionPoint(op), op.location:
                        copies[x, device] = on_device(x, device)
                op.operands[k] = copies[x, device]


def is_tensor(x: ir.Value) -> bool:
    return isinstance(x.type, ir.RankedTensorType)


def on_device(x: ir.Value, device: str) -> ir.Value:
    info = replace(info_of(x), device=device)
    number = number_of(x)
    g = GraphBuilder(info)
    return g.copy(x, info) if number is None else g.constant(number, info.dtype)

"""move-to-gpu: a graph that was captured on a CPU, as if its tensors were on a GPU."""

import json
from dataclasses import replace
from typing import Any

from mlirc.dialects.control_flow.region_ops import REGION_OPS, TRUTH
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value, create
from mlirc.dialects.core.tensor_types import change_types, info_of, type_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.pipeline.ledger import Ledger

DEVICE = "cuda:0"


@dataclass(frozen=True)
class MoveToGpu:
    """Put all tensors of a graph on a GPU, to see what its kernels would be: no standard pipeline has it.

    before:  %0 = "mlirc.relu"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    after:   %0 = "mlirc.relu"(%x) : (tensor<4x8xf32, {device = "cuda:0"}>) -> tensor<4x8xf32, {device = "cuda:0"}>

    `-p move-to-gpu`, then `--pipeline gpu --target gpu{arch=sm_90}` on what it wrote; no GPU has to be here. Sizes and strides stay the
    CPU's, and so does what tracing chose for one, such as its operators of attention. What a branch or a loop asks for is copied to the host.
    """

    name = "move-to-gpu"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        if function.operation.parent.name in REGION_OPS or not ledger.allows(self.name, function):
            return  # a region's function moves with the one that it is in
        function.operation.walk(moved)
        function.operation.walk(asks_host)


def moved(op: Any) -> Any:
    """Changes the types of an op, and the devices among an ATen call's arguments."""
    change_types(op, on_gpu)
    if op.name.startswith("mlircx.aten"):
        args = json.loads(attribute_value(op.attributes["args"]))
        op.attributes["args"] = ir.StringAttr.get(json.dumps(with_device(args)))
    return ir.WalkResult.ADVANCE


def asks_host(op: Any) -> Any:
    """Puts what an op branches on back on the CPU: the operand of a cond, and the last argument of a loop's @condition."""
    if op.name == "mlircx.cond":
        op.operands[0] = on_cpu(op.operands[0], op)
    elif op.name == "mlircx.while_loop":
        condition = op.regions[0].blocks[0].operations[0]
        *others, goes_on = condition.regions[0].blocks[0].arguments
        goes_on.set_type(type_of(TRUTH))
        signature = ir.FunctionType.get([*(x.type for x in others), goes_on.type], [])
        condition.attributes["function_type"] = ir.TypeAttr.get(signature)
        for use in list(goes_on.uses):
            assign = use.owner
            assign.operands[1] = on_cpu(assign.operands[1], assign)
    return ir.WalkResult.ADVANCE


def on_cpu(x: ir.Value, reader: Any) -> ir.Value:
    with ir.InsertionPoint(reader), reader.location:
        return create("copy", [x], [type_of(TRUTH)]).out


def on_gpu(type_: ir.Type) -> ir.Type:
    return type_of(replace(info_of(type_), device=DEVICE)) if isinstance(type_, ir.RankedTensorType) else type_


def with_device(x: Any) -> Any:
    """The arguments of a call, with the GPU in place of each device."""
    if isinstance(x, list):
        return [with_device(item) for item in x]
    if isinstance(x, dict):
        return {
            key: DEVICE if key == "device" and isinstance(item, str) else with_device(item) for key, item in x.items()
        }
    return x

"""lower-triton: launches on GPUs become runs of Triton kernels."""

import re
from dataclasses import replace
from itertools import count
from typing import Any

from mlirc.dialects.control_flow.region_ops import module_body
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import create, make_attribute
from mlirc.dialects.core.random_state import OPERATOR
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.dialects.ops.nn.flex_attention import FLEX
from mlirc.lowering.gpu.attention.kernel import flex_kernel
from mlirc.lowering.gpu.kernel import TritonKernel, triton_kernel
from mlirc.lowering.gpu.random_state import state_kernel
from mlirc.lowering.gpu.triton.alignment import aligned_operands
from mlirc.lowering.gpu.triton_op import attributes
from mlirc.lowering.kernel.launch import run_instead
from mlirc.lowering.kernel.nodes import UnsupportedKernelOp, messages, read_kernel, string_attribute, structural_key
from mlirc.lowering.kernel.shared_operands import parts_of_operands, shared_operands
from mlirc.lowering.module.errors import UnsupportedByPass
from mlirc.lowering.module.target_attribute import target_of
from mlirc.lowering.pipeline.ledger import Ledger
from mlirc.lowering.target import Target


@dataclass(frozen=True)
class LowerTriton:
    """Writes a Triton kernel for each distinct launch on a GPU, and makes each launch a run of one.

    before:  "mlircx.launch"(%x, %y) ({ ... }) {parallel = "s0", inner = "", label = "gelu", inputs = 1 : i64}
    after:   "mlircx.run"(%x, %y) ({ ... }) {parallel = "s0", inner = "", label = "gelu", inputs = 1 : i64,
                                             kernel = "kernel_0_gelu", symbols = "s0", messages = []}
             "mlirc.triton"() {sym_name = "kernel_0_gelu", source = "...", signature = ["*fp32", "*fp32", "i64"],
                               grid = ["(s0 + 1023)//1024", "1", "1"], ...}

    Launches of equal structure, devices and alignment share a kernel (SAME STRUCTURE), named after the first's label, so
    that a profile of the GPU reads. Launches on the CPU stay. `random_state` is a kernel that the host program launches itself.
    `aligned_arguments`: the graph's arguments, and what ATen returns, begin at multiples of 16 bytes; the host program
    copies those that do not.
    """

    name = "lower-triton"
    takes = "memory"
    aligned_arguments: bool = True

    def run(self, function: Any, ledger: Ledger) -> None:
        module_block, target = module_body(function), target_of(function)
        taken = {string_attribute(op, "sym_name") for op in module_block.operations if "sym_name" in op.attributes}
        made: dict[tuple, tuple[str, TritonKernel]] = {}
        for launch in [op for op in function.regions[0].blocks[0].operations if op.operation.name == "mlircx.launch"]:
            infos = [info_of(x) for x in launch.operands]
            if not infos or any(not i.device.startswith("cuda") for i in infos):
                continue
            if not ledger.allows(self.name, launch):
                continue
            aligned = aligned_operands(launch, self.aligned_arguments)
            shared = shared_operands(launch)
            within = parts_of_operands(launch)
            key = (structural_key(launch), aligned, shared, within)
            if key not in made:
                label = re.sub(r"\W+", "_", string_attribute(launch, "label"))
                name = next(n for k in count(len(made)) if (n := f"kernel_{k}_{label}".rstrip("_")) not in taken)
                try:
                    kernel = replace(read_kernel(launch), may_alias=shared, subviews=within)
                    made[key] = (name, triton_kernel(kernel, name, infos, target.gpu(infos[0].device), aligned))
                except UnsupportedKernelOp as error:
                    raise UnsupportedByPass(launch, str(error)) from error
                taken.add(name)
                with ir.InsertionPoint(module_block), launch.location:
                    create("triton", [], [], attributes(*made[key]))
            else:
                ledger.record(self.name, "share", string_attribute(launch, "label"), "SAME STRUCTURE", True, launch)
            name, kernel = made[key]
            run_instead(launch, name, kernel.symbols)
        self.lower_calls(function, made, taken, target, ledger)
        drawing = any(map(draws, function.regions[0].blocks[0].operations))
        if "random_state" not in taken and drawing and ledger.allows(self.name, "random_state"):
            with ir.InsertionPoint(module_block), function.location:
                create("triton", [], [], attributes("random_state", state_kernel()))

    def lower_calls(self, function: Any, made: dict, taken: set[str], target: Target, ledger: Ledger) -> None:
        """Calls of attention with a body stay, and get a kernel to launch.

        after:   "mlircx.call"(%q, %k, ..., %out, %lse) ({ ... }) {callee = "flex_attention", kernel = "kernel_1_flex_attention", symbols = "s0", ...}
        """
        module_block = module_body(function)
        for call in function.regions[0].blocks[0].operations:
            if call.operation.name != "mlircx.call" or string_attribute(call, "callee") not in FLEX:
                continue
            if not ledger.allows(self.name, call):
                continue
            callee, aligned = string_attribute(call, "callee"), aligned_operands(call, self.aligned_arguments)
            gpu = target.gpu(info_of(call.operands[0]).device)
            numbers = tuple(str(call.attributes[n]) for n in ("callee", "full", "rows", "columns", "scale", "inputs"))
            key = (structural_key(call), aligned, numbers)
            if key not in made:
                name = next(n for k in count(len(made)) if (n := f"kernel_{k}_{callee}") not in taken)
                try:
                    made[key] = (name, flex_kernel(call, callee, name, gpu, aligned))
                except UnsupportedKernelOp as error:
                    raise UnsupportedByPass(call, str(error)) from error
                taken.add(name)
                with ir.InsertionPoint(module_block), call.location:
                    create("triton", [], [], attributes(*made[key]))
            else:
                ledger.record(self.name, "share", callee, "SAME STRUCTURE", True, call)
            name, kernel = made[key]
            attributes_ = {"kernel": name, "symbols": ", ".join(kernel.symbols), "messages": messages(call)}
            for attribute, value in attributes_.items():
                call.attributes[attribute] = make_attribute(value)


def draws(op: Any) -> bool:
    """Whether it asks for the state of a GPU's generator."""
    return op.operation.name == "mlircx.aten_effect" and string_attribute(op, "op") == OPERATOR

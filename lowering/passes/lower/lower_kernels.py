"""lower-kernels: launches become calls of generated functions."""

from collections.abc import Callable
from dataclasses import field
from itertools import count
from typing import Any

import torch

from mlirc.dialects.control_flow.region_ops import module_body
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value, make_attribute
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.dialects.ops.nn.flex_attention import FLEX
from mlirc.lowering.cpu.loops.frame import KernelText
from mlirc.lowering.cpu.matmul.kinds import gemm_text
from mlirc.lowering.cpu.matmul.match import match_matmul
from mlirc.lowering.kernel.launch import run_instead
from mlirc.lowering.kernel.matmul import contraction_of
from mlirc.lowering.kernel.nodes import (
    Kernel,
    UnsupportedKernelOp,
    messages,
    read_kernel,
    string_attribute,
    structural_key,
)
from mlirc.lowering.module.errors import UnsupportedByPass
from mlirc.lowering.module.forms import GENERATED
from mlirc.lowering.module.target_attribute import target_of
from mlirc.lowering.pipeline.ledger import Ledger
from mlirc.lowering.pipeline.parser import NOT_TEXT
from mlirc.lowering.target import CpuTarget

Listener = Callable[[str, KernelText], None]

CallWriter = tuple[Callable, Callable, Callable, Callable | None]
"""What reads a call; what says why it has no kernel, or ""; what writes its functions; and, unless None, what makes of the call that was
read the one that is written, and the fields that the call passes."""


def writer_of(callee: str) -> CallWriter | None:
    """What writes the functions of calls of `callee`; None where no kernel is one. What writes it takes a while to load: a graph without
    such calls does not."""
    if callee in ("attention", "attention_backward"):
        from mlirc.lowering.cpu.attention import call as attention
        from mlirc.lowering.cpu.attention.backward import backward_text
        from mlirc.lowering.cpu.attention.function import attention_text

        if callee == "attention":
            return attention.read_attention, attention.refusal, attention_text, None
        return attention.read_gradients, attention.backward_refusal, backward_text, None
    if callee == "depthwise_weight_gradient":
        from mlirc.lowering.cpu.convolution import depthwise_call as depthwise
        from mlirc.lowering.cpu.convolution.depthwise_weight_gradient import depthwise_text

        return depthwise.read_depthwise, depthwise.depthwise_refusal, depthwise_text, depthwise.depthwise_plan
    if f"mlirc.{callee}" in GENERATED:
        from mlirc.lowering.cpu.convolution.call import read_convolution, refusal
        from mlirc.lowering.cpu.convolution.forward import convolution_text
        from mlirc.lowering.cpu.convolution.plan import plan
        from mlirc.lowering.cpu.convolution.weight_gradient import weight_gradient_text
        from mlirc.lowering.cpu.convolution.winograd import winograd_text

        plain = weight_gradient_text if callee == "convolution_weight_gradient" else convolution_text
        write = lambda asked, name, target: (winograd_text if asked.results else plain)(asked, name, target)
        return read_convolution, refusal, write, plan
    return None


@dataclass(frozen=True)
class LowerKernels:
    """Writes a function in scf, arith, vector and llvm for each distinct kernel, and makes each launch a run of one.

    before:  "mlircx.launch"(%x, %y) ({ ... }) {parallel = "s0", inner = "", label = "gelu", inputs = 1 : i64}
    after:   "mlircx.run"(%x, %y) ({ ... }) {parallel = "s0", inner = "", label = "gelu", inputs = 1 : i64,
                                             kernel = "kernel_0", symbols = "s0", messages = []}
             func.func @kernel_0(%args: !llvm.ptr) -> i64 { ... }

    Launches of equal structure share a function (SAME STRUCTURE).
    How wide vectors are, and what else the processor has, the module's target says.
    `listener` hears of each kernel as soon as it is written. It takes its text; the module has a declaration.
    """

    name = "lower-kernels"
    takes = "memory"
    gives = "lowered"
    listener: Listener | None = field(default=None, metadata=NOT_TEXT)

    def run(self, function: Any, ledger: Ledger) -> None:
        target = target_of(function).cpu
        module_block = module_body(function)
        taken = {string_attribute(op, "sym_name") for op in module_block.operations if "sym_name" in op.attributes}
        made: dict[Any, tuple[str, KernelText]] = {}
        self.lower_calls(function, made, taken, target, ledger)  # first: for their code LLVM takes longest
        for launch in [op for op in function.regions[0].blocks[0].operations if op.operation.name == "mlircx.launch"]:
            if not ledger.allows(self.name, launch):
                continue
            key = structural_key(launch)
            if key not in made:
                name = next(n for n in map("kernel_{}".format, count(len(made))) if n not in taken)
                try:
                    made[key] = (name, function_text(read_kernel(launch), name, target))
                except UnsupportedKernelOp as error:
                    raise UnsupportedByPass(launch, str(error)) from error
                self.add_functions(module_block, *made[key], taken)
            else:
                ledger.record(self.name, "share", string_attribute(launch, "label"), "SAME STRUCTURE", True, launch)
            name, kernel = made[key]
            run_instead(launch, name, kernel.symbols)

    def lower_calls(self, function: Any, made: dict, taken: set[str], target: CpuTarget, ledger: Ledger) -> None:
        """Calls of attention and of convolutions stay, and get a function to call.

        after:   "mlircx.call"(%q, %k, %v, %out, %lse) {callee = "attention", kernel = "kernel_1", symbols = "s0", ...}
        """
        for call in function.regions[0].blocks[0].operations:
            if call.operation.name != "mlircx.call" or "kernel" in call.attributes:
                continue
            callee = string_attribute(call, "callee")
            writer = writer_of(callee)
            if not (writer or callee in FLEX) or not ledger.allows(self.name, call):
                continue
            if writer is None:
                self.lower_flex_attention(call, module_body(function), made, taken, target)
                continue
            read, refuse, write, planned = writer
            asked: Any = read(call)
            if rule := refuse(asked):
                raise UnsupportedByPass(call, f"{callee} that no kernel of ours computes ({rule})")
            fields = None
            if planned is not None:
                asked, fields = planned(asked, target)
            if asked not in made:
                name = next(n for n in map("kernel_{}".format, count(len(made))) if n not in taken)
                made[asked] = name, kernel = name, write(asked, name, target)
                self.add_functions(module_body(function), name, kernel, taken)
            name, kernel = made[asked]
            call.attributes["kernel"] = ir.StringAttr.get(name)
            call.attributes["symbols"] = ir.StringAttr.get(", ".join(fields or kernel.symbols))

    def lower_flex_attention(self, call: Any, block: ir.Block, made: dict, taken: set[str], target: CpuTarget) -> None:
        """Attention with a body."""
        from mlirc.lowering.cpu.attention.flex import flex_refusal, flex_text
        from mlirc.lowering.kernel.flex_attention import RESULTS, read_problem

        callee = string_attribute(call, "callee")
        numbers = tuple(str(call.attributes[n]) for n in ("full", "rows", "columns", "scale", "inputs"))
        key = callee, structural_key(call), numbers
        if key not in made:
            try:
                problem = read_problem(call, callee)
            except UnsupportedKernelOp as error:
                raise UnsupportedByPass(call, str(error)) from error
            results = len(call.operands) - attribute_value(call.attributes["inputs"])
            q, k, v, out = (problem.info(part) for part in ("q", "k", "v", RESULTS[callee][0]))
            if rule := flex_refusal(callee, q, k, v, out, results):
                raise UnsupportedByPass(call, f"{callee} that no kernel of ours computes ({rule})")
            name = next(n for n in map("kernel_{}".format, count(len(made))) if n not in taken)
            made[key] = name, kernel = name, flex_text(problem, name, target)
            self.add_functions(block, name, kernel, taken)
        name, kernel = made[key]
        call.attributes["kernel"] = ir.StringAttr.get(name)
        call.attributes["symbols"] = ir.StringAttr.get(", ".join(kernel.symbols))
        call.attributes["messages"] = make_attribute(messages(call))

    def add_functions(self, block: ir.Block, name: str, kernel: KernelText, taken: set[str]) -> None:
        """The kernel's functions; where the listener takes its text, a declaration, which costs less than to parse it."""
        source = [*dict.fromkeys(kernel.declarations), kernel.functions]
        if self.listener is not None:
            self.listener(name, kernel)
            source = [f"func.func private @{name}(!llvm.ptr) -> i64"]
        parsed = ir.Module.parse("\n".join(source))
        for op in list(parsed.body.operations):
            function = string_attribute(op, "sym_name")
            if function not in taken:
                taken.add(function)
                op.operation.detach_from_parent()
                block.append(op)


def function_text(kernel: Kernel, name: str, target: CpuTarget) -> KernelText:
    if kernel.is_statically_empty:  # it has no axes to write loops of
        from mlirc.lowering.cpu.loops.function import empty_text

        return empty_text(name)
    matmul = match_matmul(kernel)
    made = gemm_text(matmul, name, target) if matmul else None
    if made is None and any(contraction_of(kernel, dtype) for dtype in (torch.float32, torch.int32)):
        made = contraction_text(kernel, name, target)
    if made is not None:
        return made
    from mlirc.lowering.cpu.loops.function import kernel_text  # for a graph that is more than matmuls

    return kernel_text(kernel, name, target)


def contraction_text(kernel: Kernel, name: str, target: CpuTarget) -> KernelText | None:
    """A kernel whose sum of products is a convolution's, or a matmul's by a weight that it computes itself; None for another one."""
    from mlirc.lowering.cpu.convolution.direct import direct_text
    from mlirc.lowering.cpu.convolution.grouped import grouped_text
    from mlirc.lowering.cpu.convolution.grouped_windows import match_groups
    from mlirc.lowering.cpu.convolution.windows import match_windows
    from mlirc.lowering.cpu.quantised.dequantising import quantised_text
    from mlirc.lowering.cpu.quantised.integers import integer_text, match_integers
    from mlirc.lowering.cpu.quantised.match import match_quantised
    from mlirc.lowering.cpu.quantised.unpacking import match_unpacked, unpacked_text

    made = None
    if windows := match_windows(kernel):
        made = direct_text(windows, name, target)
    if made is None and (groups := match_groups(kernel, target.vector_bytes // 4)):
        made = grouped_text(groups, name, target)
    if made is None and (quantised := match_quantised(kernel)):
        made = quantised_text(quantised, name, target)
    if made is None and (integers := match_integers(kernel)):
        made = integer_text(integers, name, target)
    if made is None and (unpacked := match_unpacked(kernel)):
        made = unpacked_text(unpacked, name, target)
    return made

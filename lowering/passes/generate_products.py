"""generate-products: matrix products by a parameter become kernels."""

from dataclasses import dataclass
from typing import Any

import torch

from mlirc.dialects.bindings import ir
from mlirc.dialects.dialect import create
from mlirc.dialects.kernel_builder import KernelBuilder
from mlirc.dialects.kernel_forms import broadcast_map
from mlirc.dialects.ops.pair_panels import pair_panel_map, pair_panels_info
from mlirc.dialects.ops.panels import panel_map, panels_info
from mlirc.dialects.tensor_types import info_of, type_of
from mlirc.lowering.cpu_target import CpuTarget, host
from mlirc.lowering.ledger import Ledger
from mlirc.lowering.origins import parameter_arguments, view_root
from mlirc.lowering.source_lines import source_line

MOST_K = 4096  # a block of rows is packed on a thread's stack
# the op that packs, the type of what it gives, and where an element is in that
PLAIN = ("panels", panels_info, panel_map)
PAIRS = ("pair_panels", pair_panels_info, pair_panel_map)


@dataclass(frozen=True)
class GenerateProducts:
    """Make a product by a parameter a kernel over packed panels, which fusion then gives an epilogue.

    before:  %1 = "mlirc.addmm"(%bias, %x, %w)
    after:   %0 = "mlirc.panels"(%w) : (tensor<768x3072xf32, {stride = "1, 768"}>) -> tensor<96x768x32xf32>
             %1 = "mlircx.kernel"(%x, %0, %bias) ({
                    %a = read(%x) {map = "d0, d2"}
                    %b = read(%0) {map = "d1//32, d2, d1 % 32"}
                    %s = reduce(mul(%a, %b)) {kind = "sum"}
                    yield add(%s, read(%bias) {map = "d1"})
                  }) {parallel = "256, 3072", inner = "768"}

    PARAMETER: only what stays the same between calls is worth packing; such arguments carry {mlirc.parameter}.
    Factors in bfloat16 are widened in the kernel; their panels hold pairs along K where the processor multiplies pairs.
    product_function.py generates the code. Every other product is a library call.
    """

    name = "generate-products"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        parameters = parameter_arguments(function)
        for op in list(function.regions[0].blocks[0].operations):
            if op.operation.name not in ("mlirc.matmul", "mlirc.addmm"):
                continue
            *bias, x, w = op.operands
            rule = self.refusal(parameters, x, w)
            line = source_line(op.location)
            ledger.record(self.name, "generate", op.operation.name, rule or "PARAMETER", not rule, line)
            if rule:
                continue
            with ir.InsertionPoint(op), op.location:
                made = product(bias, x, w, op.results[0])
            op.results[0].replace_all_uses_with(made)
            op.operation.erase()

    def refusal(self, parameters: set, x: ir.Value, w: ir.Value) -> str:
        """The rule that stands against it, or ""."""
        info = info_of(w)
        if view_root(w) not in parameters:
            return "PARAMETER"
        if info.dtype not in generated_dtypes(host()) or info.rank != 2:
            return "DTYPE"
        k, n = info.shape
        if not isinstance(k, int) or not isinstance(n, int) or not 0 < k <= MOST_K:
            return "STATIC K"
        return ""


def generated_dtypes(target: CpuTarget) -> tuple[torch.dtype, ...]:
    """Of the products for which generated code beats the library."""
    library_is_better = target.arch != "x86_64" or target.bf16_tiles
    return (torch.float32,) if library_is_better else (torch.float32, torch.bfloat16)


def product(bias: list[ir.Value], x: ir.Value, w: ir.Value, result: ir.Value) -> ir.Value:
    out = info_of(result)
    in_pairs = info_of(w).dtype == torch.bfloat16 and host().multiplies_pairs
    name, describe, index = PAIRS if in_pairs else PLAIN
    panels = create(name, [w], [type_of(describe(info_of(w)))]).out
    k = KernelBuilder(out.shape, info_of(x).shape[-1:], "product")
    row, column, at = k.dims
    total = k.reduce("sum", k.mul(k.read(x, (row, at)), k.read(panels, index(at, column))))
    for b in bias:
        total = k.add(total, k.read(b, broadcast_map(b, (row, column))))
    return k.finish([(total, (row, column), out)])[0]

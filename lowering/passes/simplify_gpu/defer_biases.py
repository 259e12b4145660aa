"""defer-biases: what is added to a residual stream for each column is added where the stream is read, on a GPU."""

from dataclasses import dataclass
from typing import Any

import torch

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import create
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.dialects.core.tensor_types import info_of, type_of
from mlirc.lowering.analysis.provenance import parameter_arguments
from mlirc.lowering.module.forms import MATMULS
from mlirc.lowering.module.source_lines import source_line
from mlirc.lowering.passes.simplify_gpu.add_residuals import matmul_of
from mlirc.lowering.pipeline.ledger import Ledger


@dataclass(frozen=True)
class DeferBiases:
    """Add the bias of a product after the residual, so that the library can add the residual (add-residuals).

    before:  %0 = "mlirc.addmm"(%b, %x, %w);  %1 = "mlirc.add"(%r, %0)       of which a layer norm and the next sum are made
    after:   %0 = "mlirc.matmul"(%x, %w);     %s = "mlirc.add"(%r, %0)
             %1 = %s + %b, in float32, which each reader computes again; for the next sum %r is %s, and its bias %b more

    The stream is then written by products alone. Biases are added up in float32, once (hoist-parameters).
    ONE READER  nothing else reads the product, which is of half types; its bias is a parameter
    COMPUTED    the sum is read by what becomes kernels: not returned, not a factor of a product
    """

    name = "defer-biases"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        parameters = parameter_arguments(function)
        parts: dict[ir.Value, tuple[ir.Value, ir.Value]] = {}  # a sum -> itself without its biases, and those
        dead: list[Any] = []
        for op in [op for op in function.regions[0].blocks[0].operations if op.operation.name == "mlirc.add"]:
            found = biased(op, parameters)
            if found is None:
                continue
            taken = all(map(is_computed, (use.owner for use in op.results[0].uses))) and ledger.allows(self.name, op)
            ledger.record(self.name, "defer", "bias", "COMPUTED", taken, source_line(op.location))
            if taken:
                defer(op, *found, parts)
                dead += [op, found[0]]
        for op in dead:
            op.operation.erase()


def biased(op: Any, parameters: set[ir.Value]) -> tuple[Any, ir.Value, ir.Value] | None:
    """The product with a bias that an addition on a GPU is of, that as it is read, and what it is added to."""
    out = info_of(op.results[0])
    if not out.device.startswith("cuda") or out.dtype not in (torch.float16, torch.bfloat16):
        return None
    for value, addend in (tuple(op.operands), tuple(op.operands)[::-1]):
        matmul = matmul_of(value, "mlirc.addmm")
        if matmul is None or info_of(value) != out or info_of(addend) != out or matmul_of(addend) is not None:
            continue
        bias, x = matmul.operands[0], value
        alone = len(list(x.uses)) == 1
        while alone and x.owner.operation.name == "mlirc.view":
            x = x.owner.operands[0]
            alone = len(list(x.uses)) == 1
        if alone and bias in parameters and info_of(bias).rank == 1:
            return matmul, value, addend
    return None


def is_computed(reader: Any) -> bool:
    """Whether a reader, or all of a view's, become kernels."""
    name = reader.operation.name
    if name == "mlirc.view":
        return all(is_computed(use.owner) for use in reader.results[0].uses)
    return name.startswith("mlirc.") and name not in (*MATMULS, "mlirc.assign")


def defer(op: Any, matmul: Any, value: ir.Value, addend: ir.Value, parts: dict) -> None:
    """The two ops go when nothing reads them: afterwards."""
    out, (bias, *factors) = info_of(op.results[0]), matmul.operands
    with ir.InsertionPoint(matmul), matmul.location:
        made = create("matmul", factors, [matmul.results[0].type]).out
    matmul.results[0].replace_all_uses_with(made)
    value = made if value == matmul.results[0] else value
    with ir.InsertionPoint(op), op.location:
        g = GraphBuilder(out)
        stream, before = parts.get(addend, (addend, None))
        more = g.cast(bias, torch.float32)
        more = more if before is None else g.add(before, more)
        total = create("add", [stream, value], [type_of(out)]).out
        whole = g.cast(g.add(g.cast(total, torch.float32), more), out.dtype)
    op.results[0].replace_all_uses_with(whole)
    parts[whole] = total, more

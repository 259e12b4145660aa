"""generate-matmuls: matmuls become kernels, where generated code beats the library."""

from typing import Any

import torch

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import create
from mlirc.dialects.core.kernel_builder import KernelBuilder
from mlirc.dialects.core.kernel_forms import broadcast_map
from mlirc.dialects.core.tensor_info import TensorInfo
from mlirc.dialects.core.tensor_types import info_of, type_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.dialects.ops.movement.pair_panels import pair_panel_map, pair_panels_info
from mlirc.dialects.ops.movement.panels import panel_map, panels_info
from mlirc.lowering.analysis.provenance import parameter_arguments, view_root
from mlirc.lowering.kernel.typical_sizes import typical
from mlirc.lowering.module.target_attribute import target_of
from mlirc.lowering.pipeline.ledger import Ledger
from mlirc.lowering.target import CpuTarget

MOST_K = 4096  # a block of rows is packed on a thread's stack
# Matmuls of fewer rows and columns than these are the library's: panels are packed for each matmul anew.
FEWEST_ROWS, FEWEST_COLUMNS, FEWEST_STEPS = 48, 32, 8
# A kernel adds sums up in scratch and writes them once more. Where steps are few and results many, and nothing is computed from them in the
# kernel, that takes 1.2 to 1.8 times as long as the library; where something is, 0.4 to 0.8 of it.
STEPS_OF_SUMS, MANY_SUMS = 48, 1 << 17
# Of large rows by few columns all time goes into reading the rows, at which the library is 1.4 times as fast.
FEW_COLUMNS, MANY_ELEMENTS = 16, 1 << 20
# the op that packs, the type of what it gives, and where an element is in that
PLAIN = ("panels", panels_info, panel_map)
PAIRS = ("pair_panels", pair_panels_info, pair_panel_map)


@dataclass(frozen=True)
class GenerateMatmuls:
    """Make a matmul a kernel, which fusion then gives an epilogue: by what lies in memory as it is, or over packed panels.

    before:  %1 = "mlirc.addmm"(%bias, %x, %w)
    after:   %1 = "mlircx.kernel"(%x, %w, %bias) ({
                    %a = read(%x) {map = "d0, d2"}
                    %b = read(%w) {map = "d2, d1"}         or read(%0) {map = "d1//32, d2, d1 % 32"}, %0 = "mlirc.panels"(%w)
                    %s = reduce(mul(%a, %b)) {kind = "sum"}
                    yield add(%s, read(%bias) {map = "d1"})
                  }) {parallel = "256, 3072", inner = "768"}

    IN PLACE    a parameter whose columns lie along k, as a linear layer's do, is read where it is, in every dtype and for
                any number of rows; other float32 matrices, where rows are enough to pay for packing as the matmul runs
    PARAMETER   a parameter in bfloat16 that lies otherwise is packed once; such arguments carry {mlirc.parameter}
    Refused are
    FLOAT32 MATRIX  a batched matmul, or one of another dtype without a parameter
    PACKING PAYS    too few rows, columns or steps along k to pay for packing
    FOLLOWED        few steps along k and many results, as the gradient of a weight in a small batch has, and nothing is computed from them
    FEW COLUMNS     large rows by a parameter of few columns
    STATIC N, K     sizes of the second factor that are symbols, or none along k
    LONG K          in bfloat16, more steps along k than a block of rows on a thread's stack has
    Factors in bfloat16 are widened in the kernel; panels hold pairs along K where the processor multiplies pairs.
    matmul/kinds.py says which file generates the code. Every other matmul is a library call.

    always      no matmul is a library call, whatever it costs: for programs that run where there is no library; a float32
                parameter that lies otherwise is then packed for few rows
    """

    always: bool = False

    name = "generate-matmuls"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        parameters, target = parameter_arguments(function), target_of(function).cpu
        for op in list(function.regions[0].blocks[0].operations):
            if op.operation.name not in ("mlirc.matmul", "mlirc.addmm"):
                continue
            *_, x, w = op.operands
            packed = view_root(w) in parameters and packing_pays(x, w, target, self.always)
            against = refused_by_panels(w, target) if packed else refused_by_blocks(x, w, view_root(w) in parameters)
            if not against and not packed and has_few_steps(x, w) and not is_followed(op.results[0]):
                against = "FOLLOWED"
            if self.always and against:
                packed, against = False, ""
            if not against and not ledger.allows(self.name, op):
                continue
            rule = "PARAMETER" if packed else "IN PLACE"
            numbers = compared(x, w, against)
            ledger.record(self.name, "generate", op.operation.name, against or rule, not against, op, **numbers)
            if not against:
                make_matmul_kernel(op, panels=target if packed else None)


def refused_by_panels(w: ir.Value, target: CpuTarget) -> str:
    """The rule that stands against a matmul over panels that are packed once, or ""."""
    info = info_of(w)
    if info.dtype not in generated_dtypes(target) or info.rank != 2:
        return "DTYPE"
    k, n = info.shape
    if not isinstance(k, int) or not isinstance(n, int) or k == 0:
        return "STATIC K"
    if info.dtype != torch.float32 and k > MOST_K:
        return "LONG K"
    return ""


def packing_pays(x: ir.Value, w: ir.Value, target: CpuTarget, always: bool) -> bool:
    """Whether a parameter whose columns do not lie along k had better be packed once: in bfloat16, or for few rows without a library.

    A library multiplies few rows in the time that the fingerprint of packed panels takes in each call, which reads all of the parameter.
    """
    info = info_of(w)
    if info.rank != 2 or info.dtype not in generated_dtypes(target):
        return True  # which refuses it
    return not lies_along_k(info) and (info.dtype != torch.float32 or (always and has_few_rows(x)))


def lies_along_k(info: TensorInfo) -> bool:
    return info.stride[0] == 1 and isinstance(info.shape[0], int) and isinstance(info.shape[1], int)


def has_few_rows(x: ir.Value) -> bool:
    return typical(info_of(x).shape[0]) < FEWEST_ROWS


def refused_by_blocks(x: ir.Value, w: ir.Value, parameter: bool) -> str:
    """The rule that stands against a matmul as they lie in memory, or ""."""
    rows, columns = info_of(x), info_of(w)
    if rows.rank != 2 or columns.rank != 2 or not (rows.dtype == torch.float32 or parameter):
        return "FLOAT32 MATRIX"
    (m, k), n = rows.shape, columns.shape[1]
    if not isinstance(n, int):
        return "STATIC N"
    if parameter:
        if k == 0:
            return "STATIC K"
        if n <= FEW_COLUMNS and rows.dtype == torch.float32 and typical(m) * typical(k) >= MANY_ELEMENTS:
            return "FEW COLUMNS"
        return "PACKING PAYS" if has_few_rows(x) and not lies_along_k(columns) else ""
    large = typical(m) >= FEWEST_ROWS and n >= FEWEST_COLUMNS and typical(k) >= FEWEST_STEPS
    return "" if large else "PACKING PAYS"


def has_few_steps(x: ir.Value, w: ir.Value) -> bool:
    """Whether results are many and sums short, in float32."""
    (m, k), n = info_of(x).shape, info_of(w).shape[1]
    many = typical(m) * typical(n) >= MANY_SUMS
    return many and typical(k) < STEPS_OF_SUMS and info_of(w).dtype == torch.float32


def is_followed(x: ir.Value) -> bool:
    """Whether an op of ours reads the value or a view of it, other than a matmul: it may become a part of the kernel."""
    for use in x.uses:
        name = use.owner.operation.name
        if name == "mlirc.view":
            if is_followed(use.owner.results[0]):
                return True
        elif name.startswith("mlirc.") and "matmul" not in name and name not in ("mlirc.addmm", "mlirc.bmm"):
            return True
    return False


def compared(x: ir.Value, w: ir.Value, rule: str) -> dict[str, int]:
    """The numbers that a rule against a matmul compares."""
    if rule not in ("PACKING PAYS", "LONG K", "FOLLOWED", "FEW COLUMNS"):
        return {}
    (rows, steps), columns = map(typical, info_of(x).shape), typical(info_of(w).shape[1])
    if rule == "FOLLOWED":
        return {"steps": steps, "least_steps": STEPS_OF_SUMS, "results": rows * columns, "many": MANY_SUMS}
    if rule == "FEW COLUMNS":
        return {"columns": columns, "few": FEW_COLUMNS, "elements": rows * steps, "many": MANY_ELEMENTS}
    if info_of(w).dtype != torch.float32:
        return {"steps": steps, "most_steps": MOST_K}
    least = {"least_rows": FEWEST_ROWS, "least_columns": FEWEST_COLUMNS, "least_steps": FEWEST_STEPS}
    return {"rows": rows, "columns": columns, "steps": steps, **least}


def generated_dtypes(target: CpuTarget) -> tuple[torch.dtype, ...]:
    """The dtypes for which generated matmuls are faster than the library's."""
    library_is_better = target.arch != "x86_64" or target.bf16_tiles
    return (torch.float32,) if library_is_better else (torch.float32, torch.bfloat16)


def make_matmul_kernel(op: Any, label: str = "matmul", panels: CpuTarget | None = None) -> ir.Value:
    """Replaces a `mlirc.matmul` or `mlirc.addmm`, of any dtype, strides and sizes, by a kernel over its operands as they lie in memory.

    Gives the kernel's result, which has the type of the op's. The op is erased. `label` is the kernel's name in reports.
    panels: the columns lie in panels, which are made here for that processor."""
    *bias, x, w = op.operands
    with ir.InsertionPoint(op), op.location:
        made = matmul_kernel(bias, x, w, info_of(op.results[0]), panels, label)
    op.results[0].replace_all_uses_with(made)
    op.operation.erase()
    return made


def matmul_kernel(
    bias: list[ir.Value], x: ir.Value, w: ir.Value, out: TensorInfo, panels: CpuTarget | None, label: str
) -> ir.Value:
    columns, index = w, lambda k, n: (k, n)
    if panels is not None:
        in_pairs = info_of(w).dtype == torch.bfloat16 and panels.bf16_pairs
        name, describe, index = PAIRS if in_pairs else PLAIN
        columns = create(name, [w], [type_of(describe(info_of(w)))]).out
    k = KernelBuilder(out.shape, info_of(x).shape[-1:], label)
    *batch, row, column, at = k.dims
    total = k.reduce("sum", k.mul(k.read(x, (*batch, row, at)), k.read(columns, (*batch, *index(at, column)))))
    for b in bias:
        total = k.add(total, k.read(b, broadcast_map(b, (*batch, row, column))))
    return k.finish([(total, (*batch, row, column), out)])[0]

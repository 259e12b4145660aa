"""add-residuals: what is added to a matmul goes into the library's product, on a GPU."""

from dataclasses import dataclass
from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import create
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.dialects.core.symbols import floordiv, mod, product, symbol
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, type_of
from mlirc.lowering.module.source_lines import source_line
from mlirc.lowering.pipeline.ledger import Ledger


@dataclass(frozen=True)
class AddResiduals:
    """Let cuBLAS add a residual, or another product, while it has the product in registers.

    before:  %0 = "mlirc.matmul"(%x, %w) : tensor<4096x2048xbf16>
             %1 = "mlirc.add"(%r, %0 as 4x1024x2048) : tensor<4x1024x2048xbf16>
    after:   %0 = "mlirc.addmm"(%r as 4096x2048, %x, %w)
             %1 = %0 as 4x1024x2048

    The sum is rounded once, not twice. Reading the addend costs the product next to nothing, where it is bound by its
    arithmetic; the kernel that the sum would be part of reads one tensor less, and may write none.
    ONE READER  nothing else reads the product
    BEFORE      the addend, laid out by rows like the product, is there before it, and nothing is overwritten in between
    """

    name = "add-residuals"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        ops = list(function.regions[0].blocks[0].operations)
        position = {x: k for k, op in enumerate(ops) for x in op.results}  # an op's hash changes with its operands
        assigns = [k for k, op in enumerate(ops) if op.operation.name == "mlirc.assign"]
        dead: list[Any] = []
        for op in ops:
            if op.operation.name != "mlirc.add" or not info_of(op.results[0]).device.startswith("cuda"):
                continue
            x, y = op.operands
            found = [(p, value, addend) for value, addend in ((x, y), (y, x)) if (p := matmul_of(value)) is not None]
            if not found:
                continue
            matmul, value, addend = max(
                found, key=lambda pair: position[pair[0].results[0]]
            )  # of two products the later one
            rule = refusal(op, matmul, value, addend, position, assigns)
            rule = rule or ("" if ledger.allows(self.name, op) else "REWRITES")
            ledger.record(self.name, "fuse", "add", rule or "BEFORE", not rule, source_line(op.location))
            if not rule:
                made = fold(op, matmul, value, addend)
                position[made.results[0]] = position[matmul.results[0]]
                dead += [op, matmul]
        for op in dead:
            op.operation.erase()


def matmul_of(x: ir.Value, name: str = "mlirc.matmul") -> Any | None:
    """The product `name`, of two dimensions and whole rows, that `x` is, or is a reshape of. None for anything else."""
    out = info_of(x)
    if out.rank == 0:
        return None
    while not isinstance(x.owner, ir.Block) and x.owner.operation.name == "mlirc.view":
        x = x.owner.operands[0]
        info = info_of(x)
        if info.numel != out.numel or not info.is_contiguous or info.rank == 0 or info.shape[-1] != out.shape[-1]:
            return None
    if isinstance(x.owner, ir.Block) or x.owner.operation.name != name:
        return None
    return x.owner if info_of(x).rank == 2 and info_of(x).is_contiguous and out.is_contiguous else None


def refusal(
    op: Any, matmul: Any, value: ir.Value, addend: ir.Value, position: dict[ir.Value, int], assigns: list[int]
) -> str:
    """The rule by which the addition stays, or ""."""
    out, info = info_of(op.results[0]), info_of(addend)
    if info != out or info_of(value) != out or not out.dtype.is_floating_point or out.dtype.itemsize > 4:
        return "BEFORE"
    x = value
    while True:
        if len(list(x.uses)) != 1:
            return "ONE READER"
        if x.owner.operation.name != "mlirc.view":
            break
        x = x.owner.operands[0]
    first, last = position[matmul.results[0]], position[op.results[0]]
    there = isinstance(addend.owner, ir.Block) or position[addend] < first
    return "" if there and not any(first < k < last for k in assigns) else "BEFORE"


def fold(op: Any, matmul: Any, value: ir.Value, addend: ir.Value) -> Any:
    """The product with the addition, in the product's place; nothing uses the two ops any more."""
    out, matrix = info_of(op.results[0]), info_of(matmul.results[0])
    with ir.InsertionPoint(matmul), matmul.location:
        g = GraphBuilder(out)
        rows = addend if out.rank == 2 else g.view(addend, matrix.shape, matrix.stride, by_rows(out))
        made = create("addmm", [rows, *matmul.operands], [type_of(matrix)])
    matmul.results[0].replace_all_uses_with(made.out)
    op.results[0].replace_all_uses_with(value if value != matmul.results[0] else made.out)
    return made


def by_rows(info: TensorInfo) -> tuple[Any, ...]:
    """Where in a tensor element (d0, d1) of it as a matrix lies, whose columns are the last dimension's."""
    row, lead = symbol("d0"), info.shape[:-1]
    index = [
        mod(floordiv(row, product(lead[k + 1 :])), n) if k else floordiv(row, product(lead[1:]))
        for k, n in enumerate(lead)
    ]
    return (*index, symbol("d1"))

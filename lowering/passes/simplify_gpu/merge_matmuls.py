"""merge-matmuls: matmuls of one matrix by several parameters become one matmul, on a GPU."""

from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import create
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.dialects.core.symbols import symbol
from mlirc.dialects.core.tensor_info import TensorInfo
from mlirc.dialects.core.tensor_types import info_of, type_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.dialects.ops.movement.concat_pad import concatenate
from mlirc.lowering.analysis.provenance import parameter_arguments, view_root
from mlirc.lowering.kernel.typical_sizes import static
from mlirc.lowering.layout.moved_views import may_move, move
from mlirc.lowering.pipeline.ledger import Ledger

ALIGNMENT = 16  # bytes: parts of the result begin at multiples of it
MOST = 4  # matmuls that are merged


@dataclass(frozen=True)
class MergeMatmuls:
    """Multiply by several parameters at once, which lie one after the other in a copy of them.

    before:  %q = "mlirc.addmm"(%a, %x, %wq) : (tensor<768xbf16>, tensor<8192x768xbf16>, ...) -> tensor<8192x768xbf16>
             %k = "mlirc.addmm"(%b, %x, %wk)
    after:   %w = "mlirc.cat2"(the parameters)  %c = "mlirc.cat2"(%a, %b)                          see hoist-parameters
             %r = "mlirc.addmm"(%c, %x, %w) : tensor<8192x1536xbf16>
             %q, %k = views of its columns, and so are views of them, whose strides change

    SAME ROWS   the matmuls have the same first factor; the second ones, and the biases, are whole parameters, in one order
    A matmul that the graph returns, or that a view without a map reads, stays: its strides are promised.
    The copies are kept beside the parameters: as much memory again.
    """

    name = "merge-matmuls"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        parameters = parameter_arguments(function)
        groups: dict[tuple, list[Any]] = {}
        for op in list(function.regions[0].blocks[0].operations):
            key = group_key(op, parameters)
            if key is not None:
                groups.setdefault(key, []).append(op)
        for members in groups.values():
            for first in range(0, len(members) - 1, MOST):
                part = members[first : first + MOST]
                taken = len(part) > 1 and all(may_move(op.results[0], (total_width(part), 1)) for op in part)
                taken = taken and ledger.allows(self.name, part[0])
                ledger.record(self.name, "merge", f"{len(part)} matmuls", "SAME ROWS", taken, part[0])
                if taken:
                    with ir.InsertionPoint(part[0]), part[0].location:
                        merge(part)


def group_key(op: Any, parameters: set[ir.Value]) -> tuple | None:
    """Equal for matmuls that can be one; None for what is no matmul of rows by a parameter on a GPU."""
    name = op.operation.name
    if name not in ("mlirc.matmul", "mlirc.addmm"):
        return None
    *bias, x, w = op.operands
    root, info, columns = view_root(w), info_of(w), info_of(op.results[0]).shape[-1]
    whole = info_of(root)
    if not info.device.startswith("cuda") or info.rank != 2 or root not in parameters or not whole.is_contiguous:
        return None
    if not isinstance(columns, int) or columns * info.dtype.itemsize % ALIGNMENT:
        return None
    if any(b not in parameters or info_of(b).shape != (columns,) for b in bias):
        return None
    transposed = whole.shape == info.shape[::-1] and info.stride == whole.stride[::-1]
    straight = whole == info
    return (x, name, info.dtype, transposed) if transposed or straight else None


def total_width(matmuls: list[Any]) -> int:
    return sum(static(info_of(op.results[0]).shape)[1] for op in matmuls)


def merge(matmuls: list[Any]) -> None:
    """Replaces the matmuls by one, at the insertion point."""
    first = matmuls[0]
    x, w = list(first.operands)[-2:]
    g = GraphBuilder(info_of(first.results[0]))
    roots = [view_root(op.operands[len(op.operands) - 1]) for op in matmuls]
    transposed = info_of(roots[0]) != info_of(w)
    columns = concatenate(g, roots, 0 if transposed else 1)
    operands = [x, g.permute(columns, [1, 0]) if transposed else columns]
    if len(first.operands) == 3:
        operands.insert(0, concatenate(g, [op.operands[0] for op in matmuls], 0))
    rows = info_of(x).shape[0]
    widths = [info_of(op.results[0]).shape[1] for op in matmuls]
    info = info_of(first.results[0])
    result = TensorInfo(info.dtype, (rows, total_width(matmuls)), device=info.device)
    made = create(first.operation.name.removeprefix("mlirc."), operands, [type_of(result)]).out
    starts = [sum(widths[:k]) for k in range(len(widths))]
    parts = [
        g.view(made, (rows, width), result.stride, [symbol("d0"), symbol("d1") + start], start)
        for start, width in zip(starts, widths, strict=True)
    ]
    for op, part in zip(matmuls, parts, strict=True):
        move(op.results[0], part)
        op.operation.erase()

"""pad-matmuls: matrices whose rows are no multiple of 16 bytes are padded, where that makes a matmul on a GPU faster."""

from dataclasses import replace
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import Elementwise, Reduction, attribute_value, create
from mlirc.dialects.core.graph_builder import GraphBuilder, constant_text
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import TensorInfo, contiguous, info_of, type_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.analysis.provenance import parameter_arguments, view_root
from mlirc.lowering.passes.lower.split_unaligned import is_by_rows
from mlirc.lowering.pipeline.ledger import Ledger

ALIGNMENT = 16  # bytes: what the library's fast kernels load at once
# The library computes an unaligned matmul at a third of its speed. On an H200 that costs as much as moving a byte for
# each 85 operations: 2/3 of the time at 7.9e14 operations a second, against 4.3e12 bytes a second.
WORTH = 130  # operations for each byte that padding moves


@dataclass(frozen=True)
class PadMatmuls:
    """Pad the operands of large matmuls of half types with zeros to sizes that the library is fast for.

    before:  %0 = "mlirc.matmul"(%x, %w) : (tensor<8192x768xbf16>, tensor<768x30522xbf16>) -> tensor<8192x30522xbf16>
    after:   %p = "mlirc.pad"(%w) : tensor<768x30528xbf16>
             %1 = "mlirc.matmul"(%x, %p) : tensor<8192x30528xbf16>
             %0 = "mlirc.copy"(the view of %1 without its last columns) : tensor<8192x30522xbf16>

    ALIGNED     the rows of all three matrices as they lie in memory are multiples of 16 bytes already: stays
    TOO SMALL   moving the padded matrices would take longer than the matmul gains
    BY ROWS     only the rows of a result that the graph returns are unaligned: split-unaligned writes it as it lies
    With `frozen` a parameter is padded once (hoist-parameters); readers of the
    result skip the padding. Other readers of a computed operand, such as a bias's gradient, read the padded operand, so that the unpadded one
    is never stored.
    """

    name = "pad-matmuls"
    takes = "graph"
    frozen: bool = False  # what is computed of parameters is kept between calls

    def run(self, function: Any, ledger: Ledger) -> None:
        frozen_values = parameter_arguments(function) if self.frozen else set()
        for op in list(function.regions[0].blocks[0].operations):
            if op.operation.name not in ("mlirc.matmul", "mlirc.addmm"):
                continue
            out = info_of(op.results[0])
            infos = [info_of(x) for x in op.operands]
            if out.rank != 2 or not out.device.startswith("cuda") or out.dtype.itemsize != 2:
                continue
            if any(not isinstance(n, int) for info in (*infos, out) for n in (*info.shape, *info.stride)):
                continue
            wanted = padded_sizes(infos[-2], infos[-1])
            rule, numbers = refusal(op, wanted, frozen_values)
            rule = rule or ("" if ledger.allows(self.name, op) else "REWRITES")
            label = " x ".join(map(str, (out.shape[0], infos[-2].shape[1], out.shape[1])))
            ledger.record(self.name, "pad", f"matmul {label}", rule or "PADDED", not rule, op, **numbers)
            if not rule:
                with ir.InsertionPoint(op), op.location:
                    made = padded(op, wanted)
                op.results[0].replace_all_uses_with(made)
                op.operation.erase()
        for op in list(function.regions[0].blocks[0].operations):
            if op.operation.name == "mlirc.pad":
                reuse(op, ledger, self.name)


def reuse(pad: Any, ledger: Ledger, pass_name: str) -> None:
    """Gives readers of a padded value the padded matrix. Paddings for other matmuls stay, and cse merges them with this one."""
    same = [pad.operands[0]]  # what was padded, as it was before it was viewed
    while not isinstance(same[-1].owner, ir.Block) and same[-1].owner.operation.name == "mlirc.view":
        same.append(same[-1].owner.operands[0])
    x = same[-1]
    info, wide = info_of(x), info_of(pad.results[0])
    rows = info.rank == wide.rank == 2 and info.shape[0] == wide.shape[0] and info.is_contiguous
    if isinstance(x.owner, ir.Block) or not rows or info_of(pad.operands[0]) != info:
        return
    readers = [(use.owner, use.operand_number) for y in same if info_of(y) == info for use in y.uses]
    wanted = [
        (r, k)
        for r, k in readers
        if isinstance(r, (Elementwise, Reduction)) and pad.operation.is_before_in_block(r.operation)
    ]
    if wanted and ledger.allows(pass_name, pad):
        with ir.InsertionPoint.after(pad.operation), pad.location:
            index = [symbols.symbol("d0"), symbols.symbol("d1")]
            part = GraphBuilder(info).view(pad.results[0], info.shape, wide.stride, index)
        for reader, k in wanted:
            if reader.operation.name == "mlirc.sum" and attribute_value(reader.attributes["dims"]) == "0":
                sum_padded(reader, pad.results[0])  # so that one kernel can write the matrix and sum it up
            else:
                reader.operands[k] = part


def sum_padded(op: Any, wide: ir.Value) -> None:
    """The sum of columns is taken of the padded matrix, whose further columns are left out of the result."""
    out = info_of(op.results[0])
    with ir.InsertionPoint(op), op.location:
        g = GraphBuilder(out)
        total = g.reduce("sum", wide, [0], out.rank == 2, out.dtype)
        index = [symbols.symbol(f"d{k}") for k in range(out.rank)]
        op.results[0].replace_all_uses_with(g.view(total, out.shape, out.stride, index))
    op.operation.erase()


def round_up(size: int, dtype: torch.dtype) -> int:
    step = ALIGNMENT // dtype.itemsize
    return (size + step - 1) // step * step


def is_by_columns(info: TensorInfo) -> bool:
    """Whether a matrix lies in memory column by column."""
    return info.stride[0] == 1 and info.stride[1] != 1


def static_sizes(x: TensorInfo, y: TensorInfo) -> tuple[int, int, int]:
    """Rows of x, columns of x, columns of y."""
    rows, inner, columns = (n for n in (*x.shape, y.shape[1]) if isinstance(n, int))
    return rows, inner, columns


def padded_sizes(x: TensorInfo, y: TensorInfo) -> tuple[int, int, int]:
    """Rows of x, columns of x, columns of y: those rounded up along which some matrix lies in memory."""
    rows, inner, columns = static_sizes(x, y)
    if is_by_columns(x):
        rows = round_up(rows, x.dtype)
    if not is_by_columns(x) or is_by_columns(y):
        inner = round_up(inner, x.dtype)
    return rows, inner, round_up(columns, x.dtype)


def refusal(op: Any, wanted: tuple[int, int, int], frozen_values: set[ir.Value]) -> tuple[str, dict[str, int]]:
    """The rule by which the matmul stays as it is, or "", and the numbers that it compares."""
    *_, x, y = op.operands
    rows, inner, columns = static_sizes(info_of(x), info_of(y))
    if wanted == (rows, inner, columns):
        return "ALIGNED", {}
    result = op.results[0]
    by_rows = op.operation.name == "mlirc.matmul" and is_by_rows(info_of(x), info_of(y), info_of(result))
    if by_rows and is_returned(result):
        return "BY ROWS", {}
    moved = 0
    for value, shape in ((x, wanted[:2]), (y, wanted[1:])):
        if info_of(value).shape != shape and view_root(value) not in frozen_values:
            moved += 2 * shape[0] * shape[1]
    if columns != wanted[2]:
        moved += 2 * rows * columns
    operations = 2 * rows * inner * columns
    bytes_moved = moved * info_of(x).dtype.itemsize
    numbers = {"operations": operations, "bytes_moved": bytes_moved, "least_operations_per_byte": WORTH}
    return ("", {}) if operations > WORTH * bytes_moved else ("TOO SMALL", numbers)


def is_returned(x: ir.Value) -> bool:
    """Whether the graph returns it, or a view of it."""
    readers = [use.owner for use in x.uses]
    return any(
        r.operation.name == "func.return" or (r.operation.name == "mlirc.view" and is_returned(r.results[0]))
        for r in readers
    )


def padded(op: Any, wanted: tuple[int, int, int]) -> ir.Value:
    """The matmul of padded matrices, without the padding: at the insertion point."""
    *bias, x, y = op.operands
    out = info_of(op.results[0])
    rows, inner, columns = wanted
    operands = [pad_matrix(x, (rows, inner)), pad_matrix(y, (inner, columns))]
    if bias:
        shape = info_of(bias[0]).shape
        sizes = tuple(n if n == 1 else full for n, full in zip(shape, (rows, columns)[2 - len(shape) :], strict=True))
        operands.insert(0, pad(bias[0], sizes))
    result = TensorInfo(out.dtype, (rows, columns), device=out.device)
    name = op.operation.name.removeprefix("mlirc.")
    made = create(name, operands, [type_of(result)]).out
    g = GraphBuilder(out)
    part = g.view(made, out.shape, result.stride, [symbols.symbol("d0"), symbols.symbol("d1")])
    return part if info_of(part) == out else g.copy(part, out)


def pad_matrix(x: ir.Value, shape: tuple[int, int]) -> ir.Value:
    """The matrix with zeros after its rows and columns, in the memory order that it has: by rows or by columns."""
    if not is_by_columns(info_of(x)):
        return pad(x, shape)
    g = GraphBuilder(info_of(x))
    return g.permute(pad(g.permute(x, [1, 0]), shape[::-1]), [1, 0])


def pad(x: ir.Value, shape: tuple[Int, ...]) -> ir.Value:
    info = info_of(x)
    if info.shape == shape:
        return x
    result = replace(info, shape=shape, stride=contiguous(shape))
    attributes = {"low": symbols.print_list([0] * len(shape)), "value": constant_text(0, info.dtype)}
    return create("pad", [x], [type_of(result)], attributes).out

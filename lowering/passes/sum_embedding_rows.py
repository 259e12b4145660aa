"""The pass sum-embedding-rows: see SumEmbeddingRows."""

from dataclasses import dataclass
from typing import Any

import torch

from mlirc.dialects.bindings import ir
from mlirc.dialects.dialect import create
from mlirc.dialects.graph_builder import GraphBuilder
from mlirc.dialects.kernel_builder import KernelBuilder
from mlirc.dialects.kernel_ops import SORTED
from mlirc.dialects.symbols import product, symbol
from mlirc.dialects.tensor_types import TensorInfo, info_of, type_of
from mlirc.lowering.aten_calls import arguments, called
from mlirc.lowering.ledger import Ledger
from mlirc.lowering.passes.add_residuals import by_rows
from mlirc.lowering.source_lines import source_line
from mlirc.lowering.triton_indices import LARGEST

BACKWARD = "aten.embedding_dense_backward.default"
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class SumEmbeddingRows:
    """Make the gradient of an embedding on a GPU a kernel, which sums up the rows of equal ids (triton_row_sums.py).

    before:  %1 = "mlircx.aten"(%rows, %ids) {op = "aten.embedding_dense_backward.default", ...}
    after:   %2:2 = "mlircx.aten"(%ids) {op = "aten.sort.default", ...}
             %1 = "mlircx.kernel"(%2#0, %2#1, %rows) ({ reduce(select(%2#0[d2] == d0, rows[%2#1[d2], d1], 0)) })
                                                        {parallel = "32000, 2048", inner = "4096"}

    MANY ROWS   the table has at least `table` rows for each token: those of one row are added up one after another
    Sizes that are known. Scaling by frequency stays with ATen, whose two kernels after the sort take twice as long.
    """

    name = "sum-embedding-rows"
    takes = "kernel"
    table: float = 0.25

    def run(self, function: Any, ledger: Ledger) -> None:
        for op in [op for op in function.regions[0].blocks[0].operations if called(op) == BACKWARD]:
            if not is_ours(op):
                continue
            taken = self.is_worth(op)
            ledger.record(self.name, "generate", BACKWARD, "MANY ROWS", taken, source_line(op.location))
            if taken:
                with ir.InsertionPoint(op), op.location:
                    made = row_sums(op)
                op.results[0].replace_all_uses_with(made)
                op.operation.erase()

    def is_worth(self, op: Any) -> bool:
        count, rows = info_of(op.operands[1]).numel, info_of(op.results[0]).shape[0]
        return isinstance(count, int) and isinstance(rows, int) and rows >= self.table * count


def is_ours(op: Any) -> bool:
    out, (rows, ids) = info_of(op.results[0]), map(info_of, op.operands)
    if not out.device.startswith("cuda") or arguments(op)[4]:
        return False
    sizes = [*out.shape, out.numel, rows.numel, ids.numel]
    known = all(isinstance(n, int) and 1 < n <= LARGEST for n in sizes)
    plain = all(i.is_contiguous for i in (out, rows, ids)) and rows.shape[:-1] == ids.shape
    return known and plain and out.dtype in DTYPES and ids.dtype in (torch.int64, torch.int32)


def row_sums(op: Any) -> ir.Value:
    """The kernel that takes the call's place."""
    out, (rows, ids) = info_of(op.results[0]), op.operands
    padding = arguments(op)[3]
    count = product(info_of(ids).shape)
    g = GraphBuilder(out)
    rows, ids = flat(g, rows, (count, out.shape[1])), flat(g, ids, (count,))
    types = [type_of(TensorInfo(d, (count,), device=out.device)) for d in (info_of(ids).dtype, torch.int64)]
    given = {"op": "aten.sort.default", "args": '[{"$": 0}, 0, false]', "aliases": "-1, -1"}
    ids, order = create("aten", [ids], types, given).results
    k = KernelBuilder(out.shape, (count,), "embedding_gradient")
    row, column, token = k.dims
    found = k.cast(k.read(ids, (token,)), torch.int64)
    counts = k.eq(found, k.size(row))
    if isinstance(padding, int) and padding >= 0:
        counts = k.logical_and(counts, k.ne(found, padding))
    value = k.read(rows, (symbol("i0"), column), [k.read(order, (token,))])
    total = k.reduce("sum", k.select(counts, value, 0.0))
    total.owner.attributes[SORTED] = ir.BoolAttr.get(True)
    return k.finish([(total, (row, column), TensorInfo(out.dtype, out.shape, device=out.device))])[0]


def flat(g: GraphBuilder, x: ir.Value, shape: tuple) -> ir.Value:
    """`x`, row-major, in fewer dimensions."""
    info = info_of(x)
    if info.shape == shape:
        return x
    strides = TensorInfo(info.dtype, shape).stride
    index = by_rows(info) if len(shape) == 2 else by_rows(TensorInfo(info.dtype, (*info.shape, 1)))[:-1]
    return g.view(x, shape, strides, index)

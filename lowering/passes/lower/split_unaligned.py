"""split-unaligned: a matmul whose rows do not begin at multiples of 16 bytes is written by those that do, on a GPU."""

from math import gcd
from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value, create
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.dialects.core.kernel_builder import KernelBuilder
from mlirc.dialects.core.symbols import symbol
from mlirc.dialects.core.tensor_info import TensorInfo
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.kernel.typical_sizes import static
from mlirc.lowering.pipeline.ledger import Ledger

ALIGNMENT = 16  # bytes


@dataclass(frozen=True)
class SplitUnaligned:
    """Let the library write each class of rows that lie alike to 16 bytes, and a kernel the few columns before and after.

    before:  "mlircx.call"(%x, %w, %out) {callee = "matmul"} : (tensor<8192x768>, tensor<768x50257>, tensor<8192x50257>)
    after:   for j in 0..7: "mlircx.call"(rows j, j + 8, ... of %x, columns s.. of %w, the same part of %out)
                            where element (j, s) of %out is the row's first at a multiple of 16 bytes
             "mlircx.launch"(%x, %w, %out)                             the first and the last 8 columns

    pad-matmuls leaves such matmuls as they are (BY ROWS). For GPT-2's vocabulary on an H200: 957 us and 6 for the
    columns; a padded matmul takes 895, and 430 for the copy.
    """

    name = "split-unaligned"
    takes = "memory"

    def run(self, function: Any, ledger: Ledger) -> None:
        for op in list(function.regions[0].blocks[0].operations):
            if op.operation.name != "mlircx.call" or attribute_value(op.attributes["callee"]) != "matmul":
                continue
            x, w, out = op.operands
            if not is_by_rows(info_of(x), info_of(w), info_of(out)) or not ledger.allows(self.name, op):
                continue
            ledger.record(self.name, "split", "matmul", "BY ROWS", True, op)
            with ir.InsertionPoint(op), op.location:
                split(x, w, out)
            op.operation.erase()


def classes(columns: int, itemsize: int) -> int:
    """How many rows follow each other before one begins at a multiple of 16 bytes again."""
    return ALIGNMENT // gcd(ALIGNMENT, columns * itemsize)


def is_by_rows(x: TensorInfo, w: TensorInfo, out: TensorInfo) -> bool:
    """Whether only the result's rows are unaligned, of a matmul of a half type on a GPU; its sizes are known."""
    numbers = (*x.shape, *x.stride, *w.shape, *w.stride)
    if out.rank != 2 or not all(isinstance(n, int) and n > 0 for n in numbers) or not out.device.startswith("cuda"):
        return False
    size, step = out.dtype.itemsize, ALIGNMENT // out.dtype.itemsize
    (rows, columns), inner = static(out.shape), static(x.shape)[1]
    if size != 2 or not out.is_contiguous or columns % step == 0 or columns < 4 * step or inner % step:
        return False
    along = x.stride[1] == 1 and w.stride[0] == 1 and x.stride[0] % step == 0 and w.stride[1] % step == 0
    return along and rows % classes(columns, size) == 0


def split(x: ir.Value, w: ir.Value, out: ir.Value) -> None:
    """The calls and the launch at the insertion point."""
    rows, columns = static(info_of(out).shape)
    step = ALIGNMENT // info_of(out).dtype.itemsize
    count = classes(columns, info_of(out).dtype.itemsize)
    for j in range(count):
        start = -j * columns % step
        size = (columns - start) // step * step
        given = [
            part(x, rows // count, j, count),
            part(w, None, start, 1, size),
            part(out, rows // count, j, count, size, start),
        ]
        create("call", given, [], {"callee": "matmul", "inputs": 2})
    edges(x, w, out, step)


def part(x: ir.Value, rows: int | None, first: int, step: int, columns: int | None = None, start: int = 0) -> ir.Value:
    """Every `step`-th row from `first` on and `columns` columns from `start` on; where rows is None, columns from `first`."""
    info = info_of(x)
    if rows is None:
        rows, first, step, start = static(info.shape)[0], 0, 1, first
    columns = static(info.shape)[1] if columns is None else columns
    strides = (info.stride[0] * step, info.stride[1])
    offset = first * info.stride[0] + start * info.stride[1]
    index = (symbol("d0") * step + first, symbol("d1") + start)
    return GraphBuilder(info).view(x, (rows, columns), strides, index, offset)


def edges(x: ir.Value, w: ir.Value, out: ir.Value, width: int) -> None:
    """A launch that computes the first and the last `width` columns."""
    rows, columns = static(info_of(out).shape)
    k = KernelBuilder((rows, 2, width), info_of(x).shape[1:], "matmul_edges")
    row, side, column, at = k.dims
    place = side * (columns - width) + column
    total = k.reduce("sum", k.mul(k.read(x, (row, at)), k.read(w, (at, place))))
    both = (symbol("d0"), symbol("d1") * (columns - width) + symbol("d2"))
    target = GraphBuilder(info_of(out)).view(out, (rows, 2, width), (columns, columns - width, 1), both)
    kernel = k.finish([(total, (row, side, column), info_of(target))])[0].owner
    attributes = {name: kernel.attributes[name] for name in ("parallel", "inner", "label")}
    launch = create("launch", [*kernel.operands, target], [], {**attributes, "inputs": 2}, regions=1)
    kernel.regions[0].blocks[0].append_to(launch.regions[0])
    kernel.operation.erase()

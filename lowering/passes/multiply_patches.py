"""multiply-patches: a convolution whose patches do not overlap is a product of matrices, on a GPU."""

from dataclasses import dataclass
from typing import Any

from mlirc.dialects.bindings import ir
from mlirc.dialects.dialect import create
from mlirc.dialects.graph_builder import GraphBuilder
from mlirc.dialects.symbols import floordiv, mod, symbol
from mlirc.dialects.tensor_info import TensorInfo
from mlirc.dialects.tensor_types import info_of, type_of
from mlirc.lowering.aten_calls import arguments, called
from mlirc.lowering.channels_last import channels_last
from mlirc.lowering.ledger import Ledger
from mlirc.lowering.moved_views import may_move, move
from mlirc.lowering.source_lines import source_line


@dataclass(frozen=True)
class MultiplyPatches:
    """Multiply the patches of an image by the filters, where a convolution steps by as much as its filters are wide.

    before:  %0 = "mlircx.aten"(%x, %w, %b) {op = "aten.convolution.default", stride [16, 16]}
                                                            : (tensor<64x3x224x224>, tensor<768x3x16x16>) -> tensor<64x768x14x14>
    after:   %p = "mlirc.copy"(a view of %x, 64x14x14x3x16x16)
             %1 = "mlirc.addmm"(%b, %p as 12544x768, %w as 768x768) : tensor<12544x768>
             %0 = a view of %1, channels last; a copy of that where eager's strides are promised

    PATCHES     filters of half types of more than one element, as large as their steps; no padding, dilation or groups; an
                image that is a whole number of them. cuDNN has no fast kernel for images of 3 channels: 412 us, the product 30.
    """

    name = "multiply-patches"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        for op in list(function.regions[0].blocks[0].operations):
            if called(op) != "aten.convolution.default" or not info_of(op.results[0]).device.startswith("cuda"):
                continue
            taken = is_of_patches(op)
            ledger.record(self.name, "multiply", "aten.convolution", "PATCHES", taken, source_line(op.location))
            if taken:
                with ir.InsertionPoint(op), op.location:
                    replace_by_product(op)


def is_of_patches(op: Any) -> bool:
    _, _, _, stride, padding, dilation, transposed, _, groups = arguments(op)
    x, w = info_of(op.operands[0]), info_of(op.operands[1])
    numbers = (*x.shape[1:], *w.shape, *stride)
    if x.rank != 4 or w.rank != 4 or x.dtype.itemsize != 2 or not all(isinstance(n, int) and n > 0 for n in numbers):
        return False
    height, width = w.shape[2:]
    plain = not transposed and groups == 1 and not any(padding) and all(n == 1 for n in dilation)
    whole = mod(x.shape[2], height) == mod(x.shape[3], width) == 0
    return plain and whole and tuple(stride) == (height, width) != (1, 1) and w.is_contiguous and x.dtype == w.dtype


def replace_by_product(op: Any) -> None:
    """The product at the insertion point; the convolution goes."""
    x, w, *bias = op.operands
    info, out = info_of(x), info_of(op.results[0])
    g = GraphBuilder(out)
    n, channels, height, width = info.shape
    filters, _, p, q = info_of(w).shape
    rows, columns = floordiv(height, p), floordiv(width, q)
    a, b, c, d, e, f = (symbol(f"d{k}") for k in range(6))
    step = info.stride
    spread = (step[0], step[2] * p, step[3] * q, step[1], step[2], step[3])
    patches = g.copy(g.view(x, (n, rows, columns, channels, p, q), spread, (a, d, b * p + e, c * q + f)))
    inner = channels * p * q
    index = (floordiv(a, rows * columns), mod(floordiv(a, columns), rows), mod(a, columns))
    part = (floordiv(b, p * q), mod(floordiv(b, q), p), mod(b, q))
    matrix = g.view(patches, (n * rows * columns, inner), (inner, 1), (*index, *part))
    weights = g.permute(g.view(w, (filters, inner), (inner, 1), (a, *part)), [1, 0])
    result = TensorInfo(out.dtype, (n * rows * columns, filters), device=out.device)
    name = "addmm" if bias else "matmul"
    made = create(name, [*bias, matrix, weights], [type_of(result)]).out
    last = channels_last(out)
    image = g.view(made, out.shape, last.stride, ((a * rows + c) * columns + d, b))
    if may_move(op.results[0], last.stride):
        move(op.results[0], image)
    else:
        op.results[0].replace_all_uses_with(g.copy(image, out))
    op.operation.erase()

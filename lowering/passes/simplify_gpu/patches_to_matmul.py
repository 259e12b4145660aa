"""patches-to-matmul: a convolution whose patches do not overlap is a matmul, on a GPU."""

from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import create
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.dialects.core.symbols import floordiv, mod, symbol
from mlirc.dialects.core.tensor_info import TensorInfo
from mlirc.dialects.core.tensor_types import info_of, type_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.fusion.aten_calls import arguments, called, repeats_operand
from mlirc.lowering.layout.channels_last import channels_last
from mlirc.lowering.layout.moved_views import may_move, move
from mlirc.lowering.pipeline.ledger import Ledger


@dataclass(frozen=True)
class PatchesToMatmul:
    """Multiply the patches of an image by the filters, where a convolution's stride is the size of its filters.

    before:  %0 = "mlircx.aten"(%x, %w, %b) {op = "aten.convolution.default", stride [16, 16]}
                                                            : (tensor<64x3x224x224>, tensor<768x3x16x16>) -> tensor<64x768x14x14>
    after:   %p = "mlirc.copy"(a view of %x, 64x14x14x3x16x16)
             %1 = "mlirc.addmm"(%b, %p as 12544x768, %w as 768x768) : tensor<12544x768>
             %0 = a view of %1, channels last; a copy of that where eager's strides are promised

    before:  %dw, %db = "mlircx.aten"(%dy, %x, %w) {op = "aten.convolution_backward.default", mask [false, true, true]}
    after:   %m = "mlirc.copy"(%dy, channels last) as 12544x768
             %dw = "mlirc.matmul"(%m as 768x12544, %p as 12544x768)   %db = "mlirc.sum"(%m) {dims = "0"}

    PATCHES     half types; filters of more than one element, as large as the stride; no padding, dilation or groups; patches that cover
                the image. cuDNN has no fast kernel for images of 3 channels: it takes 412 us where the matmul takes 30, and for
                the filters' gradient 149 us where matmul, copies and sum take 90.
    """

    name = "patches-to-matmul"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        for op in list(function.regions[0].blocks[0].operations):
            name = called(op)
            if name not in REPLACED or repeats_operand(op) or not info_of(op.results[0]).device.startswith("cuda"):
                continue
            taken = is_forward(op) if name == FORWARD else is_filters_gradient(op)
            ledger.record(self.name, "multiply", name.removesuffix(".default"), "PATCHES", taken, op)
            if taken and ledger.allows(self.name, op):
                with ir.InsertionPoint(op), op.location:
                    REPLACED[name](op)
                op.operation.erase()


def is_forward(op: Any) -> bool:
    _, _, _, stride, padding, dilation, transposed, _, groups = arguments(op)
    return is_of_patches(op.operands[0], op.operands[1], stride, padding, dilation, transposed, groups)


def is_filters_gradient(op: Any) -> bool:
    _, _, _, _, stride, padding, dilation, transposed, _, groups, mask = arguments(op)
    x, w = op.operands[1], op.operands[2]
    return not mask[0] and mask[1] and is_of_patches(x, w, stride, padding, dilation, transposed, groups)


def is_of_patches(
    image: ir.Value, filters: ir.Value, stride: Any, padding: Any, dilation: Any, transposed: bool, groups: int
) -> bool:
    x, w = info_of(image), info_of(filters)
    numbers = (*x.shape, *w.shape, *stride)
    if (
        x.rank != 4
        or w.rank != 4
        or x.dtype.itemsize != 2
        or not all(isinstance(n, int) and n > 0 for n in numbers[1:])
    ):
        return False
    height, width = w.shape[2:]
    plain = not transposed and groups == 1 and not any(padding) and all(n == 1 for n in dilation)
    whole = mod(x.shape[2], height) == mod(x.shape[3], width) == 0
    return plain and whole and tuple(stride) == (height, width) != (1, 1) and w.is_contiguous and x.dtype == w.dtype


def replace_by_matmul(op: Any) -> None:
    """The matmul in place of the convolution, at the insertion point."""
    x, w, *bias = op.operands
    out = info_of(op.results[0])
    g = GraphBuilder(out)
    matrix = patches(g, x, info_of(w))
    rows, inner = info_of(matrix).shape
    filters, _, p, q = info_of(w).shape
    a, b = symbol("d0"), symbol("d1")
    part = (floordiv(b, p * q), mod(floordiv(b, q), p), mod(b, q))
    weights = g.permute(g.view(w, (filters, inner), (inner, 1), (a, *part)), [1, 0])
    result = TensorInfo(out.dtype, (rows, filters), device=out.device)
    name = "addmm" if bias else "matmul"
    made = create(name, [*bias, matrix, weights], [type_of(result)]).out
    last = channels_last(out)
    n, c, d = symbol("d0"), symbol("d2"), symbol("d3")
    image = g.view(made, out.shape, last.stride, ((n * out.shape[2] + c) * out.shape[3] + d, b))
    if may_move(op.results[0], last.stride):
        move(op.results[0], image)
    else:
        op.results[0].replace_all_uses_with(g.copy(image, out))


def replace_by_gradient(op: Any) -> None:
    """The matmuls of gradients and patches in place of convolution_backward, at the insertion point."""
    dy, x, w = op.operands[:3]
    info, out = info_of(dy), info_of(op.results[0])
    g = GraphBuilder(out)
    matrix = patches(g, x, info_of(w))
    rows, inner = info_of(matrix).shape
    filters, channels, p, q = out.shape
    a, b, c, d = (symbol(f"d{k}") for k in range(4))
    pixels = g.copy(g.permute(dy, [0, 2, 3, 1]))
    index = (
        floordiv(a, info.shape[2] * info.shape[3]),
        mod(floordiv(a, info.shape[3]), info.shape[2]),
        mod(a, info.shape[3]),
    )
    gradient = g.view(pixels, (rows, filters), (filters, 1), (*index, b))
    result = TensorInfo(out.dtype, (filters, inner), device=out.device)
    made = create("matmul", [g.permute(gradient, [1, 0]), matrix], [type_of(result)]).out
    plain = (channels * p * q, p * q, q, 1)
    weight = g.view(made, out.shape, plain, (a, (b * p + c) * q + d))
    op.results[0].replace_all_uses_with(weight if out.stride == plain else g.copy(weight, out))
    if len(op.results) > 1:
        op.results[1].replace_all_uses_with(g.reduce("sum", gradient, [0]))


def patches(g: GraphBuilder, x: ir.Value, w: TensorInfo) -> ir.Value:
    """The patches of images [N, C, H, W] that filters [F, C, P, Q] see, a row each: [N * H/P * W/Q, C * P * Q]."""
    info = info_of(x)
    n, channels, height, width = info.shape
    _, _, p, q = w.shape
    rows, columns = floordiv(height, p), floordiv(width, q)
    a, b, c, d, e, f = (symbol(f"d{k}") for k in range(6))
    step = info.stride
    spread = (step[0], step[2] * p, step[3] * q, step[1], step[2], step[3])
    copied = g.copy(g.view(x, (n, rows, columns, channels, p, q), spread, (a, d, b * p + e, c * q + f)))
    inner = channels * p * q
    index = (floordiv(a, rows * columns), mod(floordiv(a, columns), rows), mod(a, columns))
    part = (floordiv(b, p * q), mod(floordiv(b, q), p), mod(b, q))
    return g.view(copied, (n * rows * columns, inner), (inner, 1), (*index, *part))


FORWARD = "aten.convolution.default"
REPLACED = {FORWARD: replace_by_matmul, "aten.convolution_backward.default": replace_by_gradient}

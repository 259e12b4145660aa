"""space-to-depth: a strided convolution of few channels becomes one of more channels without a stride, on a GPU."""

import math
from typing import Any

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import create
from mlirc.dialects.core.graph_builder import GraphBuilder, constant_text
from mlirc.dialects.core.symbols import floordiv, mod, symbol
from mlirc.dialects.core.tensor_info import TensorInfo
from mlirc.dialects.core.tensor_types import info_of, type_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.analysis.provenance import parameter_arguments, view_root
from mlirc.lowering.fusion.aten_calls import arguments, call_aten, called, repeats_operand
from mlirc.lowering.kernel.typical_sizes import static
from mlirc.lowering.layout.channels_last import channels_last
from mlirc.lowering.pipeline.ledger import Ledger

CALLS = ("aten.convolution.default", "aten.cudnn_convolution_relu.default")
CHANNELS = 16  # of the new convolution: cuDNN's fast kernels read so many at once


@dataclass(frozen=True)
class SpaceToDepth:
    """Put the pixels that a filter steps over side by side, as channels.

    before:  %0 = "mlircx.aten"(%x, %w) {op = "aten.convolution.default", stride [2, 2], padding [3, 3]}
                                                                : (tensor<64x3x224x224>, tensor<64x3x7x7>)
    after:   %p = %x and %w padded with zeros to 64x4x230x230 and 64x4x8x8, blocks of 2x2 pixels as channels
             %0 = "mlircx.aten"(%p, %q) {op = "aten.convolution.default", stride [1, 1], padding [0, 0]}
                                                                : (tensor<64x16x115x115>, tensor<64x16x4x4>)

    FEW CHANNELS    half types, a weight that depends on parameters alone, a stride, and at most 16 channels after the rewrite.
                    On an H200 the first convolution of a ResNet takes 445 us before, and 174 + 11 us (the copy) after.
    """

    name = "space-to-depth"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        parameters = parameter_arguments(function)
        for op in list(function.regions[0].blocks[0].operations):
            if called(op) not in CALLS or repeats_operand(op) or not info_of(op.results[0]).device.startswith("cuda"):
                continue
            taken = has_few_channels(op) and depends_on(op.operands[1], parameters)
            numbers = {} if taken else {"channels": channels_of(op), "most_channels": CHANNELS}
            ledger.record(self.name, "widen", called(op), "FEW CHANNELS", taken, op, **numbers)
            if taken and ledger.allows(self.name, op):
                with ir.InsertionPoint(op), op.location:
                    widen(op)


def steps_of(op: Any) -> tuple[list[int], list[int], list[int], bool]:
    """Stride, padding, dilation; and whether the convolution has one group and is not transposed."""
    given = arguments(op)
    stride, padding, dilation = given[3:6]
    plain = given[-1] == 1 and (called(op) != CALLS[0] or not given[6])
    return stride, padding, dilation, plain


def has_few_channels(op: Any) -> bool:
    x, w = info_of(op.operands[0]), info_of(op.operands[1])
    stride, padding, dilation, plain = steps_of(op)
    numbers = (*x.shape, *w.shape, *stride, *padding, *dilation)
    if x.rank != 4 or x.dtype.itemsize != 2 or not plain or not all(isinstance(n, int) and n >= 0 for n in numbers):
        return False
    area = stride[0] * stride[1]
    return area > 1 and static(x.shape)[1] * area <= CHANNELS and CHANNELS % area == 0 and all(n == 1 for n in dilation)


def channels_of(op: Any) -> int | str:
    """Channels after the rewrite."""
    channels, (stride, *_) = info_of(op.operands[0]).shape[1], steps_of(op)
    factors = [n for n in (channels, *stride) if isinstance(n, int)]
    return math.prod(factors) if len(factors) == 1 + len(stride) else "symbolic"


def depends_on(x: ir.Value, parameters: set[ir.Value]) -> bool:
    """Whether nothing but parameters and constants goes into the value."""
    root = view_root(x)
    if isinstance(root.owner, ir.Block):
        return root in parameters
    return all(depends_on(y, parameters) for y in root.owner.operands)


def widen(op: Any) -> None:
    """The new convolution at the insertion point, in place of the old one."""
    x, w, *rest = op.operands
    out = info_of(op.results[0])
    (sy, sx), (py, px), _, _ = steps_of(op)
    channels = CHANNELS // (sy * sx)
    n, _, rows, columns = static(out.shape)
    filters, _, height, width = static(info_of(w).shape)
    height, width = -(-height // sy), -(-width // sx)
    image = in_blocks(x, (n, channels, sy * (rows - 1 + height), sx * (columns - 1 + width)), (py, px), (sy, sx))
    weight = in_blocks(w, (filters, channels, sy * height, sx * width), (0, 0), (sy, sx))
    if called(op) == CALLS[0]:
        bias = rest[0] if rest else None
        given = [image, weight, bias, [1, 1], [0, 0], [1, 1], False, [0, 0], 1]
    else:
        given = [image, weight, rest[0], [1, 1], [0, 0], [1, 1], 1]
    op.results[0].replace_all_uses_with(call_aten(called(op), given, out))
    op.operation.erase()


def in_blocks(x: ir.Value, shape: tuple[int, int, int, int], low: tuple[int, int], step: tuple[int, int]) -> ir.Value:
    """`x` in zeros of that shape, `low` zeros before its rows and columns; then blocks of `step` pixels as channels, innermost."""
    info = info_of(x)
    attributes = {"low": symbols.print_list([0, 0, *low]), "value": constant_text(0, info.dtype)}
    padded = create("pad", [x], [type_of(TensorInfo(info.dtype, shape, device=info.device))], attributes).out
    g = GraphBuilder(info)
    n, channels, height, width = shape
    sy, sx = step
    rows, columns = height // sy, width // sx
    a, b, c, d, e, f = (symbol(f"d{k}") for k in range(6))
    stride = (channels * height * width, sy * width, sx, width, 1, height * width)
    blocks = g.copy(g.view(padded, (n, rows, columns, sy, sx, channels), stride, (a, f, b * sy + d, c * sx + e)))
    wide = TensorInfo(info.dtype, (n, sy * sx * channels, rows, columns), device=info.device)
    part = (floordiv(b, sx * channels), mod(floordiv(b, channels), sx), mod(b, channels))
    return g.view(blocks, wide.shape, channels_last(wide).stride, (a, c, d, *part))

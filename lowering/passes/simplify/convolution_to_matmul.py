"""convolution-to-matmul: a convolution of few windows is a matmul, and its gradients are two, on a CPU."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import create
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_info import TensorInfo
from mlirc.dialects.core.tensor_types import info_of, type_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.dialects.ops.rows.group_norm import append_ones
from mlirc.lowering.fusion.aten_calls import arguments, called
from mlirc.lowering.layout.channels_last import relaid
from mlirc.lowering.layout.im2col import WindowGrid, col2im, im2col, merged, split
from mlirc.lowering.pipeline.ledger import Ledger

FORWARD, BACKWARD = "aten.convolution.default", "aten.convolution_backward.default"
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
# windows of all images, at most, bytes of weights, and filters and channels, at least, from which on im2col and a matmul of few rows are
# faster; in ms, one thread with AVX-512, oneDNN packing | packed | this, 512 channels, 3x3 of 9.4 MB:
#     4 windows   0.87 | 0.47 | 0.45      16 windows   1.37 | 1.37 | 1.12      32 windows   1.65 | 1.68 | 1.30
MOST_WINDOWS, LEAST_WEIGHTS, LEAST_CHANNELS = 32, 1 << 18, 16
# with a stride, for which there is no Winograd's transform, also of more windows, for larger weights; 49 windows, inference and step:
#     128 -> 256 0.28 | 0.35      384 -> 512 2.03 | 1.89      512 -> 512 2.79 | 2.28, 19.9 | 9.7      512 -> 1024 5.99 | 4.51
STRIDED_WINDOWS, STRIDED_WEIGHTS = 64, 5 << 20


@dataclass(frozen=True)
class ConvolutionToMatmul:
    """Multiply by the filters as a matrix, where each filter covers its image, or meets few windows.

    before:  %0 = "mlircx.aten"(%x, %w, %b) {op = "aten.convolution.default", ...}
                                                : (tensor<8x512x7x7xf32>, tensor<4096x512x7x7xf32>) -> tensor<8x4096x1x1xf32>
    after:   %1 = "mlirc.matmul"(%x as 8x25088, %w as 25088x4096) : tensor<8x4096xf32>
             %0 = %1 as 8x4096x1x1, plus %b

    before:  %dx, %dw, %db = "mlircx.aten"(%dy, %x, %w) {op = "aten.convolution_backward.default", ...}
    after:   %dx = "mlirc.matmul"(%dy as 8x4096, %w as 4096x25088) as 8x512x7x7
             %dw = "mlirc.matmul"(%dy as 4096x8, %x as 8x25088) as 4096x512x7x7    %db = "mlirc.sum"(%dy) {dims = "0, 2, 3"}

    More windows than one of an image are rows that im2col copies; col2im adds such rows up to the gradient of the image.

    ONE WINDOW    filters as large as the image, which has no padding; or a transposed convolution of images of one pixel. Nothing is
                  dilated or in groups, the types are one of floating-point numbers. oneDNN lays such weights out again in each call: of
                  411 MB, that takes 40 times as long as to read them.
    FEW WINDOWS   float32, not in groups, known sizes and strides: weights that weigh more than the windows do, much more where a stride forbids
                  Winograd's transform. They are read where they are, once. (im2col of one row would be computed within its
                  matmul, for each filter anew.)
    """

    name = "convolution-to-matmul"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        for op in list(function.regions[0].blocks[0].operations):
            if called(op) not in (FORWARD, BACKWARD) or info_of(op.results[0]).device != "cpu":
                continue
            call = Call.of(op)
            taken, subject = False, called(op).removesuffix(".default")
            for rule, holds, numbers in call.rules():
                ledger.record(self.name, "multiply", subject, rule, holds, op, **numbers)
                taken = holds
                if holds:
                    break
            if taken and ledger.allows(self.name, op):
                with ir.InsertionPoint(op), op.location:
                    call.replace()
                op.operation.erase()


@dataclass(frozen=True)
class Call:
    """A convolution of images x [N, C, ...] by filters w [O, C, ...], or w [C, O, ...] of a transposed one; or its gradients, where the
    results have the gradient `dy`: of x, w and the bias, as far as `mask` lists them."""

    op: Any
    x: ir.Value
    w: ir.Value
    bias: ir.Value | None
    dy: ir.Value | None
    settings: Sequence[Any]  # stride, padding, dilation, transposed, output padding, groups
    mask: Sequence[bool]

    @classmethod
    def of(cls, op: Any) -> "Call":
        given = arguments(op)
        backward = called(op) == BACKWARD
        tensors = [op.operands[x["$"]] if isinstance(x, dict) else None for x in given[:3]]
        if backward:
            dy, x, w = tensors
            return cls(op, x, w, None, dy, given[4:10], given[10])
        x, w, bias = tensors
        return cls(op, x, w, bias, None, given[3:9], ())

    @property
    def transposed(self) -> bool:
        return self.settings[3]

    @property
    def result(self) -> TensorInfo:
        return info_of(self.op.results[0] if self.dy is None else self.dy)

    @property
    def wide(self) -> TensorInfo:
        """The images that windows are of: x, or the result of a transposed convolution."""
        return self.result if self.transposed else info_of(self.x)

    @property
    def narrow(self) -> TensorInfo:
        """The images that have a pixel for each window."""
        return info_of(self.x) if self.transposed else self.result

    def rules(self) -> list[tuple[str, bool, dict[str, Any]]]:
        """Each rule: its name, whether it holds, and what it compares."""
        sizes = {"image": str(self.wide.shape[2:]), "filters": str(info_of(self.w).shape[2:])}
        fits = self.fits
        windows = weights = 0
        known = (*self.narrow.shape, *(n for setting in self.settings[:3] for n in setting))
        if fits and all(isinstance(n, int) for n in known):
            windows = math.prod(numbers(self.narrow.shape[:1] + self.narrow.shape[2:]))
            weights = 4 * math.prod(numbers(info_of(self.w).shape))
        strided = weights >= STRIDED_WEIGHTS and any(n > 1 for n in self.settings[0])
        most = STRIDED_WINDOWS if strided else MOST_WINDOWS
        is_few = 1 < windows <= most and weights >= LEAST_WEIGHTS and self.narrow.dtype == torch.float32
        is_few = is_few and min(numbers(info_of(self.w).shape[:2])) >= LEAST_CHANNELS
        few = {"windows": windows, "most": most, "bytes_of_weights": weights, "least": LEAST_WEIGHTS}
        return [("ONE WINDOW", fits and self.has_one_window, sizes), ("FEW WINDOWS", is_few, few)]

    @property
    def fits(self) -> bool:
        """Whether it has what both rules ask for."""
        x, w, groups = info_of(self.x), info_of(self.w), self.settings[5]
        infos = [x, w, *(info_of(v) for v in (self.bias, self.dy) if v is not None)]
        if x.rank < 3 or w.rank != x.rank or len({i.dtype for i in infos}) > 1 or x.dtype not in DTYPES:
            return False
        return groups == 1 and all(isinstance(n, int) and n > 0 for n in (*w.shape, *self.wide.shape[1:]))

    @property
    def has_one_window(self) -> bool:
        _, padding, dilation, _, more, _ = self.settings
        if any(padding) or any(more) or any(n != 1 for n in dilation):
            return False
        return set(self.narrow.shape[2:]) == {1} and self.wide.shape[2:] == info_of(self.w).shape[2:]

    @property
    def windows(self) -> WindowGrid:
        image, count, taps = (numbers(i.shape[2:]) for i in (self.wide, self.narrow, info_of(self.w)))
        stride, padding, dilation = (list(n) * (len(taps) if len(n) == 1 else 1) for n in self.settings[:3])
        return WindowGrid(image, count, taps, stride, padding, dilation)

    def replace(self) -> None:
        if self.dy is None:
            self.op.results[0].replace_all_uses_with(self.forward())
            return
        results = iter(self.op.results)
        for wanted, made in zip(
            self.mask, (self.image_gradient, self.filter_gradient, self.bias_gradient), strict=True
        ):
            if wanted:
                result = next(results)
                result.replace_all_uses_with(made(info_of(result)))

    def forward(self) -> ir.Value:
        out, weights = self.result, merged(self.weights, 1)
        if self.transposed:
            made = self.wide_images(multiply(self.narrow_rows(self.x), weights))
        else:
            made = self.narrow_images(multiply(self.wide_rows(self.x), transpose(weights)))
        if self.bias is None:
            return relaid(made, out)
        g = GraphBuilder(info_of(made))
        return relaid(g.add(made, append_ones(g, self.bias, out.rank - 2)), out)

    def image_gradient(self, info: TensorInfo) -> ir.Value:
        assert self.dy is not None
        weights = merged(self.weights, 1)
        if self.transposed:
            return relaid(self.narrow_images(multiply(self.wide_rows(self.dy), transpose(weights))), info)
        return relaid(self.wide_images(multiply(self.narrow_rows(self.dy), weights)), info)

    def filter_gradient(self, info: TensorInfo) -> ir.Value:
        assert self.dy is not None
        narrow, wide = (self.x, self.dy) if self.transposed else (self.dy, self.x)
        made = multiply(transpose(self.narrow_rows(narrow)), self.wide_rows(wide))
        return relaid(split(made, info.shape[:1], info.shape[1:]), info)

    def bias_gradient(self, info: TensorInfo) -> ir.Value:
        assert self.dy is not None
        g = GraphBuilder(info)
        return g.reduce("sum", self.dy, [d for d in range(info_of(self.dy).rank) if d != 1])

    @property
    def weights(self) -> ir.Value:
        """The filters, row-major."""
        return row_major(self.w)

    def narrow_rows(self, x: ir.Value) -> ir.Value:
        """[windows of all images, channels] of images with a pixel for each window."""
        info = info_of(x)
        order = [0, *range(2, info.rank), 1]
        return merged(row_major(GraphBuilder(info).permute(x, order)), info.rank - 1)

    def narrow_images(self, rows: ir.Value) -> ir.Value:
        """Images with a pixel for each window, of rows; they lie channels last."""
        batch, _, *image = self.narrow.shape
        made = split(rows, (batch, *image), info_of(rows).shape[1:])
        return GraphBuilder(info_of(made)).permute(made, [0, len(image) + 1, *range(1, len(image) + 1)])

    def wide_rows(self, x: ir.Value) -> ir.Value:
        """[windows of all images, channels * taps] of images that windows are of."""
        return merged(row_major(x), 1) if self.has_one_window else im2col(x, self.windows)

    def wide_images(self, rows: ir.Value) -> ir.Value:
        """The images that windows are of, of rows as `wide_rows` has them: what these have for a pixel is added up."""
        shape = self.wide.shape
        if self.has_one_window:
            return split(rows, shape[:1], shape[1:])
        return col2im(rows, self.windows, shape[1])  # type: ignore[arg-type]


def numbers(sizes: Sequence[Int]) -> list[int]:
    """The sizes that are known."""
    return [n for n in sizes if isinstance(n, int)]


def row_major(x: ir.Value) -> ir.Value:
    info = info_of(x)
    return relaid(x, TensorInfo(info.dtype, info.shape, device=info.device))


def transpose(x: ir.Value) -> ir.Value:
    return GraphBuilder(info_of(x)).permute(x, [1, 0])


def multiply(a: ir.Value, b: ir.Value) -> ir.Value:
    left, right = info_of(a), info_of(b)
    info = TensorInfo(left.dtype, (left.shape[0], right.shape[1]), device=left.device)
    return create("matmul", [a, b], [type_of(info)]).out

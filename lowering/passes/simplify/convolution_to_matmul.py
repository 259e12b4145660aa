"""convolution-to-matmul: a convolution of one window is a matmul, and its gradients are two, on a CPU."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import create
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.dialects.core.symbols import floordiv, mod, product, symbol
from mlirc.dialects.core.tensor_info import TensorInfo
from mlirc.dialects.core.tensor_types import info_of, type_of
from mlirc.dialects.ops.rows.group_norm import append_ones
from mlirc.lowering.fusion.aten_calls import arguments, called
from mlirc.lowering.layout.channels_last import relaid
from mlirc.lowering.module.source_lines import source_line
from mlirc.lowering.pipeline.ledger import Ledger

FORWARD, BACKWARD = "aten.convolution.default", "aten.convolution_backward.default"
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class ConvolutionToMatmul:
    """Multiply by the filters as a matrix, where each filter covers its image.

    before:  %0 = "mlircx.aten"(%x, %w, %b) {op = "aten.convolution.default", ...}
                                                : (tensor<8x512x7x7xf32>, tensor<4096x512x7x7xf32>) -> tensor<8x4096x1x1xf32>
    after:   %1 = "mlirc.matmul"(%x as 8x25088, %w as 25088x4096) : tensor<8x4096xf32>
             %0 = %1 as 8x4096x1x1, plus %b

    before:  %dx, %dw, %db = "mlircx.aten"(%dy, %x, %w) {op = "aten.convolution_backward.default", ...}
    after:   %dx = "mlirc.matmul"(%dy as 8x4096, %w as 4096x25088) as 8x512x7x7
             %dw = "mlirc.matmul"(%dy as 4096x8, %x as 8x25088) as 4096x512x7x7    %db = "mlirc.sum"(%dy) {dims = "0, 2, 3"}

    ONE WINDOW   filters as large as the image, which has no padding; or a transposed convolution of images of one pixel. Nothing is
                 dilated or in groups, the types are one of floating-point numbers. oneDNN lays such weights out again in each call: of
                 411 MB, that takes 40 times as long as to read them.
    """

    name = "convolution-to-matmul"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        for op in list(function.regions[0].blocks[0].operations):
            if called(op) not in (FORWARD, BACKWARD) or info_of(op.results[0]).device != "cpu":
                continue
            call = Call.of(op)
            taken = call.has_one_window
            ledger.record(
                self.name,
                "multiply",
                called(op).removesuffix(".default"),
                "ONE WINDOW",
                taken,
                source_line(op.location),
                image=str(info_of(call.x).shape[2:]),
                filters=str(info_of(call.w).shape[2:]),
            )
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
    def has_one_window(self) -> bool:
        _, padding, dilation, _, more, groups = self.settings
        x, w = info_of(self.x), info_of(self.w)
        infos = [x, w, *(info_of(v) for v in (self.bias, self.dy) if v is not None)]
        if x.rank < 3 or w.rank != x.rank or len({i.dtype for i in infos}) > 1 or x.dtype not in DTYPES:
            return False
        if groups != 1 or any(padding) or any(more) or any(n != 1 for n in dilation):
            return False
        if not all(isinstance(n, int) and n > 0 for n in (*w.shape, *x.shape[1:])):
            return False
        return set(x.shape[2:]) == {1} if self.transposed else x.shape[2:] == w.shape[2:]

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
        out = info_of(self.op.results[0])
        weights = rows(self.w)
        made = multiply(rows(self.x), weights if self.transposed else transpose(weights))
        if self.bias is None:
            return as_images(made, out)
        plain = TensorInfo(out.dtype, out.shape, device=out.device)
        g = GraphBuilder(plain)
        return relaid(g.add(as_images(made, plain), append_ones(g, self.bias, out.rank - 2)), out)

    def image_gradient(self, info: TensorInfo) -> ir.Value:
        assert self.dy is not None
        weights = rows(self.w)
        return as_images(multiply(rows(self.dy), transpose(weights) if self.transposed else weights), info)

    def filter_gradient(self, info: TensorInfo) -> ir.Value:
        assert self.dy is not None
        left, right = (self.x, self.dy) if self.transposed else (self.dy, self.x)
        return as_images(multiply(transpose(rows(left)), rows(right)), info)

    def bias_gradient(self, info: TensorInfo) -> ir.Value:
        assert self.dy is not None
        g = GraphBuilder(info)
        return g.reduce("sum", self.dy, [d for d in range(info_of(self.dy).rank) if d != 1])


def rows(x: ir.Value) -> ir.Value:
    """Images [N, C, ...] as rows [N, C * ...], copied where they are not contiguous."""
    info = info_of(x)
    x = relaid(x, TensorInfo(info.dtype, info.shape, device=info.device))
    sizes, row, place = info.shape[1:], symbol("d0"), symbol("d1")
    inner = product(sizes)
    at = [floordiv(place, product(sizes[k + 1 :])) for k in range(len(sizes))]
    at[1:] = [mod(index, size) for index, size in zip(at[1:], sizes[1:], strict=True)]
    return GraphBuilder(info).view(x, (info.shape[0], inner), (inner, 1), (row, *at))


def as_images(x: ir.Value, info: TensorInfo) -> ir.Value:
    """Rows [N, C * ...] as images laid out as `info`."""
    plain = TensorInfo(info.dtype, info.shape, device=info.device)
    sizes = info.shape[1:]
    place = sum(symbol(f"d{k + 1}") * product(sizes[k + 1 :]) for k in range(len(sizes)))
    return relaid(GraphBuilder(info).view(x, plain.shape, plain.stride, (symbol("d0"), place)), info)


def transpose(x: ir.Value) -> ir.Value:
    return GraphBuilder(info_of(x)).permute(x, [1, 0])


def multiply(a: ir.Value, b: ir.Value) -> ir.Value:
    left, right = info_of(a), info_of(b)
    info = TensorInfo(left.dtype, (left.shape[0], right.shape[1]), device=left.device)
    return create("matmul", [a, b], [type_of(info)]).out

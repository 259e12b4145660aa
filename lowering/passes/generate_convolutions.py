"""generate-convolutions: in training on a CPU images lie with their channels innermost, and convolutions are kernels of our own."""

from dataclasses import dataclass
from typing import Any

import torch

from mlirc.dialects.bindings import ir
from mlirc.dialects.dialect import create
from mlirc.dialects.graph_builder import GraphBuilder
from mlirc.dialects.ops.reduction import sum_over
from mlirc.dialects.tensor_types import TensorInfo, info_of, type_of
from mlirc.lowering.aten_calls import arguments, call_aten, called
from mlirc.lowering.channels_last import channels_last, relaid, spread_channels_last
from mlirc.lowering.convolution_choice import Choice, lie_channels_last
from mlirc.lowering.ledger import Ledger
from mlirc.lowering.source_lines import source_line

FORWARD, BACKWARD = "aten.convolution.default", "aten.convolution_backward.default"


@dataclass(frozen=True)
class GenerateConvolutions:
    """Give convolutions of float32 operands in channels-last order, and kernels of our own where those are faster.

    before:  %1:2 = "mlircx.aten"(%dy, %x, %w) {op = "aten.convolution_backward.default", ...}
    after:   %a = "mlirc.copy"(%dy)  %b = "mlirc.copy"(%x)                           to channels last
             %2 = "mlirc.convolution_weight_gradient"(%b, %a) {window = "3, 3", ...}
             %3 = "mlircx.aten"(%a, %b, %w) {op = "aten.convolution_backward.default", ...}     of the images alone
             %4 = "mlirc.copy"(%3)                                                   back, for whoever wants it so

    CHANNELS LAST   all convolutions of the graph, or none (convolution_choice.py, with what was measured); what stands between
                    them keeps the order (channels_last.py)
    OURS            a kernel of ours for it, or for a gradient; the rest stays with oneDNN
    """

    name = "generate-convolutions"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        block = function.regions[0].blocks[0]
        found = [(op, choice) for op in block.operations if (choice := choice_of(op)) is not None]
        if not found:
            return
        taken = lie_channels_last([choice for _, choice in found])
        for op, _ in found:
            ledger.record(self.name, "layout", called(op), "CHANNELS LAST", taken, source_line(op.location))
        if not taken:
            return
        restored: dict[ir.Value, ir.Value] = {}
        for op, choice in found:
            ours = [choice.generates_forward]
            if called(op) == BACKWARD:
                ours = [choice.generates_input_gradient, choice.generates_weight_gradient]
            ledger.record(self.name, "generate", called(op), "OURS", any(ours), source_line(op.location))
            with ir.InsertionPoint(op), op.location:
                made = gradients(op, *ours) if called(op) == BACKWARD else [forward(op, *ours)]
                plain = [relaid(new, info_of(old)) for old, new in zip(op.results, made, strict=True)]
            for old, new, back in zip(op.results, made, plain, strict=True):
                old.replace_all_uses_with(back)
                if back != new and info_of(new) == channels_last(info_of(new)):
                    restored[back] = new
            op.operation.erase()
        for op in block.operations:
            if op.operation.name == "mlirc.copy" and is_put_back(info_of(op.operands[0]), info_of(op.results[0])):
                restored[op.results[0]] = op.operands[0]
        spread_channels_last(block, restored)


def choice_of(op: Any) -> Choice | None:
    """Of a convolution of float32 on a CPU, or of its gradients; None for any other op."""
    if called(op) not in (FORWARD, BACKWARD):
        return None
    backward = called(op) == BACKWARD
    x, w = (info_of(v) for v in tensors(op)[backward : backward + 2])
    if x.device != "cpu" or x.rank != 4 or {info_of(v).dtype for v in op.operands} != {torch.float32}:
        return None
    _, _, _, stride, _, dilation, transposed, _, groups = arguments(op)[backward : backward + 9]
    out = info_of(tensors(op)[0] if backward else op.results[0])
    return Choice(x.shape, w.shape, out.shape, tuple(stride), tuple(dilation), transposed, groups)


def tensors(op: Any) -> list[ir.Value]:
    """The call's tensors in the order of its arguments; one may stand there twice."""
    return [op.operands[x["$"]] for x in arguments(op)[:3] if isinstance(x, dict)]


def forward(op: Any, ours: bool) -> ir.Value:
    """The convolution's result, channels last."""
    given = arguments(op)
    _, _, _, stride, padding, dilation, *_ = given
    x, w, *bias = tensors(op)
    x, info = in_channels_last(x), channels_last(info_of(op.results[0]))
    if not ours:
        return call_aten(FORWARD, [x, w, bias[0] if bias else None, *given[3:]], info)
    attributes = {"stride": text(stride), "padding": text(padding), "dilation": text(dilation)}
    attributes["after"] = "shift" if bias else ""
    return create("convolution", [x, contiguous(w), *map(contiguous, bias)], [type_of(info)], attributes).out


def gradients(op: Any, own_input: bool, own_weight: bool) -> list[ir.Value]:
    """Those that the call gives: of the images, channels last, of the weight, of the bias."""
    given = arguments(op)
    _, _, _, _, stride, padding, dilation, *_, mask = given
    dy, x, w = tensors(op)
    dy, x = in_channels_last(dy), in_channels_last(x)
    infos = [info_of(result) for result in op.results]
    windows = {"padding": text(padding), "dilation": text(dilation)}
    made: list[ir.Value] = []

    def library(which: int, info: TensorInfo) -> ir.Value:
        return call_aten(BACKWARD, [dy, x, w, *given[3:-1], [k == which for k in range(3)]], info)

    if mask[0]:
        info = channels_last(infos[len(made)])
        attributes = windows | {"stride": text(stride), "more": "0, 0", "after": ""}
        own = own_input and create("transposed_convolution", [dy, contiguous(w)], [type_of(info)], attributes).out
        made.append(own or library(0, info))
    if mask[1]:
        info = infos[len(made)]
        if own_weight:
            attributes = windows | {"stride": text(stride), "window": text(info.shape[2:])}
            plain = TensorInfo(info.dtype, info.shape, device=info.device)
            made.append(create("convolution_weight_gradient", [x, dy], [type_of(plain)], attributes).out)
        else:
            made.append(library(1, info))
    if mask[2]:
        made.append(sum_over(GraphBuilder(), dy, [0, 2, 3]))
    return made


def text(numbers: Any) -> str:
    return ", ".join(map(str, numbers))


def contiguous(x: ir.Value) -> ir.Value:
    info = info_of(x)
    return relaid(x, TensorInfo(info.dtype, info.shape, device=info.device))


def in_channels_last(x: ir.Value) -> ir.Value:
    return relaid(x, channels_last(info_of(x)))


def is_put_back(x: TensorInfo, out: TensorInfo) -> bool:
    """Whether a copy of `x` is one out of channels-last order: of an image that the forward graph saved so."""
    return x.rank == 4 and x != out and x == channels_last(x) and x.device == out.device == "cpu"

"""generate-convolutions: in training on a CPU, makes images channels last, and convolutions kernels of ours."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import create
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, type_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.dialects.ops.rows.reduction import sum_over
from mlirc.lowering.cpu.convolution.choice import Choice, along, choice_of_slices, compared, wide
from mlirc.lowering.cpu.convolution.depthwise_graph import depthwise_weight_gradient
from mlirc.lowering.cpu.convolution.volumes import Depth, volume_gradient, volume_result, volume_weight_gradient
from mlirc.lowering.fusion.aten_calls import arguments, call_aten, called
from mlirc.lowering.layout.channels_last import (
    channels_last,
    in_channels_last,
    is_put_back,
    relaid,
    spread_channels_last,
)
from mlirc.lowering.layout.convolution_regions import regions_of
from mlirc.lowering.layout.wide_images import as_wide, of_rank
from mlirc.lowering.module.target_attribute import target_of
from mlirc.lowering.pipeline.ledger import Ledger

FORWARD, BACKWARD = "aten.convolution.default", "aten.convolution_backward.default"


@dataclass(frozen=True)
class GenerateConvolutions:
    """Give float32 convolutions channels-last operands, and make them kernels of ours where these are faster.

    before:  %1:2 = "mlircx.aten"(%dy, %x, %w) {op = "aten.convolution_backward.default", ...}
    after:   %a = "mlirc.copy"(%dy)  %b = "mlirc.copy"(%x)                           to channels last
             %2 = "mlirc.convolution_weight_gradient"(%b, %a) {window = "3, 3", ...}
             %3 = "mlircx.aten"(%a, %b, %w) {op = "aten.convolution_backward.default", ...}     of the images alone
             %4 = "mlirc.copy"(%3)                                                   back, for readers of that order

    CHANNELS LAST   all convolutions of a region, or none (convolution_regions.py; convolution/choice.py has the measurements); the
                    ops between them keep the order (channels_last.py), as do those behind convolutions that fold-convolutions made
    OURS            the convolution, or one of its gradients, is a kernel of ours; others stay with oneDNN. Rows [N, C, W] are images of
                    one row; small volumes are sums of slices (convolution/volumes.py)
    """

    name = "generate-convolutions"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        block = function.regions[0].blocks[0]
        choices = cache(Choice)  # one object for equal convolutions: it keeps what was found of them
        found = [(op, choice) for op in block.operations if (choice := choice_of(op, choices)) is not None]
        if not found and not any(is_folded(op) for op in block.operations):
            return
        may_lie_last = any(choice.may_lie_last for _, choice in found)
        regions = regions_of(block, lambda op: images_of(op, choices)) if may_lie_last else None
        taken = [
            regions is not None and choice.may_lie_last and regions.lies_last(tensors(op)[0]) for op, choice in found
        ]
        restored: dict[ir.Value, ir.Value] = {}
        for (op, choice), lies_last in zip(found, taken, strict=True):
            numbers: dict[str, int] = {}
            if (
                regions is not None and choice.may_lie_last
            ):  # the gain is that of all convolutions that images pass between
                numbers = {"gain": round(regions.gain(tensors(op)[0])), "multiplications": choice.multiplications}
            rule = "CHANNELS LAST" if numbers else "STATIC IMAGES"
            ledger.record(self.name, "layout", called(op), rule, lies_last, op, **numbers)
            if not lies_last or not ledger.allows(self.name, op):
                continue
            ours = [choice.generates_forward]
            if called(op) == BACKWARD:
                ours = [choice.generates_input_gradient, choice.generates_weight_gradient]
            ledger.record(self.name, "generate", called(op), "OURS", any(ours), op, **compared(choice))
            with ir.InsertionPoint(op), op.location:
                call = ConvolutionCall.of(op, choice)
                made = call.gradients(*ours) if call.mask else [call.forward(*ours)]
                made = [of_rank(new, info_of(old).rank) for old, new in zip(op.results, made, strict=True)]
                plain = [relaid(new, info_of(old)) for old, new in zip(op.results, made, strict=True)]
            for old, new, back in zip(op.results, made, plain, strict=True):
                old.replace_all_uses_with(back)
                if back != new and info_of(new) == channels_last(info_of(new)):
                    restored[back] = new
            op.operation.erase()
        for op in block.operations:
            if is_put_back(op):
                restored[op.results[0]] = op.operands[0]
        spread_channels_last(block, restored, lambda op: ledger.allows(self.name, op), everywhere=True)


def is_folded(op: Any) -> bool:
    """Whether fold-convolutions has made a convolution of it, whose images it has laid channels last."""
    made = ("mlirc.fused_convolution", "mlirc.grouped_convolution")
    return op.operation.name in made or called(op).startswith("mkldnn._convolution")


def choice_of(op: Any, made: Callable[..., Choice]) -> Choice | None:
    """The choice for a float32 convolution on a CPU whose settings are known, or for its gradients; None for any other op."""
    if called(op) not in (FORWARD, BACKWARD):
        return None
    backward = called(op) == BACKWARD
    x, w = (info_of(v) for v in tensors(op)[backward : backward + 2])
    if x.device != "cpu" or x.rank not in (3, 4, 5) or {info_of(v).dtype for v in op.operands} != {torch.float32}:
        return None
    stride, padding, dilation, transposed, more, groups = arguments(op)[3 + backward : 9 + backward]
    if not all(isinstance(n, int) for n in (*stride, *padding, *dilation, *more, groups)):
        return None
    out = info_of(tensors(op)[0] if backward else op.results[0])
    target = target_of(op).cpu
    if x.rank == 5:
        return choice_of_slices(x.shape, w.shape, out.shape, stride, dilation, transposed, groups, target)
    windows = along(stride, 1), along(dilation, 1)
    return made(wide(x.shape), wide(w.shape), wide(out.shape), *windows, transposed, groups, target)


def images_of(op: Any, made: Callable[..., Choice]) -> tuple[list[ir.Value], float]:
    """The images of a convolution that may be channels last, and the time that this gains."""
    choice = choice_of(op, made)
    if choice is None or not choice.may_lie_last:
        return [], 0.0
    if called(op) == FORWARD:
        return [tensors(op)[0], op.results[0]], choice.gain(True, [True])
    mask = arguments(op)[-1]
    return [*tensors(op)[:2], *[op.results[0]] * mask[0]], choice.gain(False, mask)


def tensors(op: Any) -> list[ir.Value]:
    """The call's tensor operands in the order of its arguments; a tensor may occur twice."""
    return [op.operands[x["$"]] for x in arguments(op)[:3] if isinstance(x, dict)]


@dataclass(frozen=True)
class ConvolutionCall:
    """A convolution of channels-last images [N, C, H, W]: with a `mask` its gradients, with a `depth` of volumes.

    given   the arguments from `stride` to `groups`, for height and width
    parts   the number of parts of the images, whose depthwise weight gradients are summed
    """

    tensors: list[ir.Value]
    results: list[TensorInfo]
    given: list[Any]
    mask: list[bool]
    depth: Depth | None = None
    parts: int = 1

    @classmethod
    def of(cls, op: Any, choice: Choice) -> "ConvolutionCall":
        backward = called(op) == BACKWARD
        stride, padding, dilation, transposed, more, groups = arguments(op)[3 + backward :][:6]
        mask = arguments(op)[-1] if backward else []
        given = [along(stride, 1), along(padding, 0), along(dilation, 1), transposed, along(more, 0), groups]
        images = [in_channels_last(x) for x in tensors(op)[: 1 + backward]]
        infos = [as_wide(info_of(result)) for result in op.results]
        values = [*images, *tensors(op)[1 + backward :]]
        if info_of(values[0]).rank != 5:
            return cls([of_rank(x, 4) for x in values], infos, given, mask, parts=choice.parts)
        x, w = (info_of(v) for v in values[backward : backward + 2])
        out = info_of(values[0]) if backward else infos[0]
        depth = Depth(x.shape[2], out.shape[2], w.shape[2], stride[0], padding[0], dilation[0])  # type: ignore[arg-type]
        return cls(values, infos, [tuple(n[1:]) for n in (stride, padding, dilation)], mask, depth)

    @property
    def windows(self) -> dict[str, str]:
        return {name: text(n) for name, n in zip(("stride", "padding", "dilation"), self.given[:3], strict=True)}

    def forward(self, ours: bool) -> ir.Value:
        """Builds the convolution; its result is channels last."""
        x, w, *bias = self.tensors
        info = channels_last(self.results[0])
        if self.depth is not None:
            return volume_result(x, w, [contiguous(b) for b in bias], self.depth, self.windows, info)
        if not ours:
            return call_aten(FORWARD, [x, w, bias[0] if bias else None, *map(listed, self.given)], info)
        return self.own(self.given[3], x, w, bias, info)

    def own(self, transposed: bool, x: ir.Value, w: ir.Value, bias: list[ir.Value], info: TensorInfo) -> ir.Value:
        """Builds a kernel of ours: the convolution of `x`, or the transposed one."""
        attributes = self.windows | {"after": "shift" if bias else ""}
        if transposed:
            attributes["more"] = self.more(info, x, info_of(w).shape[2:])
        name = "transposed_convolution" if transposed else "convolution"
        return create(name, [x, contiguous(w), *map(contiguous, bias)], [type_of(info)], attributes).out

    def gradients(self, own_input: bool, own_weight: bool) -> list[ir.Value]:
        """Builds the gradients of the images (channels last), the weight and the bias; None for one that the mask leaves out."""
        if self.depth is not None:
            return self.volume_gradients(self.depth)
        dy, x, w = self.tensors
        transposed = self.given[3]
        # output padding of a stride or more (where the dilation is larger) adds windows of dy that no element of x stands for
        fits = all(n < step for n, step in zip(self.given[4], self.given[0], strict=True))
        own_input, own_weight = own_input and fits, own_weight and fits
        images = [dy, x] if transposed else [x, dy]
        made: list[ir.Value] = []

        def library(which: int, info: TensorInfo) -> ir.Value:
            mask = [k == which for k in range(3)]
            return call_aten(BACKWARD, [dy, x, w, [0], *map(listed, self.given), mask], info)

        if self.mask[0]:
            info = channels_last(self.results[len(made)])
            made.append(self.own(not transposed, dy, w, [], info) if own_input else library(0, info))
        if self.mask[1]:
            info = self.results[len(made)]
            if own_weight and self.given[-1] > 1:
                made.append(depthwise_weight_gradient(images[0], images[1], self.windows, self.parts, info))
            elif own_weight:
                attributes = self.windows | {"window": text(info.shape[2:])}
                plain = TensorInfo(info.dtype, info.shape, device=info.device)
                made.append(create("convolution_weight_gradient", images, [type_of(plain)], attributes).out)
            else:
                made.append(library(1, info))
        if self.mask[2]:
            made.append(sum_over(GraphBuilder(), dy, [0, 2, 3]))
        return made

    def volume_gradients(self, depth: Depth) -> list[ir.Value]:
        dy, x, w = self.tensors
        made: list[ir.Value] = []
        if self.mask[0]:
            info = self.results[0]
            made.append(volume_gradient(dy, w, depth, self.windows, self.more(info, dy, info_of(w).shape[3:]), info))
        if self.mask[1]:
            made.append(volume_weight_gradient(x, dy, depth, self.windows, info_of(w)))
        if self.mask[2]:
            made.append(sum_over(GraphBuilder(), dy, [0, 2, 3, 4]))
        return made

    def more(self, info: TensorInfo, x: ir.Value, taps: Any) -> str:
        """The numbers of trailing rows and columns of the images `info` that no window of `x` reaches."""
        axes = zip(info.shape[-2:], info_of(x).shape[-2:], taps, *self.given[:3], strict=True)
        return text(n - (q - 1) * step - gap * (k - 1) - 1 + 2 * pad for n, q, k, step, pad, gap in axes)


def listed(x: Any) -> Any:
    return list(x) if isinstance(x, tuple) else x


def text(numbers: Any) -> str:
    return ", ".join(map(str, numbers))


def contiguous(x: ir.Value) -> ir.Value:
    info = info_of(x)
    return relaid(x, TensorInfo(info.dtype, info.shape, device=info.device))

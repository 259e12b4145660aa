"""Describes a convolution at the memory level, and decides whether a kernel of ours computes it."""

from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.tensor_types import TensorInfo, info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.dialects.ops.nn.convolution import epilogue_steps
from mlirc.lowering.cpu.convolution import winograd_choice
from mlirc.lowering.cpu.convolution.choice import has_room
from mlirc.lowering.layout.channels_last import channels_last
from mlirc.lowering.module.rules import callee_of, expect
from mlirc.lowering.target import CpuTarget

AFTER = ("scale", "shift", "relu")  # in this order


KINDS = {
    "convolution": "forward",
    "convolution_add": "forward",
    "transposed_convolution": "input",
    "convolution_weight_gradient": "weight",
}


@dataclass(frozen=True)
class SpatialAxis:
    """Windows along the height or the width: window i has its element k at i * stride + k * dilation - padding.

    size, count, taps   elements of x, windows, elements of a window
    spread              elements of x lie so far apart, with nothing between: element j at j * spread
    """

    size: int
    count: int
    taps: int
    stride: int
    padding: int
    dilation: int
    spread: int = 1


@dataclass(frozen=True)
class ConvolutionProblem:
    """out[n, o, window] = sum of x[n, c, element of the window] * w[o, c, element of the window]; x and out channels last.

    kind    "forward"; "input": transposed, w is mirrored and its first two dimensions change places; "weight": w is
            computed, from x and `out`
    w       contiguous
    after   what follows the convolution: a part of AFTER
    adds    whether another image is added, before relu
    """

    kind: str
    x: TensorInfo
    w: TensorInfo
    out: TensorInfo
    rows: SpatialAxis
    columns: SpatialAxis
    after: tuple[str, ...] = ()
    adds: bool = False

    @property
    def channels(self) -> int:
        return self.x.shape[1]  # type: ignore[return-value]  # refusal() sees to it

    @property
    def filters(self) -> int:
        return self.out.shape[1]  # type: ignore[return-value]

    @property
    def taps(self) -> int:
        return self.rows.taps * self.columns.taps

    @property
    def work(self) -> Any:
        """Scalar operations, in vectors of eight."""
        points = symbols.product([self.x.shape[0], self.rows.count, self.columns.count])
        taps = -(-self.rows.taps // self.rows.spread) * -(-self.columns.taps // self.columns.spread)
        return symbols.floordiv(points * (self.channels * self.filters * taps), 8)


def results_of_tile(c: ConvolutionProblem, target: CpuTarget) -> tuple[int, int] | None:
    """How many results, down and along, a tile of fewer multiplications has; None for sums of products."""
    if c.kind == "weight" or any(
        (axis.stride, axis.dilation, axis.spread) != (1, 1, 1) for axis in (c.rows, c.columns)
    ):
        return None
    taps, image = (c.rows.taps, c.columns.taps), (c.rows.size, c.columns.size)
    sizes = c.x.shape[0], c.channels, c.filters, taps, image, c.rows.count, c.columns.count
    return winograd_choice.results_of_tile(winograd_choice.WinogradSizes(c.kind, *sizes), target)


def read_convolution(op: Any) -> ConvolutionProblem:
    """Reads an op of KINDS, or a call of one, which has the same operands and results in the same order."""
    kind = KINDS[callee_of(op)]
    values = [info_of(v) for v in (*op.operands, *op.results)]
    first, second, last = values[0], values[1], values[-1]
    padding, dilation = numbers(op, "padding"), numbers(op, "dilation")
    x, w, out = (first, last, second) if kind == "weight" else (first, second, last)
    taps = w.shape[2:]
    stride, spread = numbers(op, "stride"), (1, 1)
    if kind == "input":
        stride, spread = spread, stride
        padding = tuple(gap * (n - 1) - pad for n, pad, gap in zip(taps, padding, dilation, strict=True))
    sizes = zip(x.shape[2:], out.shape[2:], taps, stride, padding, dilation, spread, strict=True)
    rows, columns = (SpatialAxis(*given) for given in sizes)  # type: ignore[arg-type]  # refusal() sees to it
    after = tuple(epilogue_steps(attribute_value(op.attributes["after"]))) if kind != "weight" else ()
    return ConvolutionProblem(kind, x, w, out, rows, columns, after, callee_of(op) == "convolution_add")


def numbers(op: Any, name: str) -> tuple[int, ...]:
    return tuple(symbols.parse_numbers(attribute_value(op.attributes[name])))


def refusal(c: ConvolutionProblem) -> str:
    """Why our kernels do not cover it, or ""."""
    if {c.x.dtype, c.w.dtype, c.out.dtype} != {torch.float32}:
        return "FLOAT32"
    if {c.x.device, c.w.device, c.out.device} != {"cpu"}:
        return "CPU"
    sizes = (*c.x.shape[1:], *c.out.shape[1:], *c.w.shape)
    if not all(isinstance(n, int) and n > 0 for n in sizes):
        return "STATIC IMAGES"
    if any(image.stride != channels_last(image).stride for image in (c.x, c.out)):
        return "CHANNELS LAST"
    if not has_room(c.channels, c.taps, max(c.columns.count, c.columns.size)):
        return "ROOM"
    return "" if c.w.is_contiguous else "CONTIGUOUS WEIGHTS"


def verify_convolution(op: Any) -> None:
    """Raises StageError where operands, results and attributes do not belong together."""
    c = read_convolution(op)
    filters, channels = (c.channels, c.filters) if c.kind == "input" else (c.filters, c.channels)
    expect(c.w.shape[:2] == (filters, channels), op, f"weights {c.w.shape}", f"[{filters}, {channels}, KH, KW]")
    if c.kind == "weight":
        window = numbers(op, "window")
        expect(c.w.shape[2:] == window, op, f"a window {window} of {c.w.shape}", "as large as the weights")
    expect(c.x.shape[0] == c.out.shape[0], op, f"{c.out.shape[0]} images of {c.x.shape[0]}", "as many")
    more = numbers(op, "more") if c.kind == "input" else (0, 0)
    for axis, end in zip((c.rows, c.columns), more, strict=True):
        expect(min(axis.stride, axis.dilation, axis.spread) > 0, op, "a stride or dilation below 1", "1 or more")
        if isinstance(axis.size, int):
            reach = (axis.size - 1) * axis.spread + 2 * axis.padding - axis.dilation * (axis.taps - 1)
            wanted = reach // axis.stride + 1 + end
            expect(axis.count == wanted, op, f"{axis.count} windows", f"there are {wanted}")
    known = tuple(step for step in AFTER if step in c.after)
    expect(known == c.after, op, f"after = {c.after}", f"of {', '.join(AFTER)}, in this order")
    given = len(op.operands) + len(op.results) - 3 - c.adds
    expect(given == len(set(c.after) - {"relu"}), op, f"{given} factors for {c.after}", "one each, none for relu")

"""Recognises kernels that are convolutions with an epilogue, depthwise or of few channels; direct.py writes their code.

    parallel = "8, 96, 56, 56", inner = "3, 3"                   of few channels: "3, 3, 3", and %a is read at "d0, d4, ..."
    %y = size("d2 + d4 - 1");  %inside = and(ge(%y, 0), lt(%y, 56)), and the same of the width
    %a = read(%x, %inside) {map = "d0, d1, d2 + d4 - 1, d3 + d5 - 1"}
    %b = read(%w, %inside) {map = "d1, 0, d4, d5"}
    %m = mul(%a, %b);  %s = reduce(%m) {kind = "sum"};  then any outer values, the epilogue

The op fused_convolution has this form; dimensions of size 1 are dropped, and a comparison that always holds is not made.
"""

import torch

from mlirc.dialects.core.symbols import Int, free_symbols
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.kernel.axes import Axis
from mlirc.lowering.kernel.matmul import contraction_of, has_dims
from mlirc.lowering.kernel.nodes import Access, Kernel, Linear, Node, is_dim
from mlirc.lowering.kernel.typical_sizes import typical

MOST_TAPS = 32  # taps of a row of a filter, at most


@dataclass(frozen=True)
class Taps:
    """An axis of a window: tap k of window i is at element i * stride + k * dilation - padding.

    name      the dimension; "" where there is one tap
    window    the dimension of the windows; "" where there is one
    size      elements of the image along this axis; None where no tap lies past the last one
    bounded   whether a tap may lie outside at all
    x, w      strides from tap to tap, in elements, in the image and in the weights
    """

    name: str = ""
    count: int = 1
    window: str = ""
    stride: int = 0
    dilation: int = 1
    padding: int = 0
    size: Int | None = None
    bounded: bool = False
    x: Int = 0
    w: Int = 0


@dataclass(eq=False)
class WindowedSum:
    """total[row, column, channel] = sum of x[row and column and tap, channel] * w[tap, channel] over the taps inside the image; or of
    x[row and column and tap, k] * w[k, tap, channel] over some more steps k.

    channel   lies along the lanes, in w and all results that fast code writes; in x where `depthwise`
    rows      the other axes, outermost first, without `column`, which is None where there is one
    more      these steps
    """

    kernel: Kernel
    total: Node
    x: Access
    w: Access
    channel: Axis
    rows: list[Axis]
    column: Axis | None
    more: Taps
    down: Taps
    along: Taps
    epilogue: list[Node]

    @property
    def depthwise(self) -> bool:
        return self.channel.name in self.x.address.dims


def match_windows(kernel: Kernel) -> WindowedSum | None:
    """The kernel as a WindowedSum, or None where it is none that fast code is written for. Leaves `kernel` as it was."""
    found = windowed_reads(kernel)
    if found is None:
        return None
    total, x, w, epilogue = found
    if has_dims(x.address.rest) or has_dims(w.address.rest):
        return None
    axes = axes_of(kernel, x, w)
    if axes is None:
        return None
    channel, *others = axes
    taps = taps_of(kernel, x, w, {axis.name for axis in others})
    if taps is None:
        return None
    more, down, along = taps
    column = next((axis for axis in others if axis.name == along.window), None)
    if column is None and others and not along.window:  # of windows that all lie inside: the nearest ones
        free = [axis for axis in others if axis.name != down.window]
        column = min(free, key=lambda axis: _distance(x, axis), default=None)
    if column is not None and column.name == down.window:
        return None
    rows = [axis for axis in others if axis is not column]
    return WindowedSum(kernel, total, x, w, channel, rows, column, more, down, along, epilogue)


def windowed_reads(kernel: Kernel) -> tuple[Node, Access, Access, list[Node]] | None:
    """The one sum of a kernel, of products of two float32 reads under the same mask; these; and what follows. None for another kernel."""
    found = contraction_of(kernel, torch.float32)
    if found is None or not 1 <= len(kernel.inner) <= 3:
        return None
    x, w = found.factors
    if not (x.kind == w.kind == "read" and x.dtype == w.dtype == torch.float32) or x.access.mask is not w.access.mask:
        return None
    return None if x.access.scalars or w.access.scalars else (found.total, x.access, w.access, found.epilogue)


def axes_of(kernel: Kernel, x: Access, w: Access) -> list[Axis] | None:
    """The channels' axis, and then the other parallel ones; None where none lies along the weights, or these differ from row to
    row."""
    along = (d for d in kernel.parallel if w.address.strides.get(d) == 1 and x.address.strides.get(d, 0) in (0, 1))
    channel = next(along, None)
    others = [d for d in kernel.parallel if d != channel]
    if channel is None or not isinstance(kernel.parallel[channel], int) or set(others) & w.address.dims:
        return None
    return [Axis(d, kernel.parallel[d], False) for d in (channel, *others)]


def taps_of(kernel: Kernel, x: Access, w: Access, windows: set[str]) -> tuple[Taps, Taps, Taps] | None:
    """What is summed over: steps that no image ends, the taps down and along an image; None where they are not as a window's."""
    taps = taps_by_dimension(kernel, x, w, windows)
    if taps is None:
        return None
    found = list(taps.values())
    if len(found) == 3:
        return None if found[0].bounded else (found[0], found[1], found[2])
    if len(found) == 2:
        return Taps(), found[0], found[1]
    nearest = min(windows, key=lambda d: _distance(x, Axis(d, 1, False)), default="")
    return (Taps(), Taps(), found[0]) if found[0].window in ("", nearest) else (Taps(), found[0], Taps())


def taps_by_dimension(
    kernel: Kernel, x: Access, w: Access, windows: set[str], channels: str = ""
) -> dict[str, Taps] | None:
    """The taps of each inner dimension, of which there are few, except along `channels`; None where they are not as a window's, or
    the mask has more."""
    bounds = bounds_of(x.mask)
    if bounds is None:
        return None
    found: dict[str, Taps] = {}
    for name, count in kernel.inner.items():
        if not isinstance(count, int) or count < 1 or (count > MOST_TAPS and name != channels):
            return None
        steps = x.address.strides.get(name, 0), w.address.strides.get(name, 0)
        mine = [bound for bound in bounds if name in bound[1].strides]
        taps = bounded(name, count, mine, windows, steps) if mine else Taps(name, count, x=steps[0], w=steps[1])
        if taps is None:
            return None
        found[name] = taps
        bounds = [bound for bound in bounds if bound not in mine]
    return None if bounds else found


def bounded(
    name: str, count: int, bounds: list[tuple[str, Linear, Int]], windows: set[str], steps: tuple[Int, Int]
) -> Taps | None:
    """The taps of a dimension that comparisons hold inside the image: all of one place, from 0 on and below a size."""
    first = bounds[0][1]
    if any(b[1].strides != first.strides or b[1].rest != first.rest for b in bounds):
        return None
    others = set(first.strides) - {name}
    window = next(iter(others), "")
    stride, dilation, padding = first.strides.get(window, 0), first.strides[name], first.rest * -1
    if len(others) > 1 or not others <= windows:
        return None
    if not (isinstance(stride, int) and isinstance(dilation, int) and isinstance(padding, int)):
        return None
    sizes = [size for kind, _, size in bounds if kind == "lt"]
    if any(kind == "ge" and size != 0 for kind, _, size in bounds) or len(sizes) > 1:
        return None
    if not (stride >= 0 and dilation > 0 and padding >= 0):
        return None
    size = sizes[0] if sizes else None
    return Taps(name, count, window, stride, dilation, padding, size, True, *steps)


def bounds_of(mask: Node | None) -> list[tuple[str, Linear, Int]] | None:
    """The comparisons that a mask is made of: ("ge" or "lt", a place, a size); None where it is made of anything else."""
    if mask is None:
        return []
    if mask.kind == "logical_and":
        parts = [bounds_of(x) for x in mask.operands]
        return None if None in parts else [bound for part in parts for bound in part or ()]
    if mask.kind not in ("ge", "lt"):
        return None
    place, size = mask.operands
    value = _number(size)
    return None if place.kind != "size" or value is None else [(mask.kind, place.size, value)]


def _number(node: Node) -> Int | None:
    if node.kind == "constant":
        return node.attributes["value"]
    known = node.kind == "size" and not node.size.strides and not any(map(is_dim, free_symbols(node.size.rest)))
    return node.size.rest if known else None


def _distance(x: Access, axis: Axis) -> int:
    return abs(typical(x.address.strides.get(axis.name, 0)))

"""Means and the squares around them as by Welford's method: right where the sum overflows, and exact for rows of one number.

    mean = sum / n;  squares = sum (x - mean)^2
    if a row's squares are no finite number, or so few that they may come of the mean's rounding:
        mean, between the least and the largest element; where the sum overflows, by the sum of 2^-64 of the elements
        squares around it; infinite where differences overflow

A row in registers is read again in the branch; in a loop over a row each lane keeps what the branch needs: the scaled sum, and as the least and
the largest element its mean, which is between them. Rows with an infinity or a NaN keep
what their sums give.
"""

from collections.abc import Callable, Sequence

import torch

from mlirc.dialects.core import symbols
from mlirc.lowering.gpu.triton.builder import TL_DTYPE, TritonValue, literal
from mlirc.lowering.gpu.triton.emitter import TritonEmitter
from mlirc.lowering.gpu.triton.folds import TritonFold
from mlirc.lowering.kernel.nodes import Node

MEAN = """@triton.jit
def settle_mean(mean, scaled, least, largest, size):
    scaled = scaled / size
    inside = tl.where(mean - mean == 0.0, mean, scaled * 18446744073709551616.0)
    inside = tl.minimum(tl.maximum(inside, least), largest) + 0.0
    return tl.where(scaled - scaled == 0.0, inside, mean)
"""
FOLD = """@triton.jit
def fold_spread(scaled, least, largest, other, less, larger):
    return scaled + other, tl.minimum(least, less), tl.maximum(largest, larger)
"""
VARIANCE = """@triton.jit
def is_odd(mean, squares, size):
    rounding = mean * 9.5367431640625e-07
    return ((squares > 0.0) & (squares < rounding * rounding * size)) | (squares - squares != 0.0)


@triton.jit
def settle_squares(squares, scaled, least, largest):
    overflows = (squares - squares != 0.0) & (scaled - scaled == 0.0)
    return tl.where(overflows, tl.where(least < largest, float("inf"), 0.0), squares)
"""
SCALE = repr(2.0**-64)
LANES = (0.0, float("inf"), float("-inf"))  # the scaled sum, the least and the largest element, of nothing
STEPS = ("{} + {}", "tl.minimum({}, {})", "tl.maximum({}, {})")


def start(e: TritonEmitter, node: Node) -> list[TritonValue]:
    """The accumulators of a mean in a loop, beside its sum."""
    dims, dtype = e.lanes_of(node.operands[0]), TritonFold(node).dtype
    return [e.lines.name(f"tl.full({e.shape(dims)}, {literal(x)}, {TL_DTYPE[dtype]})", dtype, dims) for x in LANES]


def step(e: TritonEmitter, node: Node, state: Sequence[TritonValue]) -> None:
    for lanes, x, how in zip(state, scaled_and_extremes(e, node), STEPS, strict=True):
        e.lines.add(f"{lanes} = {how.format(lanes, x)}")


def scaled_and_extremes(e: TritonEmitter, node: Node) -> list[TritonValue]:
    """What is folded of a block beside the elements: 2^-64 of them, and they themselves for either extreme."""
    fold, x = e.folded(node)
    scaled = e.lines.name(f"{x} * {SCALE}", fold.dtype, x.tile)
    if "r" not in e.masks:
        return [scaled, x, x]
    masked = (f"tl.where({e.masks['r']}, {x}, {literal(value)})" for value in LANES[1:])
    return [scaled, *(e.lines.name(text, fold.dtype, x.tile) for text in masked)]


def elements(e: TritonEmitter, dtype: torch.dtype) -> TritonValue:
    """The length of a row as a number of this dtype."""
    size = symbols.product(t.size for t in e.schedule.tiles if t.name == "r")
    if isinstance(size, int):
        return e.builder(dtype).constant(float(size), dtype)
    return e.lines.name(f"({e.indices.write(size, wide=True)}).to({TL_DTYPE[dtype]})", dtype, frozenset())


def alone(e: TritonEmitter, node: Node, total: TritonValue, state: Sequence[TritonValue] = ()) -> TritonValue:
    """A mean without squares around it, given the sum `total` and, after a loop, the lanes `state`."""
    size = elements(e, total.dtype)
    mean = e.builder(total.dtype).div(total, size)
    return _settled(e, mean, _folded(e, state or scaled_and_extremes(e, node)), size)


def of_variance(
    e: TritonEmitter,
    node: Node,
    total: TritonValue,
    sum_around: Callable[[TritonValue], TritonValue],
    state: Sequence[TritonValue] = (),
) -> tuple[TritonValue, TritonValue]:
    """A mean and the squares around it; `sum_around` writes what sums them up."""
    size = elements(e, total.dtype)
    first = e.builder(total.dtype).div(total, size)
    around = sum_around(first)
    dims = first.tile | around.tile
    name, add = e.lines.name, e.lines.add
    e.functions["settle_squares"] = VARIANCE
    odd = name(f"is_odd({first}, {around}, {size})", torch.bool, dims)
    mean, squares = name(str(first), total.dtype, first.tile), name(str(around), total.dtype, dims)
    add(f"if {odd}:" if e.is_number(dims) else f"if tl.max({odd}.to(tl.int32)) > 0:")
    e.lines.depth += 1
    folded = _folded(e, state or scaled_and_extremes(e, node))
    new = _settled(e, first, folded, size)
    again = sum_around(new)
    add(f"{squares} = tl.where({odd}, settle_squares({again}, {', '.join(folded)}), {squares})")
    add(f"{mean} = tl.where({odd}, {new}, {mean})")
    e.lines.depth -= 1
    return mean, squares


def _folded(e: TritonEmitter, blocks: Sequence[TritonValue]) -> list[TritonValue]:
    """These along the row."""
    e.functions["spread"] = FOLD
    return e.reduced_by("spread", blocks)


def _settled(e: TritonEmitter, mean: TritonValue, folded: Sequence[TritonValue], size: TritonValue) -> TritonValue:
    e.functions["settle_mean"] = MEAN
    return e.lines.name(f"settle_mean({mean}, {', '.join(folded)}, {size})", mean.dtype, mean.tile)

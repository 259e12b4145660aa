"""A mean and a sum of squared deviations in one pass over a row, for batch norm and other norms.

    total = reduce sum x;  squares = reduce sum (x - total/n)^2

Each lane holds the mean of its elements and the squares around that (Welford's method: nothing is lost where the mean is
large). At the end sum((x - c)^2) = sum over lanes of (squares + count * (mean - c)^2), which holds for any c.
"""

from collections.abc import Sequence

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.gpu.triton import means
from mlirc.lowering.gpu.triton.builder import TL_DTYPE, TritonValue
from mlirc.lowering.gpu.triton.emitter import TritonEmitter
from mlirc.lowering.gpu.triton.folds import TritonFold, function_text
from mlirc.lowering.kernel.nodes import Kernel, Node

FUNCTION = """@triton.jit
def fold_moments(mean, squares, x, share):
    rest = x - mean
    mean = tl.fma(rest, share, mean)
    return mean, tl.fma(rest, x - mean, squares)
"""


@dataclass(frozen=True)
class Moments:
    """`first` and `second` are the reduce nodes, `value` what both fold, `centre` the mean that is subtracted from it."""

    first: Node
    second: Node
    value: Node
    centre: Node

    def start(self, e: TritonEmitter) -> tuple[TritonValue, ...]:
        """The variables of the lanes: sum, mean, squares around it, and, where `first` is the mean, a sum that does not overflow."""
        e.functions |= {"sum": function_text("sum"), "moments": FUNCTION}
        dims, dtype, count = e.lanes_of(self.value), self.value.dtype, 4 if self.is_mean else 3
        return tuple(
            e.lines.name(f"tl.full({e.shape(dims)}, 0.0, {TL_DTYPE[dtype]})", dtype, dims) for _ in range(count)
        )

    @property
    def is_mean(self) -> bool:
        """Whether `first` is the mean, not the sum that it follows from."""
        return TritonFold(self.first).is_mean

    def at_once(self, e: TritonEmitter, total: TritonValue) -> None:
        """Puts the values of both reductions, `first` and `second`, into the emitter's environment, for rows that lie in registers.

        `total` is the rows' sum. Values that are computed from a mean on the way are not kept there.
        """

        def around(mean: TritonValue) -> TritonValue:
            known = dict(e.env)
            e.env[self.first] = mean
            fold, squares = e.folded(self.second)
            result = e.reduced(fold, [squares])
            e.env.clear()
            e.env.update(known)
            return result

        e.env[self.first], e.env[self.second] = means.of_variance(e, self.first, total, around)

    def step(self, e: TritonEmitter, state: tuple[TritonValue, ...]) -> None:
        total, mean, squares, *more = state
        fold, folded = e.folded(self.first)
        e.lines.add(f"{total} = fold_{fold.function}({total}, {folded})")
        for scaled in more:
            e.lines.add(f"{scaled} = tl.fma({folded}, {means.SCALE}, {scaled})")
        x = self.value_of(e)
        if "r" in e.masks:  # what is not there changes nothing
            x = e.lines.name(f"tl.where({e.masks['r']}, {x}, {mean})", x.dtype, mean.tile)
        share = f"1.0 / (start // {self.block(e)} + 1)"
        e.lines.add(f"{mean}, {squares} = fold_moments({mean}, {squares}, {x}, {share})")

    def value_of(self, e: TritonEmitter) -> TritonValue:
        return TritonFold(self.first).widened(e.builder(self.value.dtype), e.value(self.value))

    def block(self, e: TritonEmitter) -> str:
        return next(e.block_name(t) for t in e.blocks if t.name == "r")

    def finish(self, e: TritonEmitter, state: tuple[TritonValue, ...]) -> None:
        """Both values, as variables that the emitter knows."""
        total, mean, squares, *more = state
        fold, dtype = TritonFold(self.first), self.value.dtype
        folded = e.reduced(fold, [total])
        size = symbols.product(t.size for t in e.schedule.tiles if t.name == "r")
        places = ", ".join(":" if t.name == "r" else "None" for t in e.blocks)
        block = self.block(e)
        lane = f"tl.arange(0, {block})" + (f"[{places}]" if len(e.blocks) > 1 else "")
        count = e.lines.name(
            f"(({e.indices.number(size)} - {lane} + ({block} - 1)) // {block}).to({TL_DTYPE[dtype]})",
            dtype,
            frozenset("r"),
        )

        def around(centre: TritonValue) -> TritonValue:
            apart = e.lines.name(f"{mean} - {centre}", dtype, mean.tile)
            text = f"tl.where({count} > 0.0, {squares} + {count} * {apart} * {apart}, 0.0)"
            return e.reduced(TritonFold(self.second), [e.lines.name(text, dtype, mean.tile)])

        if self.is_mean:
            lanes = [*more, *self._extremes(e, mean, count)]
            e.env[self.first], e.env[self.second] = means.of_variance(e, self.first, folded, around, lanes)
            return
        e.env[self.first] = e.result(fold, folded)
        e.env[self.second] = e.result(TritonFold(self.second), around(e.value(self.centre)))

    def _extremes(self, e: TritonEmitter, mean: TritonValue, count: TritonValue) -> list[TritonValue]:
        """Bounds of the row's mean, of each lane: its own mean, or none where a difference overflowed."""
        found = []
        for bound, none in (('float("-inf")', 'float("inf")'), ('float("inf")', 'float("-inf")')):
            text = f"tl.where({count} > 0.0, tl.where({mean} - {mean} == 0.0, {mean}, {bound}), {none})"
            found.append(e.lines.name(text, mean.dtype, mean.tile))
        return found


def means_of_variances(kernel: Kernel) -> list[Moments]:
    """The means of a kernel whose rows are in registers, each with the squares around it."""
    found: dict[Node, Moments] = {}
    for node in kernel.nodes:
        if node.kind == "reduce" and node.attributes["kind"] == "sum":
            pair = find_moments(node, kernel.nodes, (torch.float32, torch.float64))
            if pair is not None and pair.is_mean:
                found.setdefault(pair.first, pair)
    return list(found.values())


def is_mean(node: Node, total: Node) -> bool:
    """Whether a value is the sum times a number, or the mean itself: where the sum is infinite or NaN, so is it."""
    if total.attributes["kind"] == "mean":
        return node is total
    if node.kind not in ("mul", "div") or node.operands[0] is not total or node.operands[1].kind != "constant":
        return False
    number = node.operands[1].attributes["value"]
    return isinstance(number, float) and 0 < number < float("inf") and node.dtype == total.dtype


def find_moments(node: Node, nodes: list[Node], dtypes: Sequence[torch.dtype] = (torch.float32,)) -> Moments | None:
    """The pair whose squares the reduction `node` sums up. In a loop a lane's share of an element is a float32."""
    product = node.operands[0]
    if product.kind != "mul" or product.operands[0] is not product.operands[1]:
        return None
    difference = product.operands[0]
    if difference.kind != "sub" or node.dtype not in dtypes:
        return None
    value, centre = difference.operands
    for total in nodes:
        is_sum = total.kind == "reduce" and total.attributes["kind"] in ("sum", "mean") and total.operands[0] is value
        if is_sum and is_mean(centre, total):
            return Moments(total, node, value, centre)
    return None

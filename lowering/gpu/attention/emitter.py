"""Writes the values of an attention's body: positions in int32 where they fit, though the dialect has them in int64.

    (j - i).to(float32)      int64: two instructions to subtract, and a conversion at a quarter of the speed

A value of such a node is an int32 in the text; where it meets an int64, it is widened. A sum or difference of a number for each query
and one for each key becomes one of floats: the conversions are then a row's and a column's.

    j.to(float32) - i.to(float32)      the same, where all three are at most 2^24
"""

from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.lowering.gpu.triton.builder import TL_DTYPE, TritonValue
from mlirc.lowering.gpu.triton.emitter import TritonEmitter, expression
from mlirc.lowering.kernel.nodes import Node, computed_dtype

Bounds = tuple[int, int]  # the least and the largest value
NARROW: Bounds = (-(1 << 31), (1 << 31) - 1)
EXACT: Bounds = (-(1 << 24), 1 << 24)  # what float32 has every integer of
INTEGERS = (torch.int32, torch.int16, torch.int8, torch.uint8)


class NarrowEmitter(TritonEmitter):
    """`positions_fit`: whether positions are less than 2^31."""

    def __init__(self, *arguments: Any, positions_fit: bool):
        super().__init__(*arguments)
        self.positions_fit = positions_fit
        self.bounds: dict[Node, Bounds | None] = {}

    def compute(self, node: Node) -> TritonValue:
        if not self.positions_fit or (not node.operands and node.kind != "size"):
            return super().compute(node)
        if node.kind == "size":
            if self.bounds_of(node) is None or not self.indices.narrow:
                return super().compute(node)
            index = self.indices.linear(node.size)
            return self.lines.name(str(index), torch.int32, index.tile)
        if node.kind in ("read", "check_index"):
            return super().compute(node)
        if node.kind == "cast" and node.dtype == torch.float32 and (parts := self.exact_parts(node.operands[0])):
            b = self.builder(torch.float32)
            return node.operands[0].cls.scalar(b, *(b.cast(x, torch.float32) for x in parts))
        values = [self.value(x) for x in node.operands]
        if node.kind == "cast" and node.dtype == torch.int64 and values[0].dtype in (torch.int32, torch.bool):
            return self.builder(torch.int32).cast(values[0], torch.int32)
        small = [is_small(x, node.operands[k].dtype) for k, x in enumerate(values)]
        if (
            node.kind in ("cast", "bitcast")
            or node.cls is None
            or computed_dtype(node) != torch.int64
            or not any(small)
        ):
            return super().compute(node)
        whole = [k for k, x in enumerate(node.operands) if x.dtype == torch.int64]
        if all(small[k] for k in whole) and (node.dtype != torch.int64 or self.bounds_of(node) is not None):
            b = self.builder(torch.int32)
            values = [b.constant(x.number, torch.int32) if k in whole and x.number is not None else x
                      for k, x in enumerate(values)]  # fmt: skip
            return node.cls.scalar(b, *values, **node.attributes)
        values = [self.widened(x) if k in whole else x for k, x in enumerate(values)]
        return node.cls.scalar(self.builder(torch.int64), *values, **node.attributes)

    def exact_parts(self, node: Node) -> list[TritonValue] | None:
        """What a sum or a difference is of, if each is smaller than the tile, and all three are integers that float32 has."""
        if (
            node.kind not in ("add", "sub")
            or node.attributes
            or any(
                x.dtype.is_floating_point or x.dtype == torch.bool or not lies_within(self.bounds_of(x), EXACT)
                for x in (node, *node.operands)
            )
        ):
            return None
        values = [self.value(x) for x in node.operands]
        return values if all(len(x.tile) < 2 for x in values) and len(values[0].tile | values[1].tile) == 2 else None

    def check_index(self, node: Node) -> TritonValue:
        """An index that is known to be good needs no check."""
        bounds, size = self.bounds_of(node.operands[0]), expression(node.size)
        if bounds is None or not isinstance(size, int) or bounds[0] < 0 or bounds[1] >= size:
            self.env[node.operands[0]] = self.widened(self.value(node.operands[0]))
            return super().check_index(node)
        self.env["checked", node] = self.builder(torch.bool).constant(True)
        return self.value(node.operands[0])

    def widened(self, x: TritonValue) -> TritonValue:
        if x.dtype == torch.int64:
            return x
        return self.lines.name(f"{x}.to({TL_DTYPE[torch.int64]})", torch.int64, x.tile)

    def bounds_of(self, node: Node) -> Bounds | None:
        """Between what an integer lies, where that is known and fits."""
        if node not in self.bounds:
            found = self.find_bounds(node)
            fits = found is not None and NARROW[0] <= found[0] and found[1] <= NARROW[1]
            self.bounds[node] = found if fits else None
        return self.bounds[node]

    def find_bounds(self, node: Node) -> Bounds | None:
        if node.kind == "size":
            expr = expression(node.size)
            most, least = (symbols.upper_bound(x, self.indices.ranges) for x in (expr, expr * -1))
            return (-least, most) if isinstance(most, int) and isinstance(least, int) else None
        if node.kind == "constant" and not node.dtype.is_floating_point:
            return int(node.attributes["value"]), int(node.attributes["value"])
        if node.kind == "check_index":
            last = expression(node.size)
            return (0, last) if isinstance(last, int) else None
        if node.dtype == torch.bool:
            return 0, 1
        if node.dtype in INTEGERS and node.kind in ("read", "cast"):
            limits = torch.iinfo(node.dtype)
            return limits.min, limits.max
        if node.kind == "cast" and not node.operands[0].dtype.is_floating_point:
            return self.bounds_of(node.operands[0])
        if node.kind in ARITHMETIC:
            parts = [self.bounds_of(x) for x in node.operands if x.dtype != torch.bool]
            if None in parts or not parts:
                return None
            return ARITHMETIC[node.kind](*parts)
        return None


def is_small(x: TritonValue, dtype: torch.dtype) -> bool:
    """Whether a value of an int64 node is an int32 here, or a number that is one."""
    return dtype == torch.int64 and (
        x.dtype == torch.int32 or (x.number is not None and NARROW[0] <= x.number <= NARROW[1])
    )


def lies_within(x: Bounds | None, outer: Bounds) -> bool:
    return x is not None and outer[0] <= x[0] and x[1] <= outer[1]


def product(x: Bounds, y: Bounds) -> Bounds:
    ends = [a * b for a in x for b in y]
    return min(ends), max(ends)


def quotient(x: Bounds, y: Bounds) -> Bounds | None:
    return (x[0] // y[0], x[1] // y[0]) if y[0] == y[1] > 0 else None


def remainder(x: Bounds, y: Bounds) -> Bounds | None:
    return (0, y[1] - 1) if y[0] > 0 else None


ARITHMETIC = {
    "add": lambda x, y: (x[0] + y[0], x[1] + y[1]),
    "sub": lambda x, y: (x[0] - y[1], x[1] - y[0]),
    "mul": product,
    "neg": lambda x: (-x[1], -x[0]),
    "abs": lambda x: (0, max(abs(x[0]), abs(x[1]))),
    "minimum": lambda x, y: (min(x[0], y[0]), min(x[1], y[1])),
    "maximum": lambda x, y: (max(x[0], y[0]), max(x[1], y[1])),
    "select": lambda x, y: (min(x[0], y[0]), max(x[1], y[1])),
    "floor_divide": quotient,
    "remainder": remainder,
}

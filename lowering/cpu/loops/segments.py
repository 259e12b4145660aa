"""Splits a loop over an axis into segments, in each of which comparisons of the index with constants are known. A concatenation then reads one
operand at a time, without masks.

before:  for d in 0..64:   select(d < 32, -read(x, d if d < 32), read(y, d - 32 if d >= 32))
after:   for d in 0..32:   -read(x, d)
         for d in 32..64:  read(y, d - 32)
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from mlirc.lowering.kernel.axes import Axis
from mlirc.lowering.kernel.nodes import Node

MOST = 4  # segments: each is a loop of its own in the text

_COMPARE = {"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}


@dataclass(frozen=True)
class Segment:
    """The indices lo <= i < hi, and the comparisons that have one result at all of them."""

    lo: int
    hi: int
    known: dict[Node, bool]


def segments(nodes: Sequence[Node], axis: Axis, step: int) -> list[Segment]:
    """The segments of an axis of known size, at multiples of `step`; empty where no comparison splits it."""
    found = {n: c for n in nodes if (c := _constant(n, axis)) is not None}
    size = axis.known
    if size is None or not found:
        return []
    # a comparison with c changes between c - 1 and c, or between c and c + 1
    cuts = sorted({c + (n.kind in ("le", "gt")) for n, c in found.items()} & set(range(1, size)))
    if not cuts or len(cuts) >= MOST or any(c % step for c in cuts):
        return []
    ends = [0, *cuts, size]
    return [Segment(lo, hi, {n: _COMPARE[n.kind](lo, c) for n, c in found.items()}) for lo, hi in pairwise(ends)]


def _constant(node: Node, axis: Axis) -> int | None:
    """The constant that `node` compares the index along `axis` with, or None."""
    if node.kind not in _COMPARE:
        return None
    x, y = node.operands
    is_index = x.kind == "size" and x.size.strides == {axis.name: 1} and x.size.rest == 0
    return y.attributes["value"] if is_index and y.kind == "constant" else None

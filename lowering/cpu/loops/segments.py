"""Splits a loop over an axis into segments, in each of which comparisons of the index with constants are known, and maps of reads are linear.
A concatenation then reads one operand at a time, without masks, and a reflection pad reads neighbouring elements.

before:  for d in 0..64:   select(d < 32, -read(x, d if d < 32), read(y, d - 32 if d >= 32))
after:   for d in 0..32:   -read(x, d)
         for d in 32..64:  read(y, d - 32)
"""

import operator
from collections.abc import Iterable, Sequence
from dataclasses import field
from itertools import pairwise

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.kernel.axes import Axis
from mlirc.lowering.kernel.linear_parts import parts, read_with
from mlirc.lowering.kernel.nodes import Access, Node

MOST = 4  # segments: each is a loop of its own in the text
LEAST = 16  # vectors in a segment that ends within a vector

_COMPARE = {"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}


@dataclass(frozen=True)
class Segment:
    """The indices lo <= i < hi, the comparisons that have one result at all of them, and where reads go there whose maps have parts."""

    lo: Int
    hi: Int
    known: dict[Node, bool]
    reads: dict[Node, Access] = field(default_factory=dict)


def segments(nodes: Sequence[Node], axis: Axis, step: int) -> list[Segment]:
    """The segments of an axis, first to last; empty where nothing splits it.

    Comparisons split an axis of known size: at multiples of `step`, anywhere into long segments, or where maps split it too.
    """
    compared = _compared(nodes, axis)
    reads = [n for n in nodes if _is_in_rest(n, axis)]
    found = parts([n.access.address.rest for n in reads], axis.name, axis.size) if reads else []
    if found:
        return [
            Segment(part.lo, part.hi, _known(compared, part.lo, part.hi), dict(_reads(reads, part.values)))
            for part in found
        ]
    ends = _ends(compared, axis, step)
    return [Segment(lo, hi, _known(compared, lo, hi)) for lo, hi in pairwise(ends)]


def known_by_segments(nodes: Sequence[Node], axes: Sequence[Axis], most: int) -> set[Node]:
    """The comparisons that are known in each segment of a kernel with one axis, and the indices that they alone take.

    most    how many lanes a vector may have
    """
    if len(axes) != 1 or axes[0].inner or any(_is_in_rest(n, axes[0]) for n in nodes):
        return set()
    compared = _compared(nodes, axes[0])
    if not _ends(compared, axes[0], most):
        return set()
    taken = {x for n in nodes if n not in compared for x in n.operands}
    return set(compared) | {x for n in compared for x in n.operands if x not in taken}


def _is_in_rest(node: Node, axis: Axis) -> bool:
    """Whether a read's map has the index in other terms than strides."""
    return node.access is not None and axis.name in symbols.free_symbols(node.access.address.rest)


def _compared(nodes: Iterable[Node], axis: Axis) -> dict[Node, int]:
    """The comparisons of the index along an axis of known size, and what they compare it with."""
    return {n: c for n in nodes if axis.known is not None and (c := _constant(n, axis)) is not None}


def _ends(compared: dict[Node, int], axis: Axis, step: int) -> list[int]:
    """Where segments begin and end; empty where nothing splits the axis, or into too many or too short ones."""
    size = axis.known or 0
    # a comparison with c changes between c - 1 and c, or between c and c + 1
    changes = {c + (n.kind in ("le", "gt")) for n, c in compared.items()}
    cuts = sorted(c for c in changes if 0 < c < size)
    ends = [0, *cuts, size]
    short = any(hi - lo < LEAST * step for lo, hi in pairwise(ends))
    return [] if not cuts or len(cuts) >= MOST or (short and any(c % step for c in cuts)) else ends


def _known(compared: dict[Node, int], lo: Int, hi: Int) -> dict[Node, bool]:
    """The comparisons that have one result at lo <= i < hi."""
    if not isinstance(lo, int) or not isinstance(hi, int):
        return {}
    results = {n: (_COMPARE[n.kind](lo, c), _COMPARE[n.kind](hi - 1, c)) for n, c in compared.items()}
    return {n: first for n, (first, last) in results.items() if first == last}


def _reads(reads: Iterable[Node], rests: Iterable[Int]) -> Iterable[tuple[Node, Access]]:
    return ((node, read_with(node.access, rest)) for node, rest in zip(reads, rests, strict=True))


def _constant(node: Node, axis: Axis) -> int | None:
    """The constant that `node` compares the index along `axis` with, or None."""
    if node.kind not in _COMPARE:
        return None
    x, y = node.operands
    is_index = x.kind == "size" and x.size.strides == {axis.name: 1} and x.size.rest == 0
    return y.attributes["value"] if is_index and y.kind == "constant" else None

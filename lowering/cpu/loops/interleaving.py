"""Interleaves the text of several independent points of a loop."""

from itertools import zip_longest

from mlirc.dialects.core.kernel_ops import POSITIONAL
from mlirc.lowering.cpu.loops.schedule import Pass
from mlirc.lowering.kernel.axes import Axis

FEW, MANY = (
    2,
    4,
)  # points of an iteration of the innermost loop, where a point is a long chain of operations, and a short one
SHORT = 6  # the cost of a pass up to which its chains are short


def points_at_once(step: Pass, axis: Axis | None, taken: int, rows: bool) -> int:
    """How many points of `axis`, or vectors of `taken` points, an iteration of the innermost loop computes.

    rows   whether it is a pass over a row, which lies in the cache; a loop over all of memory waits for that
    """
    kinds = [n.attributes["kind"] for n in step.reductions]
    if step.scans or axis is None or any(kind in POSITIONAL for kind in kinds):
        return 1
    inside = [n for n in step.nodes if axis.name in n.dims]
    if not kinds and all(n.cheap for n in inside):
        whole = axis.known is not None and axis.known % (FEW * taken) == 0
        return FEW if rows and taken > 1 and whole else 1
    copies = MANY if sum(n.cost for n in inside) <= SHORT else FEW
    while copies > 1 and axis.known is not None and axis.known < copies * taken:
        copies //= 2
    return copies


def interleaved(parts: list[list[str]]) -> list[str]:
    """The lines of independent points, a statement of each in turn: while one point waits for a result, the others go on.

    LLVM about keeps the order of statements, and a processor looks some hundred instructions ahead. An erf is longer.
    """
    ops = [statements(part) for part in parts]
    return [line for turn in zip_longest(*ops, fillvalue=()) for op in turn for line in op]


def statements(lines: list[str]) -> list[list[str]]:
    """The lines in groups, a statement each; an op with regions ends with its last brace."""
    groups, depth = [], 0
    for line in lines:
        if depth == 0:
            groups.append([])
        groups[-1].append(line)
        depth += line.endswith("{") - line.startswith("}")
    return groups

"""Places blocks of memory in one arena, so that blocks whose lifetimes overlap do not overlap in memory.

The algorithm is "greedy by size" for offsets (Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net
Inference, 2020): the largest block first, each into the smallest gap that takes it between the blocks already placed
whose lifetimes meet its own, or behind them.

Sizes may be symbolic. A size is c*p, an integer times an expression without a common factor (liveness.content_of):
3072*s0 has c = 3072 and p = s0, and a static size has p = 1. Blocks of one p compare by c alone, whatever p turns out to be,
so that each p has a section of the arena in which the placement works on integers. Sections lie one behind the other:

    static bytes | 64*a of s0 | 64*b of s0*s1

Offsets are multiples of 64 bytes, hence all c are made multiples of 64. Rounding a small c up would cost too much (a
vector of s0 floats would take 64*s0 bytes, not 4*s0): small ones count in p' = (p + 63)//64 instead, 4*s0 <= 256*p'.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable

from mlirc.dialects.core.symbols import Int, floordiv
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.analysis.liveness import content_of

ALIGNMENT = 64  # bytes: a cache line, and the widest vector
CROWDED = 12  # if over 1/12 of all pairs of blocks meet, searching all blocks is faster than lists of who meets whom


@dataclass(eq=False)
class ArenaBlock:
    """`size` bytes, in use from position `start` to position `end`, both included. `offset` is the result.

    alone   whether it is no part of the arena, but an allocation that is released after its last use
    """

    size: Int
    start: int
    end: int
    offset: Int = 0
    alone: bool = False


def lay_out(blocks: Iterable[ArenaBlock]) -> Int:
    """Sets each block's offset, a multiple of ALIGNMENT, and returns the size of the arena."""
    sections: dict[Int, list[tuple[int, ArenaBlock]]] = {}
    for block in blocks:
        coefficient, factor = as_multiple(block.size)
        if coefficient:
            sections.setdefault(factor, []).append((coefficient, block))
    arena: Int = 0
    for factor in sorted(sections, key=lambda factor: (factor != 1, str(factor))):
        members = sections[factor]
        offsets, extent = place([(size, block.start, block.end) for size, block in members])
        for (_, block), offset in zip(members, offsets, strict=True):
            block.offset = arena + offset * factor
        arena = arena + extent * factor
    return arena


def as_multiple(size: Int) -> tuple[int, Int]:
    """(c, p) with size <= c*p, c a multiple of ALIGNMENT, and little wasted."""
    coefficient, factor = content_of(size)
    if factor == 1 or coefficient % ALIGNMENT == 0 or coefficient > 8 * ALIGNMENT:
        return round_up(coefficient), factor
    return coefficient * ALIGNMENT, floordiv(factor + ALIGNMENT - 1, ALIGNMENT)


def round_up(size: int) -> int:
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def place(blocks: list[tuple[int, int, int]]) -> tuple[list[int], int]:
    """Offsets for blocks (size, start, end), and the size of what holds them all."""
    order = sorted(range(len(blocks)), key=lambda i: (-blocks[i][0], blocks[i][1] - blocks[i][2], blocks[i][1]))
    offsets = [-1] * len(blocks)
    if meetings(blocks) > len(blocks) ** 2 // CROWDED:
        return place_crowded(blocks, order, offsets)
    taken_of: list[list[tuple[int, int]]] = [[] for _ in blocks]  # (offset, end) of each block placed that meets it
    meets = meeting(blocks)
    total = 0
    for i in order:
        offsets[i] = best_gap(taken_of[i], blocks[i][0])
        taken = (offsets[i], offsets[i] + blocks[i][0])
        total = max(total, taken[1])
        for j in meets[i]:
            if offsets[j] < 0:
                insort(taken_of[j], taken)
    return offsets, total


def place_crowded(blocks: list[tuple[int, int, int]], order: list[int], offsets: list[int]) -> tuple[list[int], int]:
    """`place`, for blocks most of whose lifetimes overlap: it searches all placed blocks, and lists no overlaps."""
    placed: list[tuple[int, int, int, int]] = []  # (offset, its end, start, end) in that order
    for i in order:
        size, first, last = blocks[i]
        taken = [(offset, end) for offset, end, start, stop in placed if start <= last and stop >= first]
        offsets[i] = best_gap(taken, size)
        insort(placed, (offsets[i], offsets[i] + size, first, last))
    return offsets, max((end for _, end, _, _ in placed), default=0)


def meetings(blocks: list[tuple[int, int, int]]) -> int:
    """How many pairs of blocks have lifetimes that overlap."""
    ends = sorted(end for _, _, end in blocks)
    return sum(k - bisect_left(ends, start) for k, start in enumerate(sorted(start for _, start, _ in blocks)))


def meeting(blocks: list[tuple[int, int, int]]) -> list[list[int]]:
    """For each block the blocks whose lifetimes overlap its own."""
    found: list[list[int]] = [[] for _ in blocks]
    alive: list[int] = []
    for i in sorted(range(len(blocks)), key=lambda i: blocks[i][1]):
        start = blocks[i][1]
        alive = [j for j in alive if blocks[j][2] >= start]
        for j in alive:
            found[j].append(i)
        found[i].extend(alive)
        alive.append(i)
    return found


def best_gap(taken: list[tuple[int, int]], size: int) -> int:
    """The start of the smallest gap between `taken` intervals (sorted by start) that holds `size`, or their end."""
    best, best_length = None, 0
    behind = 0
    for start, end in taken:
        length = start - behind
        if length >= size and (best is None or length < best_length):
            best, best_length = behind, length
        behind = max(behind, end)
    return behind if best is None else best


def live_peak(blocks: list[ArenaBlock]) -> int:
    """The most static bytes in use at any one position: no arena can be smaller."""
    changes: dict[int, int] = {}
    for block in blocks:
        if isinstance(block.size, int):
            changes[block.start] = changes.get(block.start, 0) + block.size
            changes[block.end + 1] = changes.get(block.end + 1, 0) - block.size
    most = running = 0
    for position in sorted(changes):
        running += changes[position]
        most = max(most, running)
    return most

"""The programs of a Triton kernel: their number, their order, and the block and point of each."""

import math

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.lowering.gpu.triton.builder import TritonValue
from mlirc.lowering.gpu.triton.emitter import TritonEmitter
from mlirc.lowering.gpu.triton.schedule import TritonSchedule, TritonTile


def counts_of(schedule: TritonSchedule) -> list[Int]:
    """How many programs there are along each tile dimension and each axis outside of the tile."""
    counts = [symbols.floordiv(t.size + t.block - 1, t.block) for t in schedule.tiles if t.name != "r"]
    if schedule.rows > 1:
        counts[0] = symbols.floordiv(counts[0] + schedule.rows - 1, schedule.rows)
    return counts + [a.size for a in schedule.programs]


def bind_programs(e: TritonEmitter) -> None:
    """The program's number, taken apart: its block of each tile dimension, and its point of each other axis."""
    tiles = [t for t in e.schedule.tiles if t.name != "r"]
    parts: list[TritonTile | str] = [*(a.name for a in e.schedule.programs), *tiles]
    counts = counts_of(e.schedule)
    sizes = counts[len(tiles) :] + counts[: len(tiles)]
    number = "tl.program_id(0)" + ("" if e.indices.narrow else ".to(tl.int64)")
    if len(parts) > 1:
        e.lines.add(f"program = {number}")
        number = "program"
    if (chunk := _chunk(e.schedule)) is not None:
        down, across = (
            f"program // {chunk} % {counts[0]}",
            f"program // {chunk * counts[0]} * {chunk} + program % {chunk}",
        )
        if chunk == 1:
            down, across = f"program % {counts[0]}", f"program // {counts[0]}"
        _bind_block(e, tiles[0], down)
        _bind_block(e, tiles[1], across)
        return
    for k in reversed(range(len(parts))):
        part, text = parts[k], number
        if k > 0:
            size = e.indices.number(sizes[k])
            text = f"{number} % {size}"
        if isinstance(part, TritonTile):
            _bind_block(e, part, text)
        else:
            e.lines.add(f"{part} = {text}")
            e.indices.known[part,] = TritonValue(part, e.indices.dtype)
        if k > 0:
            e.lines.add(f"program = program // {e.indices.number(sizes[k])}")


def _bind_block(e: TritonEmitter, tile: TritonTile, number: str) -> None:
    """The points of the block of a tile dimension that has this number."""
    place = f"({number})" if " " in number else number
    if tile is e.schedule.tiles[0] and e.schedule.rows > 1:
        e.lines.add(f"first = {place} * {e.schedule.rows}")
    else:
        e.bind(tile, f"{place} * {e.block_name(tile)}" if tile in e.blocks else number)


def _chunk(schedule: TritonSchedule) -> int | None:
    """Blocks of x that are gone through for all of y before the next ones are; None where all are."""
    counts = [n for n in counts_of(schedule) if isinstance(n, int)]
    if not schedule.chunk or len(counts) != 2:
        return None
    down, across = counts
    chunk = math.gcd(schedule.chunk, across)
    return chunk if chunk < across and down > 1 else None

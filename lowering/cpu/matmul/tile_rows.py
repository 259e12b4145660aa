"""How rows are cut into tiles, where a tile has at most so many."""

from mlirc.dialects.core.symbols import Int


def split_rows(count: int, most: int) -> tuple[int, list[int]]:
    """Rows of the full tiles and of the one that is left, if any, for a known number of rows."""
    tiles = max(1, -(-count // most))
    full = max(1, -(-count // tiles))
    return full, [count % full] if count % full else []


def split_any_rows(count: Int, most: int) -> tuple[int, list[int]]:
    """As split_rows; where the number is not known, any rest is made of tiles of powers of two, the largest first."""
    if isinstance(count, int):
        return split_rows(count, most)
    return most, [1 << k for k in reversed(range(most.bit_length())) if 1 << k < most]


def even_rows(count: Int, most: int) -> int:
    """Rows of tiles that are all alike: not many past the last row."""
    if not isinstance(count, int):
        return most
    few = range(max(1, most * 3 // 4), most + 1)
    return max(1, min(count, min(few, key=lambda rows: (-(-count // rows) * rows, -rows))))


def best_block(rows: int, most: int) -> int:
    """Rows of a tile: of the larger ones one that divides them all, else that leaves the last few the most."""
    for size in range(most, most - most // 7 - 1, -1):
        if rows % size == 0:
            return size
    return -(-rows // -(-rows // most))

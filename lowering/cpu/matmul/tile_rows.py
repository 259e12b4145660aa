"""Cuts M rows of a gemm into tiles of at most `most` rows."""

from mlirc.dialects.core.symbols import Int


def split_rows(count: int, most: int) -> tuple[int, list[int]]:
    """Tiles of `count` rows, of at most `most` each: (rows of a full tile, [rows of the last tile, if it has fewer])."""
    tiles = max(1, -(-count // most))
    full = max(1, -(-count // tiles))
    return full, [count % full] if count % full else []


def split_any_rows(count: Int, most: int) -> tuple[int, list[int]]:
    """Tiles of `count` rows: (rows of a full tile, [rows of each smaller tile]).

    Of a known number as split_rows. Of a symbol, the rest after the full tiles is cut into tiles of powers of two, largest first.
    """
    if isinstance(count, int):
        return split_rows(count, most)
    return most, [1 << k for k in reversed(range(most.bit_length())) if 1 << k < most]


def even_rows(count: Int, most: int) -> int:
    """Rows of a tile where all tiles are equal, and the last one may reach past the last row: as little as can be."""
    if not isinstance(count, int):
        return most
    few = range(max(1, most * 3 // 4), most + 1)
    return max(1, min(count, min(few, key=lambda rows: (-(-count // rows) * rows, -rows))))


def best_block(rows: int, most: int) -> int:
    """Rows of a tile: a number close to `most` that divides `rows`; if there is none, the rows of about equal tiles."""
    for size in range(most, most - most // 7 - 1, -1):
        if rows % size == 0:
            return size
    return -(-rows // -(-rows // most))

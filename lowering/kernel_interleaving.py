"""Text of several points of a loop, which do not need each other, woven into one."""

from itertools import zip_longest


def interleaved(parts: list[list[str]]) -> list[str]:
    """Lines of points that do not need each other, one of each in turn: while one waits for its results, the next begins.

    LLVM keeps about the order of what it is given, and a processor sees some hundred instructions ahead: an erf is longer.
    """
    pieces = [statements(part) for part in parts]
    return [line for turn in zip_longest(*pieces, fillvalue=()) for piece in turn for line in piece]


def statements(lines: list[str]) -> list[list[str]]:
    """Lines in pieces that stay whole: an op with regions ends with its last brace."""
    pieces, depth = [], 0
    for line in lines:
        if depth == 0:
            pieces.append([])
        pieces[-1].append(line)
        depth += line.endswith("{") - line.startswith("}")
    return pieces

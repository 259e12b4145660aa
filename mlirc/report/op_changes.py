"""Compares the ops of a function before and after a pass, in linear time: a pass changes few places, and keeps the order of the others.

`mlirc opt --diff` finds the shortest difference instead, which takes time quadratic in the number of ops of a kind.
"""

from bisect import bisect_left
from collections.abc import Sequence

from mlirc.lowering.module.op_text import OpText, same_operands

WINDOW = 3  # equal ops in a row after which both sides are taken to go on alike
FAR = 400  # removed or added ops that it looks past for them
CONTEXT = 2

Found = list[tuple[str, OpText]]


def op_changes(before: Sequence[OpText], after: Sequence[OpText]) -> Found:
    """The ops, each with a mark as in mlirc.commands.diff: " " unchanged, "-" removed, "+" added, "~" with other operands."""
    found: Found = []
    renamed: dict[str, str] = {}  # SSA names before -> after, of ops that match
    old, new = [op.key for op in before], [op.key for op in after]
    places: dict[tuple[str, ...], list[int]] = {}
    for k in range(len(new) + 1):
        places.setdefault(tuple(new[k : k + WINDOW]), []).append(k)
    i = j = 0
    while i < len(old) or j < len(new):
        if i < len(old) and j < len(new) and old[i] == new[j]:
            found.append((" " if same_operands(before[i], after[j], renamed) else "~", after[j]))
            renamed.update(zip(before[i].results, after[j].results, strict=False))
            i, j = i + 1, j + 1
            continue
        gone, fresh = _together_again(old, i, j, places)
        found += [("-", op) for op in before[i : i + gone]] + [("+", op) for op in after[j : j + fresh]]
        i, j = i + gone, j + fresh
    return found


def _together_again(old: list[str], i: int, j: int, places: dict[tuple[str, ...], list[int]]) -> tuple[int, int]:
    """How many ops are removed, and how many added, before both sides go on alike: the fewest in sum."""
    best: tuple[int, int] | None = None
    for gone in range(min(FAR, len(old) - i) + 1):
        if best is not None and gone >= sum(best):
            break
        there = places.get(tuple(old[i + gone : i + gone + WINDOW]), [])
        at = bisect_left(there, j)
        if at < len(there) and (best is None or gone + there[at] - j < sum(best)):
            best = gone, there[at] - j
    return best if best is not None and best != (0, 0) else (min(FAR, len(old) - i), 0)


def folded_changes(found: Found) -> list[tuple[str, str]]:
    """Lines with their signs; "." is the number of ops that are folded."""
    near = {k + d for k, (sign, _) in enumerate(found) if sign != " " for d in range(-CONTEXT, CONTEXT + 1)}
    lines: list[tuple[str, str]] = []
    hidden = 0
    for k, (sign, op) in enumerate(found):
        if k not in near and k != 0:
            hidden += 1
            continue
        if hidden:
            lines.append((".", str(hidden)))
            hidden = 0
        text = op.text.split("\n")
        if len(text) > 2 and sign in " ~":
            text = [f"{text[0]} ... {text[-1].strip()}"]
        lines += [(sign, text[0]), *(("|" + sign, line) for line in text[1:])]
    if hidden:
        lines.append((".", str(hidden)))
    return lines

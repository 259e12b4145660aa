"""How many of its cases a test runs: some in `make test`, all in `make test-all`.

`some` is for the cases that a test goes through by itself; of tests with parameters, the marks `full` and `thinned` say the same.
"""

import zlib
from collections.abc import Sequence
from typing import Any

import pytest

EVERYTHING = False
"""Whether a marker expression asks for all tests. conftest.py sets it."""


def some(cases: Sequence[Any], every: int) -> Sequence[Any]:
    """Every so many-th of the cases, the same in each run, or all of them."""
    return cases if EVERYTHING else cases[::every]


def thinned(items: list[pytest.Item]) -> list[pytest.Item]:
    """Without some of the cases of the tests marked `thinned`: as many stay as have together every value of every parameter,
    and at most n where the mark is `thinned(n)`. Which ones depends on their names alone."""
    members: dict[str, list[tuple[pytest.Item, set[tuple[str, int]]]]] = {}
    limits: dict[str, int] = {}
    for item in sorted(items, key=lambda item: zlib.crc32(item.nodeid.encode())):
        combination, mark = getattr(item, "callspec", None), item.get_closest_marker("thinned")
        if combination is not None and mark is not None:
            values = {(parameter, id(value)) for parameter, value in combination.params.items()}
            test = item.nodeid.partition("[")[0]
            members.setdefault(test, []).append((item, values))
            limits[test] = mark.args[0] if mark.args else len(members[test])
    dropped: set[pytest.Item] = set()
    for test, cases in members.items():
        cover = _most_new_first(_without_superfluous(_without_superfluous(cases)[::-1]))
        dropped.update({item for item, _ in cases} - {item for item, _ in cover[: limits[test]]})
    return [item for item in items if item not in dropped]


def _without_superfluous(members: list[tuple[Any, set]]) -> list[tuple[Any, set]]:
    """Members in their order, each with a value that no earlier one has."""
    seen: set = set()
    chosen = []
    for item, values in members:
        if not values <= seen:
            chosen.append((item, values))
        seen |= values
    return chosen


def _most_new_first(members: list[tuple[Any, set]]) -> list[tuple[Any, set]]:
    """Members, next always the one with the most values that no earlier one has."""
    seen: set = set()
    left, chosen = list(members), []
    while left:
        chosen.append(max(left, key=lambda member: len(member[1] - seen)))
        left.remove(chosen[-1])
        seen |= chosen[-1][1]
    return chosen

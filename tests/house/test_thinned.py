"""Which cases of a test marked `thinned` run in `make test`."""

import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests import sampling


@dataclass(frozen=True)
class Parameters:
    params: dict[str, Any]


@dataclass(eq=False)
class Case:
    nodeid: str
    callspec: Parameters
    marks: tuple[pytest.Mark, ...] = field(default=())

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next((mark for mark in self.marks if mark.name == name), None)


def cases(test: str, *marks: Any, **values: Any) -> list[Any]:
    """A case for each combination of the values of the parameters."""
    return [
        Case(
            f"{test}[{'-'.join(map(str, row))}]",
            Parameters(dict(zip(values, row, strict=True))),
            tuple(m.mark for m in marks),
        )
        for row in itertools.product(*values.values())
    ]


def names(items: list[Any]) -> list[str]:
    return [item.nodeid for item in sampling.thinned(items)]


def test_each_value_is_in_a_case_that_runs():
    rows, kept = "abcdef", names(cases("test", pytest.mark.thinned, row=list("abcdef"), size=[1, 2, 3]))
    assert len(kept) < 18
    assert all(any(f"[{row}-" in name for name in kept) for row in rows)
    assert all(any(f"-{size}]" in name for name in kept) for size in (1, 2, 3))


@pytest.mark.parametrize("n", [1, 4, 9, 10, 11])
def test_n_cases_run_and_they_are_always_the_same(n):
    items = cases("test", pytest.mark.thinned(n), row=list("abcdefghij"))
    kept = names(items)
    assert len(kept) == min(n, 10)
    assert sorted(names(items[::-1])) == sorted(kept), "their order says nothing"
    assert set(names(items[:5])) >= set(kept) & {item.nodeid for item in items[:5]}, "nor do other cases"


def test_n_cases_have_as_many_values_as_they_can():
    kept = names(cases("test", pytest.mark.thinned(3), row=list("abcdef"), size=[1, 2, 3]))
    assert len({name[len("test[")] for name in kept}) == len({name[-2] for name in kept}) == 3


def test_each_test_has_its_own_n():
    first = cases("first", pytest.mark.thinned(2), row=list("abcdef"))
    second = cases("second", pytest.mark.thinned(3), row=list("abcdef"))
    assert [name[:5] for name in names(first + second)] == ["first"] * 2 + ["secon"] * 3


def test_the_mark_of_a_test_goes_before_its_modules():
    items = cases("test", pytest.mark.thinned(2), pytest.mark.thinned, row=list("abcdef"))
    assert len(names(items)) == 2


def test_what_is_not_marked_stays():
    items = cases("test", row=list("abcdef"))
    assert sampling.thinned(items) == items

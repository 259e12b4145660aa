"""How many of its cases a test runs: some in `make test`, all in `make test-all`.

For the cases that a test goes through by itself; of tests with parameters, the marks `full` and `thinned` say the same.
"""

from collections.abc import Sequence
from typing import Any

EVERYTHING = False
"""Whether a marker expression asks for all tests. conftest.py sets it."""


def some(cases: Sequence[Any], every: int) -> Sequence[Any]:
    """Every so many-th of the cases, the same in each run, or all of them."""
    return cases if EVERYTHING else cases[::every]

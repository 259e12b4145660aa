"""Every operator of PyTorch's own OpInfo database, forward and backward: no failure where aot_eager passes.

A sixteenth of the operators, always the same, runs in `make test`; the rest is marked `full`.
`python tests/opinfo/report.py` lists what fails, without pytest, and `python tests/opinfo/python_calls.py` what is called from Python.
"""

from pathlib import Path

import pytest

from mlirc.frontend import statistics
from tests.opinfo import sweep

SOME = {sweep.key(op) for op in sweep.operators(shard=0, shards=16)}


def read_known_failures() -> dict[tuple[str, str], str]:
    """(operator, direction) -> reason."""
    known = {}
    for line in Path(__file__).with_name("known_failures.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            operator, direction, reason = line.split(maxsplit=2)
            known[operator, direction] = reason
    return known


def read_known_python_calls() -> dict[str, str]:
    """operator -> reason."""
    lines = Path(__file__).with_name("known_python_calls.txt").read_text().splitlines()
    return dict(line.split(maxsplit=1) for line in lines if line.strip() and not line.startswith("#"))


KNOWN_FAILURES = read_known_failures()
KNOWN_PYTHON_CALLS = read_known_python_calls()
CASES = [(op, way) for op in sweep.operators() for way in sweep.DIRECTIONS if sweep.dtype_of(op, way)]


def as_parameter(op, direction):
    marks = [] if sweep.key(op) in SOME else [pytest.mark.full]
    return pytest.param(op, direction, id=f"{sweep.key(op)}-{direction}", marks=marks)


@pytest.mark.thinned(16)
@pytest.mark.parametrize(("op", "direction"), [as_parameter(*case) for case in CASES])
def test_operator(op, direction):
    failure = sweep.check(op, direction, "mlirc", {"fallback": "error"})
    reason = KNOWN_FAILURES.get((sweep.key(op), direction))
    if reason and failure:
        pytest.xfail(reason)
    assert not reason, f"{sweep.key(op)} {direction} passes: remove it from known_failures.txt"
    assert failure is None, f"{failure}\n{failure.details}"


DTYPE_CASES = [
    pytest.param(
        op, way, dtype, dynamic, id=f"{sweep.key(op)}-{way}-{str(dtype)[6:]}-{'dynamic' if dynamic else 'static'}"
    )
    for op in sweep.operators()
    for way in sweep.DIRECTIONS
    for dtype in sweep.dtypes_of(op, way)
    for dynamic in (False, True)
]


@pytest.mark.full
@pytest.mark.parametrize(("op", "direction", "dtype", "dynamic"), DTYPE_CASES)
def test_operator_in_every_dtype(op, direction, dtype, dynamic):
    """Its results are eager's, and no operator is called from Python that known_python_calls.txt does not list."""
    statistics.reset()
    failure = sweep.check(op, direction, "mlirc", {"fallback": "error"}, dtype, dynamic)
    assert failure is None, f"{failure}\n{failure.details}"
    called = {name: why for graph in statistics.graphs for name, (_, why) in graph.through_python.items()}
    unknown = {name: why for name, why in called.items() if name not in KNOWN_PYTHON_CALLS}
    assert not unknown, f"called from Python: {unknown}"


def test_known_failures_name_operators_that_exist():
    assert set(KNOWN_FAILURES) <= {(sweep.key(op), direction) for op, direction in CASES}
    assert all(KNOWN_FAILURES.values())


def test_a_wrong_result_is_noticed():
    """The harness itself: a backend that adds one to every result fails."""

    def wrong(graph, inputs):
        return lambda *args: [out + 1 for out in graph(*args)]

    add = next(op for op in sweep.operators() if sweep.key(op) == "add")
    assert "Mismatch" in sweep.check(add, "forward", wrong).error
    assert sweep.check(add, "forward", "eager") is None

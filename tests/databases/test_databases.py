"""The databases of test cases in PyTorch's wheel that tests/opinfo does not sweep: compiled, they do what eager does.

A few operators and modules run in `make test`; the rest is marked `full`. `python tests/databases/report.py` lists what fails, without pytest.
"""

import os
import signal
import zlib

import pytest
import torch

from mlirc.frontend.errors import UnsupportedGraph
from tests.databases import operators, optimizers
from tests.databases.case import NOISY_RUNS, DatabaseCase, Finding, judge
from tests.databases.every import DATABASES
from tests.databases.forked import judged, judged_by
from tests.databases.fresh import Starter, cases_of
from tests.fuzz.compare import differences

PARTS = 16
SHARDS = 350  # operators of `make test`: one of so many
SOME = {"modules": 1400, "optimizers": 700, "others": 260}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("kind", operators.KINDS)
def test_some_operators(kind):
    _all_good(list(operators.cases(kind, shard=2, shards=SHARDS)))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", SOME)
def test_some_of(name):
    _all_good([case for case in DATABASES[name]() if zlib.crc32(case.name.encode()) % SOME[name] == 0])


def _all_good(cases: list[DatabaseCase]) -> None:
    findings = [(case.name, judge(case)) for case in cases]
    assert not [(name, finding) for name, finding in findings if not finding.good]


@pytest.mark.full
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", DATABASES)
def test_all_of(name, part):
    found = judged(lambda: list(DATABASES[name](count=2))[part::PARTS])
    assert not [(case, finding) for case, finding in found if not finding.good]


@pytest.mark.full
@pytest.mark.parametrize("info", [x for x in optimizers.optim_db if not x.step_requires_closure], ids=lambda x: x.name)
def test_compiled_steps(info):
    """mlirc.compile with each configuration: the losses that eager's steps give, or a refusal; what eager refuses is refused."""
    for given in optimizers.configurations(info, "cpu"):
        expected, found = (optimizers.losses(info, given.kwargs, whole) for whole in (False, True))
        if not isinstance(found.error, UnsupportedGraph) and differences(expected, found):
            noisy = [optimizers.losses(info, given.kwargs, False, seed) for seed in range(NOISY_RUNS[0])]
            assert not differences(expected, found, noisy), given


def test_a_wrong_result_is_noticed():
    """The harness itself: a backend that adds one to every result fails, in values alone."""

    def wrong(graph, inputs):
        return lambda *args: [out + 1 for out in graph(*args)]

    def drive(compiled, see):
        see(compiled(lambda x: x.exp())(torch.linspace(0, 1, 5)))

    finding = judge(DatabaseCase("exp", drive), wrong)
    assert finding.kind == "wrong"
    assert "values" in finding.texts[0]
    assert judge(DatabaseCase("exp", drive), "eager").kind == "right"


def test_what_ends_a_process_is_named():
    def answer(case):
        if case.name == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        if case.name == "2":
            signal.pause()
        return Finding("right")

    cases = [DatabaseCase(str(k), lambda compiled, see: None) for k in range(5)]
    found = [(name, finding.kind) for name, finding in judged(lambda: cases, 1, answer)]
    assert found == [("0", "right"), ("1", "crash"), ("2", "hang"), ("3", "right"), ("4", "right")]


@pytest.mark.full
def test_a_fresh_process():
    """It makes its cases itself, and begins behind those that are done; as on a GPU, where none can be forked."""
    parts = [("operators: errors", 3, 150), ("others", 5, 200)]
    names = [case.name for case in cases_of(parts, "", 1, "cpu")]
    found = list(judged_by(Starter(parts, "", 1, "cpu")))
    assert [name for name, _ in found] == names and all(finding.good for _, finding in found)
    start = Starter(parts, "", 1, "cpu")
    behind = judged_by(lambda done, reader, writer: start(done + len(names) - 1, reader, writer))
    assert [name for name, _ in behind] == names[-1:]

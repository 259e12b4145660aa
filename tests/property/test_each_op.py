"""Every op of the registry and of the memory form, with each operand's sizes, rank, dtype, strides, device and each attribute
changed in turn: the verifier refuses it in one line, or it runs within its buffers.
"""

import random

import pytest

from mlirc.dialects.core.context import context
from mlirc.dialects.core.dialect import OPS, load_ops
from mlirc.lowering.files.file import verify_file
from mlirc.lowering.files.text import TextError, parse_module
from mlirc.lowering.module.rules import StageError
from mlirc.lowering.pipeline.pass_manager import PassError
from tests.property.module_seeds import QUICK, Seed, files, seeds
from tests.property.op_samples import HERE, Sample, changed, samples
from tests.property.test_wrong_modules import HOLES, Worker

EACH = 6  # changes of an op that are looked at in every run
SHARE = 20  # and run, in a run of all tests, with each seed


def refused(sample: Sample) -> bool:
    """By a line that says why; whatever else is raised fails the test."""
    with context():
        try:
            verify_file(parse_module(sample.text().encode()))
        except (TextError, StageError, PassError) as error:
            assert str(error).strip() and "Traceback" not in str(error)
            return True
    return False


def texts(of: tuple[Seed, ...]) -> list[str]:
    return [seed.text for seed in of if not seed.name.endswith("lower")]


@pytest.mark.full
def test_each_op_has_a_sample():
    load_ops()
    found = samples(texts((*seeds(), *files())))
    assert {name for name in (*OPS, *HERE) if not found.get(name)} - {"constant", "size"} == set()


def test_some_changes_of_each_op():
    chance = random.Random(3)
    for name, found in samples(texts((*seeds(QUICK), *files()))).items():
        for sample in found[:2]:
            given = list(changed(sample))
            for other in chance.sample(given, min(EACH, len(given))):
                try:
                    refused(other)
                except Exception as error:
                    raise AssertionError(f"{name}: {other.text()}") from error


@pytest.mark.full
@pytest.mark.parametrize("seed", range(8))
def test_changes_of_each_op_run_within_their_buffers(seed):
    """Of each op a share of its changes, other ones with each seed."""
    found = samples(texts((*seeds(), *files())))
    chance, worker, holes, ran = random.Random(seed), Worker(), [], 0
    for name in sorted(found):
        given = [x for sample in found[name] for x in changed(sample)]
        for other in chance.sample(given, min(SHARE, len(given))):
            if not refused(other):
                text = other.text()
                end = worker.run(Seed(name, text))
                ran += end == "ran"
                if end.startswith(HOLES):
                    holes.append((name, end, text))
    worker.end()
    assert holes == []
    assert ran > 100

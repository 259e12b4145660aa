"""Modules for GPUs, changed at random: refused in one line, or each Triton kernel that is made of them reads and writes within its
operands, in Triton's interpreter, between pages that nobody may touch (tests/triton/guard_worker.py).
"""

import re
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random

import pytest

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.lowering.module.target_attribute import set_target
from mlirc.lowering.pipeline.pass_manager import PassError, run_pipeline
from mlirc.lowering.pipeline.pipelines import pipeline
from mlirc.lowering.target import parse_target
from tests.property import module_seeds
from tests.property.module_seeds import Seed
from tests.property.mutations import TYPE, mutate
from tests.property.test_wrong_modules import HOLES, Worker

PROGRAM = Path(__file__).with_name("guard_worker.py")
QUICK = ("gather", "cat")
STAGES = ("fuse", "plan", "lower")


def on_gpu(match: re.Match) -> str:
    type_ = match[0]
    if type_.endswith("}>"):
        return type_[:-2] + ', device = "cuda:0"}>'
    return type_[:-1] + ', {device = "cuda:0"}>'


@cache
def seeds(names: tuple[str, ...] = tuple(module_seeds.PROGRAMS)) -> tuple[Seed, ...]:
    """The programs of tests/property, as they are lowered for a GPU; those without kernels of ours are left out."""
    found = []
    for seed in module_seeds.seeds(names):
        if not seed.name.endswith("import"):
            continue
        text = re.sub(rf"{TYPE.pattern}(?! \{{mlirc\.scalar)", on_gpu, seed.text)
        for stage in STAGES:
            with context():
                try:
                    module = ir.Module.parse(text)
                    set_target(module, parse_target("cpu-avx512,gpu-h200"))
                    run_pipeline(module, pipeline("gpu", stage), verify=False)
                except (PassError, ir.MLIRError):
                    continue
                made = str(module)
            if "mlircx.kernel" in made or "mlircx.launch" in made or "mlirc.triton" in made:
                found.append(Seed(f"{seed.name}, {stage}", made))
    return tuple(found)


@pytest.fixture(scope="module")
def worker():
    made = Worker(program=PROGRAM)
    yield made
    made.end()


def holes(worker: Worker, count: int, seed: int, given: tuple[Seed, ...]) -> tuple[Counter, list[tuple[str, str, str]]]:
    chance = Random(seed)
    ends, found = Counter(), []
    for _ in range(count):
        of = chance.choice(given)
        mutant = mutate(of.text, chance)
        end = worker.run(Seed(of.name, mutant))
        ends[end.split()[0].strip(":")] += 1
        if end.startswith(HOLES):
            found.append((of.name, end, mutant))
    return ends, found


WRONG = """func.func @graph(%x: X) -> X attributes {mlirc.arena = "0"} {
  %0 = "mlirc.allocate"() : () -> X
  "mlircx.launch"(%x, %0) ({
  ^bb0(%a: X):
    %r = "mlirc.read"(%a) {map = "d0 + 1", masked = false} : (X) -> f32
    "mlircx.yield"(%r) {maps = ["d0"]} : (f32) -> ()
  }) {parallel = "16", inner = "", label = "wrong", inputs = 1 : i64} : (X, X) -> ()
  return %0 : X
}""".replace("X", 'tensor<16xf32, {device = "cuda:0"}>')


@pytest.mark.parametrize("trusted", [True, False])
def test_the_guards_see_a_wrong_access(worker, trusted):
    """Of a page's last element and one more, where no verifier is asked."""
    if trusted:
        worker = Worker("--trust", program=PROGRAM)
    found = worker.run(Seed("", WRONG))
    if trusted:
        worker.end()
    assert found.startswith("died" if trusted else "refused")


def test_the_seeds_run_and_some_mutants(worker):
    given = seeds(QUICK)
    assert len(given) >= 6
    ends = {seed.name: worker.run(seed) for seed in given}
    assert {name: end for name, end in ends.items() if not re.fullmatch(r"ran [1-9]\d*", end)} == {}
    _, found = holes(worker, 8, 1, given)
    assert found == []


@pytest.mark.full
@pytest.mark.parametrize("seed", range(4))
def test_many_mutants(worker, seed):
    ends, found = holes(worker, 300, seed, seeds())
    assert found == []
    assert ends["ran"] >= 40

"""Modules of every stage, changed at random: refused in one line, or they run without touching memory that is not theirs.

A worker process runs each mutant three times, its inputs, results and arena between pages that may not be touched: as planned,
and with each slot of the arena between such pages too, flush with the end and with the start (tests/guard_worker.py). A worker
that dies, writes beside a buffer, or says what no user should see, is a hole.
"""

import json
import os
import random
import select
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.guard_pages import NO_MEMORY
from tests.property.module_seeds import QUICK, Seed, files, seeds
from tests.property.mutations import mutate

ROOT = Path(__file__).parents[2]
HOLES = ("died", "odd", "otherwise")
LIMIT = 120  # seconds of a module, which may be of any size


class Worker:
    """A process; where one has ended, the next module begins another."""

    def __init__(self, *options: str, program: Path = ROOT / "tests" / "guard_worker.py"):
        self.command = [sys.executable, str(program), *options]
        self.process = self.begin()

    def begin(self) -> subprocess.Popen:
        environment = os.environ | {"PYTHONPATH": str(ROOT), "MLIRC_CACHE_DIR": "off", "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
            env=environment,
        )

    def run(self, seed: Seed) -> str:
        """What became of the module; how the worker died, if it did."""
        if self.process.poll() is not None:
            self.process = self.begin()
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps([seed.text, seed.values]) + "\n")
        self.process.stdin.flush()
        found = b""
        while not found.endswith(b"\n"):
            if not select.select([self.process.stdout], [], [], LIMIT)[0]:
                self.end()
                return "slow"
            more = os.read(self.process.stdout.fileno(), 4096)
            if not more:
                return f"died: {self.process.wait()}"
            found += more
        if found.decode().startswith(NO_MEMORY):
            self.process.wait()
        return found.decode().strip()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def worker():
    made = Worker()
    yield made
    made.end()


def holes(worker: Worker, count: int, seed: int, given: tuple[Seed, ...]) -> tuple[Counter, list[tuple[str, str, str]]]:
    """How often each end came, and mutants that are holes: the name of the seed, what became of it, the text."""
    chance = random.Random(seed)
    ends, found = Counter(), []
    for _ in range(count):
        of = chance.choice(given)
        mutant = mutate(of.text, chance)
        end = worker.run(Seed(of.name, mutant))
        ends[end.split()[0].strip(":")] += 1
        if end.startswith(HOLES):
            found.append((of.name, end, mutant))
    return ends, found


def others(worker: Worker, given: tuple[Seed, ...], *ends: str) -> dict[str, str]:
    """What became of modules that are right, where it is none of `ends`."""
    found = {seed.name: worker.run(seed) for seed in given}
    return {name: end for name, end in found.items() if end not in ends}


def test_some_seeds_run(worker):
    assert others(worker, seeds(QUICK), "ran") == {}


@pytest.mark.full
def test_the_seeds_run(worker):
    assert others(worker, seeds(), "ran") == {}


WRONG = """func.func @graph(%x: tensor<16xf32>) -> tensor<16xf32> attributes {{mlirc.arena = "128"}} {{
  %0 = "mlirc.slot"() {{offset = "0"}} : () -> tensor<{slot}xf32>
  %1 = "mlirc.view"(%0) {{map = "", offset = "0"}} : (tensor<{slot}xf32>) -> tensor<16xf32>
  "mlircx.call"(%x, %1) {{callee = "copy", inputs = 1 : i64}} : (tensor<16xf32>, tensor<16xf32>) -> ()
  %2 = "mlirc.allocate"() : () -> tensor<{result}xf32>
  %3 = "mlirc.view"(%2) {{map = "", offset = "0"}} : (tensor<{result}xf32>) -> tensor<16xf32>
  "mlircx.call"(%x, %3) {{callee = "copy", inputs = 1 : i64}} : (tensor<16xf32>, tensor<16xf32>) -> ()
  return %3 : tensor<16xf32>
}}"""


@pytest.mark.parametrize("trusted", [True, False])
def test_the_guards_see_a_wrong_access(worker, trusted):
    """Without verifiers, one element past a slot of the arena, and past a result; with them both are refused."""
    if trusted:
        worker = Worker("--trust")
    for slot, result in ((16, 16), (15, 16), (16, 15)):
        found = worker.run(Seed("", WRONG.format(slot=slot, result=result)))
        if slot == result:
            assert found == "ran"
        else:
            assert found.startswith("odd: wrote beside" if trusted else "refused")
    if trusted:
        worker.end()


@pytest.mark.parametrize("seed", [1])
def test_some_mutants(worker, seed):
    _, found = holes(worker, 20, seed, seeds(QUICK))
    assert found == []


@pytest.mark.full
@pytest.mark.parametrize("seed", range(100, 120))
def test_many_mutants(worker, seed):
    ends, found = holes(worker, 1000, seed, (*seeds(), *files()))
    assert found == []
    assert ends["ran"] >= 200

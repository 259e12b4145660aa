"""Lists the calls of ATen that OpInfo's operators make through Python when compiled: one line for each overload and reason.

python tests/opinfo/python_calls.py                       every operator, in each of float32, int64, complex64 and bool that it has
python tests/opinfo/python_calls.py --ops dist,renorm --dynamic
python tests/opinfo/python_calls.py --direction forward --dtype uint8 --dtype bfloat16 --shard 3/8

A native call that failed, so that it was made again from Python, counts too. What the list cannot tell stands after it: samples that eager
refuses, samples that fail compiled alone, graphs that run in eager, and operators of samples of which no graph was captured.
"""

import collections
import multiprocessing
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import click
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from mlirc.codegen.aten.python_call import AtenCall
from mlirc.frontend import statistics
from tests.opinfo import sweep

OPTIONS = {"cache": False, "fallback": "eager"}
AGAIN = "a native call of it failed"


@dataclass
class SampleCalls:
    """What compiled samples of an operator did.

    calls     operators that were called from Python -> the reason
    samples   how many of them: "compiled", "refused by eager", "without a graph"
    failed    what raised an error that eager does not raise -> how many samples
    eager     why graphs ran in eager -> how many of them
    """

    calls: dict[str, str] = field(default_factory=dict)
    samples: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    eager: Counter[str] = field(default_factory=Counter)


def calls_through_python(
    op: sweep.OpInfo, direction: str, dtype: torch.dtype, dynamic: bool | None = None
) -> SampleCalls:
    """The operators that compiled samples of `op` call through Python, each with the reason, and what else was seen."""
    execute = sweep.run_backward if direction == "backward" else sweep.run_forward
    found = SampleCalls()
    for _, sample in sweep.samples(op, direction, dtype):
        function = sweep.with_tensors_as_arguments(op, sample)
        torch.compiler.reset()
        statistics.reset()
        with warnings.catch_warnings(action="ignore"), called_from_python() as made:
            try:
                execute(function, sample)
            except Exception:
                found.samples["refused by eager"] += 1
                continue
            try:
                execute(torch.compile(function, backend="mlirc", options=OPTIONS, dynamic=dynamic), sample)
            except Exception as problem:
                found.failed[sweep.first_line(problem)] += 1
                continue
        found.samples["compiled" if statistics.graphs else "without a graph"] += 1
        found.eager += statistics.fallbacks
        expected = {name: why for graph in statistics.graphs for name, (_, why) in graph.through_python.items()}
        found.calls |= {name: AGAIN for name in made if name not in expected and not statistics.fallbacks} | expected
    return found


@contextmanager
def called_from_python() -> Iterator[set[str]]:
    """The operators that compiled graphs call from Python meanwhile."""
    made: set[str] = set()
    call = AtenCall.__call__

    def recorded(self, *given):
        made.add(self.op)
        return call(self, *given)

    with mock.patch.object(AtenCall, "__call__", recorded):
        yield made


@click.command(help=__doc__)
@click.option("--ops", default="", help="Names, separated by commas, with or without [variant]; all when left out.")
@click.option("--shard", default="0/1", show_default=True, help="i/n: the i-th of n parts, counted from 0.")
@click.option("--direction", type=click.Choice(sweep.DIRECTIONS), multiple=True, default=sweep.DIRECTIONS)
@click.option("--dtype", multiple=True, help="Instead of those four.")
@click.option("--dynamic", is_flag=True, help="With symbolic sizes.")
@click.option("--workers", default=1, show_default=True, help="How many processes.")
def main(ops: str, shard: str, direction: tuple[str, ...], dtype: tuple[str, ...], dynamic: bool, workers: int) -> None:
    index, shards = (int(part) for part in shard.split("/"))
    names = {name.strip() for name in ops.split(",") if name.strip()}
    dtypes = [getattr(torch, name) for name in dtype] or sweep.DTYPES
    cases = [
        (sweep.key(op), way, dtype, dynamic or None)
        for op in sweep.operators(index, shards)
        if not names or op.name in names or sweep.key(op) in names
        for way in direction
        for dtype in dtypes
        if dtype in sweep.dtypes_of(op, way)
    ]
    if not cases:
        raise click.UsageError(f"no operator in op_db is called {ops}")
    started = time.time()
    found: dict[tuple[str, str], set[str]] = collections.defaultdict(set)
    samples: Counter[str] = Counter()
    not_seen: dict[str, dict[str, set[str]]] = {
        name: collections.defaultdict(set) for name in ("failed", "ran in eager", "without a graph")
    }
    for (name, way, dtype, _), seen in _results(cases, workers):
        subject = f"{name} {str(dtype).removeprefix('torch.')} {way}"
        samples += seen.samples
        samples["failed"] += seen.failed.total()
        for called, why in seen.calls.items():
            if (called, why) not in found:
                print(f"{subject} is the first with {called}: {why}", file=sys.stderr, flush=True)
            found[called, why].add(subject)
        uncaptured = ["TorchDynamo captured none"] * bool(seen.samples["without a graph"])
        for what, reasons in zip(not_seen, (seen.failed, seen.eager, uncaptured), strict=True):
            for why in reasons:
                print(f"{subject} {what}: {why}", file=sys.stderr, flush=True)
                not_seen[what][why].add(subject)
    for (called, why), subjects in sorted(found.items()):
        print(f"{called}: {why}\n    {', '.join(sorted(subjects))}")
    for what, reasons in not_seen.items():
        for why, subjects in sorted(reasons.items()):
            print(f"{what}: {why}\n    {', '.join(sorted(subjects))}")
    counts = ", ".join(f"{count} {what}" for what, count in samples.items())
    print(f"{len(cases)} cases in {time.time() - started:.0f} s; samples: {counts}")


def _results(cases: list[tuple], workers: int) -> Iterator[tuple[tuple, SampleCalls]]:
    if workers == 1:
        yield from map(_calls, cases)
        return
    with multiprocessing.get_context("spawn").Pool(workers, maxtasksperchild=400) as pool:
        yield from pool.imap_unordered(_calls, cases, chunksize=4)


def _calls(case: tuple) -> tuple[tuple, SampleCalls]:
    name, way, dtype, dynamic = case
    torch.set_num_threads(1)
    op = next(op for op in sweep.op_db if sweep.key(op) == name)
    return case, calls_through_python(op, way, dtype, dynamic)


if __name__ == "__main__":
    main()

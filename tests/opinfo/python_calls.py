"""Lists the calls of ATen that OpInfo's operators make through Python when compiled: one line for each overload and reason.

python tests/opinfo/python_calls.py                       every operator, in each of float32, int64, complex64 and bool that it has
python tests/opinfo/python_calls.py --ops dist,renorm --dynamic
"""

import collections
import multiprocessing
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import click
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from mlirc.frontend import statistics
from tests.opinfo import sweep

OPTIONS = {"cache": False, "fallback": "eager"}


def calls_through_python(
    op: sweep.OpInfo, direction: str, dtype: torch.dtype, dynamic: bool | None = None
) -> dict[str, str]:
    """The operators that compiled samples of `op` call through Python, each with the reason. Samples that eager refuses are left out."""
    execute = sweep.run_backward if direction == "backward" else sweep.run_forward
    found: dict[str, str] = {}
    for _, sample in sweep.samples(op, direction, dtype):
        function = sweep.with_tensors_as_arguments(op, sample)
        torch.compiler.reset()
        statistics.reset()
        with warnings.catch_warnings(action="ignore"):
            try:
                execute(torch.compile(function, backend="mlirc", options=OPTIONS, dynamic=dynamic), sample)
            except Exception:
                continue
        for graph in statistics.graphs:
            found |= {name: why for name, (_, why) in graph.through_python.items()}
    return found


@click.command(help=__doc__)
@click.option("--ops", default="", help="Names, separated by commas, with or without [variant]; all when left out.")
@click.option("--shard", default="0/1", show_default=True, help="i/n: the i-th of n parts, counted from 0.")
@click.option("--dynamic", is_flag=True, help="With symbolic sizes.")
@click.option("--workers", default=1, show_default=True, help="How many processes.")
def main(ops: str, shard: str, dynamic: bool, workers: int) -> None:
    index, shards = (int(part) for part in shard.split("/"))
    names = {name.strip() for name in ops.split(",") if name.strip()}
    cases = [
        (sweep.key(op), way, dtype, dynamic or None)
        for op in sweep.operators(index, shards)
        if not names or op.name in names or sweep.key(op) in names
        for way in sweep.DIRECTIONS
        for dtype in sweep.DTYPES
        if dtype in sweep.dtypes_of(op, way)
    ]
    if not cases:
        raise click.UsageError(f"no operator in op_db is called {ops}")
    found: dict[tuple[str, str], set[str]] = collections.defaultdict(set)
    for (name, way, dtype, _), calls in _results(cases, workers):
        for called, why in calls.items():
            subject = f"{name} {str(dtype).removeprefix('torch.')} {way}"
            if (called, why) not in found:
                print(f"{subject} is the first with {called}", file=sys.stderr, flush=True)
            found[called, why].add(subject)
    for (called, why), subjects in sorted(found.items()):
        print(f"{called}: {why}\n    {', '.join(sorted(subjects))}")


def _results(cases: list[tuple], workers: int) -> Iterator[tuple[tuple, dict[str, str]]]:
    if workers == 1:
        yield from map(_calls, cases)
        return
    with multiprocessing.get_context("spawn").Pool(workers, maxtasksperchild=400) as pool:
        yield from pool.imap_unordered(_calls, cases, chunksize=4)


def _calls(case: tuple) -> tuple[tuple, dict[str, str]]:
    name, way, dtype, dynamic = case
    torch.set_num_threads(1)
    op = next(op for op in sweep.op_db if sweep.key(op) == name)
    return case, calls_through_python(op, way, dtype, dynamic)


if __name__ == "__main__":
    main()

"""Lists the operators of OpInfo that fail under a backend: one line each, with the first line of the exception.

python tests/opinfo/report.py                              every operator, both directions
python tests/opinfo/report.py --shard 0/4                  the quarter that `make test` runs
python tests/opinfo/report.py --ops add,nn.functional.pad --verbose
python tests/opinfo/report.py --device cuda --every-dtype --dynamic --workers 16
"""

import collections
import multiprocessing
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.opinfo import sweep


@click.command(help=__doc__)
@click.option("--backend", default="mlirc", show_default=True)
@click.option("--ops", default="", help="Names, separated by commas, with or without [variant]; all when left out.")
@click.option("--shard", default="0/1", show_default=True, help="i/n: the i-th of n parts, counted from 0.")
@click.option("--direction", type=click.Choice(sweep.DIRECTIONS), multiple=True, default=sweep.DIRECTIONS)
@click.option("--device", default="cpu", show_default=True)
@click.option("--every-dtype", is_flag=True, help="All dtypes of `make test-all`, not one for each operator.")
@click.option("--dynamic", is_flag=True, help="With symbolic sizes.")
@click.option("--workers", default=1, show_default=True, help="How many processes.")
@click.option("--verbose", is_flag=True, help="The whole traceback of each failure.")
@click.option("--known", is_flag=True, help="Print failures as lines for known_failures.txt.")
def main(
    backend: str,
    ops: str,
    shard: str,
    direction: tuple[str, ...],
    device: str,
    every_dtype: bool,
    dynamic: bool,
    workers: int,
    verbose: bool,
    known: bool,
) -> None:
    index, shards = (int(part) for part in shard.split("/"))
    names = {name.strip() for name in ops.split(",") if name.strip()}
    every = sweep.operators(index, shards, device)
    chosen = [op for op in every if not names or op.name in names or sweep.key(op) in names]
    if names and not chosen:
        raise click.UsageError(f"no operator in op_db is called {ops}")
    cases = [
        (sweep.key(op), way, dtype, backend, dynamic or None, device)
        for op in chosen
        for way in direction
        for dtype in (sweep.dtypes_of(op, way, device) if every_dtype else [sweep.dtype_of(op, way, device)])
        if dtype is not None
    ]
    causes, started = collections.Counter(), time.time()
    for dtype, failure in _results(cases, workers):
        if failure is None:
            continue
        causes[failure.error[:60]] += 1
        what = f"{dtype} {failure}" if every_dtype else failure
        print(f"{failure.operator} {failure.direction} {failure.error}" if known else what, flush=True)
        if verbose:
            print(failure.details)
    print(
        f"\n{causes.total()} of {len(cases)} failed under {backend} in {time.time() - started:.0f} s", file=sys.stderr
    )
    for cause, count in causes.most_common(15):
        print(f"{count:5d}  {cause}", file=sys.stderr)


def _results(cases: list[tuple], workers: int) -> Iterator[tuple[torch.dtype, sweep.Failure | None]]:
    """The cases' dtypes and failures, in the order in which they end."""
    if workers == 1:
        yield from map(_check, cases)
        return
    with multiprocessing.get_context("spawn").Pool(workers, maxtasksperchild=400) as pool:
        yield from pool.imap_unordered(_check, cases, chunksize=4)


def _check(case: tuple) -> tuple[torch.dtype, sweep.Failure | None]:
    name, way, dtype, backend, dynamic, device = case
    torch.set_num_threads(1)
    op = next(op for op in sweep.op_db if sweep.key(op) == name)
    options = {"fallback": "error"} if backend == "mlirc" else None
    return dtype, sweep.check(op, way, backend, options, dtype, dynamic, device)


if __name__ == "__main__":
    main()

"""Lists the operators of OpInfo that fail under a backend: one line each, with the first line of the exception.

python tests/opinfo/report.py                              every operator, both directions
python tests/opinfo/report.py --shard 0/4                  the quarter that `make test` runs
python tests/opinfo/report.py --ops add,nn.functional.pad --verbose
"""

import collections
import sys
import time
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
@click.option("--verbose", is_flag=True, help="The whole traceback of each failure.")
@click.option("--known", is_flag=True, help="Print failures as lines for known_failures.txt.")
def main(backend: str, ops: str, shard: str, direction: tuple[str, ...], verbose: bool, known: bool) -> None:
    torch.set_num_threads(1)
    index, shards = (int(part) for part in shard.split("/"))
    names = {name.strip() for name in ops.split(",") if name.strip()}
    chosen = [op for op in sweep.operators(index, shards) if not names or op.name in names or sweep.key(op) in names]
    if names and not chosen:
        raise click.UsageError(f"no operator in op_db is called {ops}")
    options = {"fallback": "error"} if backend == "mlirc" else None
    causes, tried, started = collections.Counter(), 0, time.time()
    for op in chosen:
        for way in direction:
            tried += sweep.dtype_of(op, way) is not None
            failure = sweep.check(op, way, backend, options)
            if failure is None:
                continue
            causes[failure.error[:60]] += 1
            print(f"{failure.operator} {failure.direction} {failure.error}" if known else failure, flush=True)
            if verbose:
                print(failure.details)
    print(f"\n{causes.total()} of {tried} failed under {backend} in {time.time() - started:.0f} s", file=sys.stderr)
    for cause, count in causes.most_common(15):
        print(f"{count:5d}  {cause}", file=sys.stderr)


if __name__ == "__main__":
    main()

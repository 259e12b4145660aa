"""Lists what fails of PyTorch's databases: one line each.

python tests/databases/report.py --list                                     the databases
python tests/databases/report.py modules "operators: out" --part 0/8        an eighth of their cases
python tests/databases/report.py optimizers --workers 2
python tests/databases/report.py others --only "autograd Numpy" --verbose
python tests/databases/report.py --device cuda --sample --workers 14 --minutes 2    as much of everything as there is time for
"""

import collections
import multiprocessing
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.databases.case import GOOD
from tests.databases.every import DATABASES
from tests.databases.forked import judged, judged_by
from tests.databases.fresh import Starter, parts_of_all


@click.command(help=__doc__)
@click.argument("databases", nargs=-1)
@click.option("--list", "listed", is_flag=True, help="Name the databases.")
@click.option("--only", default="", help="Cases whose name has this text in it.")
@click.option("--part", default="0/1", show_default=True, help="i/n: the i-th of n parts, counted from 0.")
@click.option("--count", default=1, show_default=True, help="How many samples of each operator and module.")
@click.option("--device", default="cpu", show_default=True)
@click.option("--workers", default=1, show_default=True, help="How many processes.")
@click.option("--minutes", default=0.0, help="Stop after so long.")
@click.option("--sample", is_flag=True, help="Take parts of all databases in a random order, as long as there is time.")
@click.option("--verbose", is_flag=True, help="Name every case, with what is PyTorch's limit and the tracebacks.")
def main(
    databases: tuple[str, ...],
    listed: bool,
    only: str,
    part: str,
    count: int,
    device: str,
    workers: int,
    minutes: float,
    sample: bool,
    verbose: bool,
) -> None:
    if listed:
        print("\n".join(DATABASES))
        return
    index, parts = (int(x) for x in part.split("/"))
    started, made = time.time(), collections.Counter()
    until = started + 60 * minutes if minutes else None
    names = databases or tuple(DATABASES)
    for name in ("a sample",) if sample else names:
        shares = [(index + k * parts, parts * workers) for k in range(workers)]
        jobs: list[tuple] = [(name, only, *share, count, device, until) for share in shares]
        if sample:
            every = parts_of_all(names)
            jobs = [(every[first::step], only, 0, 1, count, device, until) for first, step in shares]
        counts = collections.Counter()
        for case, kind, texts in _results(jobs, workers):
            counts[kind] += 1
            if verbose or kind not in GOOD:
                print(
                    f"{kind}: {case}: {' | '.join(texts if verbose else texts[:2])}"[: None if verbose else 700],
                    flush=True,
                )
        print(f"{name}: {dict(counts)}, {time.time() - started:.0f} s", flush=True)
        made += counts
    sys.exit(any(kind not in GOOD for kind in made))


def _results(jobs: list[tuple], workers: int) -> Iterator[tuple[str, str, tuple]]:
    if workers == 1:
        yield from _judged(jobs[0])
        return
    queue: Any = multiprocessing.get_context("fork").Queue()
    processes = [multiprocessing.get_context("fork").Process(target=_put, args=(queue, job)) for job in jobs]
    for process in processes:
        process.start()
    for _ in range(len(processes)):
        while (found := queue.get()) is not None:
            yield found
    for process in processes:
        process.join()


def _put(queue: Any, job: tuple) -> None:
    for found in _judged(job):
        queue.put(found)
    queue.put(None)


def _judged(job: tuple) -> Iterator[tuple[str, str, tuple]]:
    name, only, index, parts, count, device, until = job
    if isinstance(name, str) and device == "cpu":
        make = lambda: [case for case in DATABASES[name](count=count) if only in case.name][index::parts]
        found = judged(make)
    else:
        chosen = [(name, index, parts)] if isinstance(name, str) else name
        found = judged_by(Starter(chosen, only, count, device), until=until)
    for case, finding in found:
        yield case, finding.kind, finding.texts
        if until and time.time() > until:
            return


if __name__ == "__main__":
    main()

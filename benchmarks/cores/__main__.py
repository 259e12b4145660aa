"""Scaling over cores: eager, Inductor and mlirc alternate in one process, with 1 to 64 threads.

python -m benchmarks.cores [--out FOLDER] [--threads 16,2,1] [--models bert,vit] [--backends eager,mlirc] [--seconds 420] [PART ...]

    training    the six models at their batch, forward and backward
    inference   the same, a call under no_grad
    latency     inference at batch 1
    large       inference at 16 times the batch
    kernels     memory-bound kernels of benchmarks/kernels.py on 200 MB
    matmuls     matmuls and convolutions by themselves

Each subject has a process of its own. All processes compile first, several at a time, and nothing is measured meanwhile. Then each
number of threads in turn goes over all subjects, so that a run that is stopped early has all subjects at the first numbers.
Inductor is told to read the number of threads at each call, because it would compile again for each. FOLDER/cores.jsonl gets a
line for each subject, backend and number of threads as it is measured: seconds of the wall and of the processor.
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from benchmarks.cores.subjects import PARTS, subjects_of
from benchmarks.cores.workers import Worker, started
from benchmarks.models import MODELS
from benchmarks.setting import available_backends
from mlirc.measurement.alternate import spread
from mlirc.measurement.machine import describe_machine

THREADS = (16, 2, 8, 32, 4, 64, 1)  # the most telling ones first


def rows_of_run(workers: list[Worker], threads: list[int], rounds: int, deadline: float) -> Iterator[dict[str, Any]]:
    """A row for each number of threads, subject and backend."""
    for worker in workers:
        if worker.failure:
            yield {"part": worker.part, "name": worker.name, "failure": worker.failure}
    for count in threads:
        for worker in workers:
            samples = None if worker.failure else worker.measure(count, rounds, deadline)
            for backend, taken in (samples or {}).items():
                row = {"part": worker.part, "name": worker.name, "threads": count, "backend": backend}
                yield row | {"steady": spread(taken.wall), "cpu": spread(taken.cpu)}


def table_of_times(rows: list[dict[str, Any]]) -> str:
    """Milliseconds of the wall: a line for each subject and backend, a column for each number of threads."""
    times = {(r["part"], r["name"], r["backend"], r["threads"]): r["steady"]["median"] for r in rows if "steady" in r}
    threads = sorted({key[3] for key in times})
    lines = [f"{'ms':45}" + "".join(f"{count:>10}" for count in threads)]
    for part, name, backend in dict.fromkeys(key[:3] for key in sorted(times)):
        found = [times.get((part, name, backend, count)) for count in threads]
        cells = "".join(f"{'-' if t is None else f'{t * 1e3:.3f}':>10}" for t in found)
        lines.append(f"{part:10} {name:24} {backend:9}{cells}")
    failed = [f"{r['part']} {r['name']}: {r['failure']}" for r in rows if "failure" in r]
    return "\n".join(lines + failed)


def chosen_of(text: str | None, all_of_them: list[str]) -> list[str]:
    return text.split(",") if text else all_of_them


@click.command(help=__doc__)
@click.argument("parts", nargs=-1, type=click.Choice(PARTS))
@click.option("--out", default="build/cores", type=click.Path(path_type=Path))
@click.option("--threads", help="Numbers of threads, in the order in which they are measured.")
@click.option("--models")
@click.option("--backends")
@click.option("--rounds", default=5, show_default=True)
@click.option(
    "--seconds", default=560, show_default=True, help="For all of it; what is not measured by then is left out."
)
@click.option("--pin", is_flag=True, help="Run on as many processors as there are threads.")
def main(parts, out, threads, models, backends, rounds, seconds, pin):
    deadline = time.monotonic() + seconds
    cpus = len(os.sched_getaffinity(0))
    counts = [int(n) for n in threads.split(",")] if threads else [n for n in THREADS if n <= cpus]
    known = [b for b in available_backends(peers=True) if b != "aot_eager"]
    chosen = [(part, name) for part in parts or PARTS for name in subjects_of(part, chosen_of(models, list(MODELS)))]
    print(f"{describe_machine()}; {cpus} processors; {len(chosen)} subjects", flush=True)
    workers = started(chosen, chosen_of(backends, known), pin, deadline - seconds / 3)
    print(f"compiled with {deadline - time.monotonic():.0f} s left", flush=True)
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    with (out / "cores.jsonl").open("a") as lines:
        for row in rows_of_run(workers, counts, rounds, deadline):
            rows.append(row)
            lines.write(json.dumps(row | {"machine": describe_machine(), "time": time.time()}) + "\n")
            lines.flush()
    for worker in workers:
        worker.process.terminate()
    print(table_of_times(rows))


if __name__ == "__main__":
    main()

"""First calls of architectures beside their tracing: mlirc's and aot_eager's, each in a fresh process with an empty disk cache.

python -m benchmarks.architectures.first_calls [NAMES] [--ways inference,training] [--threads 2] [--output FILE]

Seconds of processor time, so that what others run at the same time counts less: `main` of the thread that calls, `all` of all threads
until the compilers have nothing left to do. `stages` are seconds of the clock, as `mlirc.explain` has them: of a machine with
nothing else to do they say which step `main` goes to.
"""

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from benchmarks.architectures.list import ARCHITECTURES
from benchmarks.fresh_process import ROOT, write_bytecode

MOST_TIMES = 1.3  # of tracing, that a first call may take


def measure_here(name: str, way: str, backend: str) -> dict[str, Any]:
    """Measures this process's first call, in training with its backward: seconds, and under mlirc those of each stage."""
    import torch
    import torch._dynamo

    from benchmarks.architectures.__main__ import floats, score
    from benchmarks.architectures.kinds import BATCH, LENGTH
    from mlirc.codegen.process.background import wait_for_all
    from mlirc.frontend import statistics

    module, make_inputs = ARCHITECTURES[name]()
    module.train(way == "training")
    inputs = make_inputs(BATCH, LENGTH)
    options: dict[str, Any] = {"options": {"fallback": "error"}} if backend == "mlirc" else {}
    with torch.set_grad_enabled(way == "training"):
        main, all_threads = time.thread_time(), time.process_time()
        outputs = floats(torch.compile(module, backend=backend, **options)(**inputs))
        if way == "training":
            score(outputs).backward()
        main = time.thread_time() - main
    wait_for_all(60)
    all_threads = time.process_time() - all_threads
    stages: dict[str, float] = {}
    for graph in statistics.graphs:
        for stage, seconds in graph.seconds.items():
            stages[stage] = stages.get(stage, 0.0) + seconds
    return {"main": main, "all": all_threads, "graphs": len(statistics.graphs), "stages": stages}


def measure_apart(name: str, way: str, backend: str, threads: int) -> dict[str, Any]:
    """`measure_here` in a new process with an empty cache. Raises CalledProcessError."""
    command = [sys.executable, "-m", "benchmarks.architectures.first_calls", "--here", name, way, backend]
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"MLIRC_CACHE_DIR": cache}
        command += ["--threads", str(threads)]
        done = subprocess.run(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=600)
    return json.loads(done.stdout.splitlines()[-1])


def line(name: str, way: str, ours: dict[str, Any], tracing: dict[str, Any]) -> str:
    times = ours["main"] / tracing["main"]
    stages = " ".join(f"{stage} {seconds:.2f}" for stage, seconds in ours["stages"].items() if seconds >= 0.05)
    return (
        f"{name:13} {way:9} tracing {tracing['main']:5.2f} s, mlirc {ours['main']:5.2f} ({times:.2f} times{' *' * (times > MOST_TIMES)}), "
        f"all threads {tracing['all']:5.2f} and {ours['all']:5.2f}; graphs {ours['graphs']}: {stages}"
    )


@click.command(help=__doc__)
@click.argument("names", nargs=-1)
@click.option("--ways", default="inference,training", show_default=True)
@click.option("--threads", default=2, show_default=True)
@click.option(
    "--output", default="build/architecture-first-calls.jsonl", show_default=True, type=click.Path(path_type=Path)
)
@click.option("--here", nargs=3, hidden=True)
def main(names: tuple[str, ...], ways: str, threads: int, output: Path, here: tuple[str, str, str] | None) -> None:
    if here:
        import torch

        torch.set_num_threads(threads)
        print(json.dumps(measure_here(*here)))
        return
    write_bytecode()
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("a") as rows:
        for way, name in itertools.product(ways.split(","), names or ARCHITECTURES):
            tracing, ours = (measure_apart(name, way, backend, threads) for backend in ("aot_eager", "mlirc"))
            print(line(name, way, ours, tracing), flush=True)
            rows.write(json.dumps({"model": name, "way": way, "aot_eager": tracing, "mlirc": ours}) + "\n")
            rows.flush()


if __name__ == "__main__":
    main()

"""The six models, decoding, and memory-bound kernels, under eager, aot_eager, Inductor and mlirc: a table, JSON lines, and a picture.

The models' inference in float32 is measured under OpenVINO and ONNX Runtime too, where these are installed (benchmarks/peers.py).

python -m benchmarks.run                                         everything (`make bench`); well over half an hour
python -m benchmarks.run --models mlp,bert --ways inference --dtypes float32 --rounds 9 --kernels none --decoders none
python -m benchmarks.run --models none --decoders none --threads 1  the kernels alone, on one thread
"""

import itertools
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console

from benchmarks.decode import DECODERS, measure_decoding
from benchmarks.fresh_process import measure_in_fresh_process
from benchmarks.kernels import KERNELS, SIZES, measure_kernel
from benchmarks.models import MODELS
from benchmarks.peers import PEERS
from benchmarks.picture import draw
from benchmarks.setting import DTYPES, WAYS, Setting, available_backends
from benchmarks.steady import measure_steady
from benchmarks.table import table_of
from mlirc.frontend.report.machine_rates import matmul_rate
from mlirc.measurement.error import RelativeError
from mlirc.measurement.machine import describe_machine


def some_of(allowed: Iterable[str]) -> Callable:
    """A click callback: names separated by commas, all when left out, none for "none"."""
    known = list(allowed)

    def parse(context: click.Context, parameter: click.Parameter, value: str | None) -> list[str]:
        chosen = value.split(",") if value else known
        if chosen == ["none"]:
            return []
        for name in chosen:
            if name not in known:
                raise click.BadParameter(f"{name!r} is none of {', '.join(known)}, none")
        return chosen

    return parse


@click.command(help=__doc__)
@click.option("--models", callback=some_of(MODELS))
@click.option("--ways", callback=some_of(WAYS))
@click.option("--dtypes", callback=some_of(DTYPES))
@click.option("--kernels", callback=some_of(KERNELS))
@click.option("--decoders", callback=some_of(DECODERS), help="Models that decode one token at a time.")
@click.option("--backends", callback=some_of(available_backends(peers=True)))
@click.option("--rounds", default=15, show_default=True, help="Samples of steady time for each backend.")
@click.option("--threads", default=2, show_default=True)
@click.option("--batch", default=0, help="Another batch size than the models' own.")
@click.option("--small", is_flag=True, help="The small variants of the tests.")
@click.option("--steady-only", is_flag=True, help="Leave out the fresh processes: first call, memory, counts.")
@click.option("--output", default="build/bench", show_default=True, type=click.Path(path_type=Path))
def main(models, ways, dtypes, kernels, decoders, backends, rounds, threads, batch, small, steady_only, output):
    torch.set_num_threads(threads)
    output.mkdir(parents=True, exist_ok=True)
    console = Console(width=max(Console().width, 120))
    machine = describe_machine()
    rates = {dtype: matmul_rate(DTYPES[dtype]) for dtype in dtypes}
    console.print(f"{machine}; large products, 1e9/s: {rates}", markup=False)
    settings = [Setting(m, way, dtype, small, batch) for way in ways for dtype in dtypes for m in models]
    rows: list[dict[str, Any]] = []
    with (output / "results.jsonl").open("w") as lines:
        for setting in settings:
            console.print(f"{setting} …", markup=False)
            for row in measure(setting, backends, rounds, threads, steady_only):
                row |= {"limit": limit(setting, rates[setting.dtype]), "machine": machine, "time": time.time()}
                lines.write(json.dumps(row) + "\n")
                lines.flush()
                rows.append(row)
        backends = [backend for backend in backends if backend not in PEERS]
        for decoder, dtype in itertools.product(decoders, dtypes):
            console.print(f"{decoder} decoding {dtype} …", markup=False)
            for row in measure_decoding(decoder, dtype, backends, rounds, small):
                row |= {"machine": machine, "time": time.time()}
                lines.write(json.dumps(row) + "\n")
                lines.flush()
                rows.append(row)
        for kernel, size in itertools.product(kernels, SIZES):
            console.print(f"{kernel} {size} …", markup=False)
            for row in measure_kernel(KERNELS[kernel], size, backends, rounds):
                row |= {"machine": machine, "time": time.time()}
                lines.write(json.dumps(row) + "\n")
                lines.flush()
                rows.append(row)
    console.print(table_of(rows))
    draw(rows, output / "speedup.png")
    console.print(f"{output}/results.jsonl, {output}/speedup.png")


def measure(
    setting: Setting, backends: list[str], rounds: int, threads: int, steady_only: bool
) -> list[dict[str, Any]]:
    """One row a backend. One that fails gets a row that says so, and the others are measured without it."""
    backends = [backend for backend in backends if setting.takes(backend)]
    fresh, failures = {}, {}
    for backend in [] if steady_only else backends:
        try:
            fresh[backend] = measure_in_fresh_process(setting, backend, threads)
        except RuntimeError as problem:
            failures[backend] = str(problem)
            print(problem)
    working = [backend for backend in backends if backend not in failures]
    steady = measure_steady(setting, working, rounds)
    rows = []
    for backend in backends:
        row = {"setting": str(setting), "model": setting.model, "way": setting.way, "dtype": setting.dtype}
        row["backend"] = backend
        if backend in failures:
            rows.append(row | {"failure": failures[backend]})
            continue
        row |= fresh.get(backend, {}) | steady[backend]
        if "eager" in steady:
            error, eager = RelativeError(**steady[backend]["error"]), RelativeError(**steady["eager"]["error"])
            row["accurate"] = error.within(eager, DTYPES[setting.dtype])
        rows.append(row)
    return rows


def limit(setting: Setting, rate: float) -> float | None:
    """Seconds that the matmuls take at the machine's rate; training has three for each one of inference."""
    if setting.small or setting.batch:
        return None
    return MODELS[setting.model](False).gflop / rate * (3 if setting.training else 1)


if __name__ == "__main__":
    main()

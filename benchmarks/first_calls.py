"""What single measures buy of a first call and of memory: fresh processes with one of them off, in turn with none off.

python -m benchmarks.first_calls [--models bert,resnet] [--ways inference,training] [--rounds 5] [--threads 2] [--output FILE]

A row of the output is a process, its `off` the measure that is off in it. Its disk cache is empty; where `off` ends in "warm", it is what
another process left there.
"""

import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest import mock

import click

from benchmarks.fresh_process import ROOT, resident, trim_memory, write_bytecode
from benchmarks.setting import Setting, caller, compiled

COLD = {
    "nothing": "",
    "LLVM on threads beside lowering": "threads",
    "equal parts of kernels compiled once": "parts",
    "shared native code made while tracing": "prefetch",
    "the compilers' pages given back": "pages",
}
WARM = {"nothing, warm": "", "traces on disk, warm": "traces"}


@contextlib.contextmanager
def without(measure: str) -> Iterator[None]:
    """The compiler with one of COLD's or WARM's measures off."""
    from mlirc.codegen.emit import emit
    from mlirc.codegen.runtime import native_runtime, shared_kernels
    from mlirc.frontend.performance import compiler_pages
    from mlirc.frontend.performance.while_compiling import WhileCompiling

    begin = shared_kernels.begin

    def begin_and_wait(*args: Any) -> Future:
        made = begin(*args)
        made.result()
        return made

    def whole(functions: str, name: str, declarations: list[str]) -> tuple[list[str], dict]:
        return [*declarations, functions], {}

    if measure == "traces":
        import torch._functorch.config

        torch._functorch.config.enable_autograd_cache = False
    patches: dict[str, list[tuple[Any, str, Any]]] = {
        "threads": [(shared_kernels, "begin", begin_and_wait), (WhileCompiling, "overlap_llvm", lambda *_: None)],
        "parts": [(emit, "take_parts", whole)],
        "prefetch": [(native_runtime, "prefetch", lambda: None)],
        "pages": [(compiler_pages, "give_back", lambda: None)],
    }
    with contextlib.ExitStack() as stack:
        for patch in patches.get(measure, []):
            stack.enter_context(mock.patch.object(*patch))
        yield


def measure_here(setting: Setting, measure: str) -> dict[str, float]:
    """Measures this process's first call, in seconds and bytes.

    first_call     torch.compile and the call, in training with its backward
    processor      of all threads, until the compilers have nothing left to do
    after          the growth of the resident set by then
    """
    import torch._dynamo  # noqa: F401 (its import is not part of the first call)

    from mlirc.codegen.process.background import wait_for_all

    with without(measure):
        model, module, inputs = setting.build()
        trim_memory()
        baseline = resident("VmRSS")
        began, busy = time.perf_counter(), time.process_time()
        caller(model, module, compiled(module, "mlirc"), inputs, setting.training)()
        seconds = time.perf_counter() - began
        wait_for_all(60)
        processor = time.process_time() - busy
        trim_memory()
        return {"first_call": seconds, "processor": processor, "after": resident("VmRSS") - baseline}


def measure_apart(setting: Setting, measure: str, threads: int, cache: str) -> dict[str, float]:
    """`measure_here` in a new process. Raises CalledProcessError."""
    command = [sys.executable, "-m", "benchmarks.first_calls", "--here", json.dumps(asdict(setting))]
    command += [measure or "nothing", "--threads", str(threads)]
    environment = os.environ | {"MLIRC_CACHE_DIR": cache}
    done = subprocess.run(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=600)
    return json.loads(done.stdout.splitlines()[-1])


@click.command(help=__doc__)
@click.option("--models", default="bert,resnet", show_default=True)
@click.option("--ways", default="inference,training", show_default=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--threads", default=2, show_default=True)
@click.option("--output", default="build/first-calls.jsonl", show_default=True, type=click.Path(path_type=Path))
@click.option("--here", nargs=2, hidden=True)
def main(models: str, ways: str, rounds: int, threads: int, output: Path, here: tuple[str, str] | None) -> None:
    import torch

    from mlirc.measurement.machine import describe_machine

    torch.set_num_threads(threads)
    if here:
        print(json.dumps(measure_here(Setting(**json.loads(here[0])), here[1])))
        return
    write_bytecode()
    output.parent.mkdir(parents=True, exist_ok=True)
    settings = [Setting(*pair, "float32") for pair in itertools.product(models.split(","), ways.split(","))]
    with output.open("w") as lines, tempfile.TemporaryDirectory() as kept:
        for setting in settings:
            measure_apart(setting, "", threads, kept)  # fills the disk cache
        for _, setting, (off, measure) in itertools.product(range(rounds), settings, (COLD | WARM).items()):
            with tempfile.TemporaryDirectory() as empty:
                found = measure_apart(setting, measure, threads, kept if off in WARM else empty)
            row = {"model": setting.model, "way": setting.way, "off": off} | found
            row |= {"machine": describe_machine(), "time": time.time()}
            lines.write(json.dumps(row) + "\n")
            lines.flush()


if __name__ == "__main__":
    main()

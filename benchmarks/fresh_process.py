"""What only a fresh process can tell of one backend: its first call, its memory, its kernels and ATen calls.

Prints one line of JSON; the arguments are a setting, a backend and the number of threads:
python -m benchmarks.fresh_process '{"model": "bert", "way": "inference", "dtype": "float32"}' mlirc 2
"""

import compileall
import ctypes
import gc
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.setting import Setting, caller, compiled

ROOT = Path(__file__).parents[1]


def measure_in_fresh_process(setting: Setting, backend: str, threads: int, timeout: float = 600) -> dict[str, Any]:
    """Runs `measure` in a new Python with empty caches. Raises RuntimeError with its last lines when that fails."""
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": cache, "MLIRC_CACHE_DIR": cache}
        command = [sys.executable, "-m", "benchmarks.fresh_process", json.dumps(asdict(setting)), backend, str(threads)]
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=timeout)
    if done.returncode:
        last = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise RuntimeError(f"{setting} under {backend} failed:\n{last}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def measure(setting: Setting, backend: str) -> dict[str, Any]:
    """Seconds, bytes and counts.

    first_call     torch.compile and the first call (in training with its backward), Dynamo being imported
    peak_memory    the highest resident set during steady calls, above what it was with the model built and nothing
                   compiled: activations, arenas, packed weights, generated code and what the compiler keeps
    first_memory   the same for the first call, compilation included; processes that a compiler starts do not count
    kernels        launches of generated kernels in one call
    aten_calls     calls of ATen operators or of libraries in one call
    """
    import torch._dynamo  # noqa: F401 (its import is not part of the first call)

    inductor_code = keep_inductor_code() if backend == "inductor" else []
    model, module, inputs = setting.build()
    trim_memory()
    baseline = resident("VmRSS")
    start_peak()
    started = time.perf_counter()
    step = caller(model, module, compiled(module, backend), inputs, setting.training)
    step()
    first_call = time.perf_counter() - started
    first_memory = resident("VmHWM") - baseline
    step()
    trim_memory()
    start_peak()
    for _ in range(3):
        step()
    peak_memory = resident("VmHWM") - baseline
    result = {"first_call": first_call, "peak_memory": peak_memory, "first_memory": first_memory}
    if backend == "mlirc":
        return result | explained_counts(module, inputs, setting.training)
    # Of what Inductor generates, this is a launch: `cpp_fused_add_relu_0(buf0, arg1_1, buf1)`.
    kernels = sum(len(re.findall(r"^ +cpp_fused\w*\(", code, re.MULTILINE)) for code in inductor_code)
    return result | {"kernels": kernels, "aten_calls": count_aten_calls(step)}


def trim_memory() -> None:
    """Gives back what is free, so that the resident set is what is in use."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def start_peak() -> None:
    """Lets VmHWM start from the present resident set (Linux, `man 5 proc`)."""
    Path("/proc/self/clear_refs").write_text("5")


def resident(field: str) -> int:
    """VmRSS or VmHWM in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def keep_inductor_code() -> list[str]:
    """A list that gets the host program of each graph that Inductor compiles from now on."""
    from torch._inductor.graph import GraphLowering

    programs: list[str] = []
    GraphLowering.save_output_code = staticmethod(programs.append)
    return programs


def explained_counts(module: Any, inputs: dict, training: bool) -> dict[str, int]:
    import torch

    import mlirc

    with torch.set_grad_enabled(training):
        graphs = mlirc.explain(module, options={"fallback": "error"})(**inputs).data["graphs"]
    kernels = sum(kernel["launches"] for graph in graphs for kernel in graph["kernels"])
    aten = sum(count for graph in graphs for count, _ in graph["aten"].values())
    library = sum(count for graph in graphs for count in graph["library"].values())
    return {"kernels": kernels, "aten_calls": aten + library}


def count_aten_calls(step: Callable) -> int:
    """ATen operators that something other than ATen calls."""
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        step()

    def is_aten(event: Any) -> bool:
        return event is not None and event.name.startswith(("aten::", "mkldnn::"))

    return sum(is_aten(event) and not is_aten(event.cpu_parent) for event in profile.events())


def write_bytecode() -> None:
    """Python's bytecode of mlirc, as an installation has it: where none is written, each process would compile what was edited."""
    for package in ("mlirc", "dialects", "lowering", "codegen", "frontend"):
        compileall.compile_dir(ROOT / package, quiet=1)


if __name__ == "__main__":
    write_bytecode()
    import torch

    torch.set_num_threads(int(sys.argv[3]))
    print(json.dumps(measure(Setting(**json.loads(sys.argv[1])), sys.argv[2])))

"""Measures on an NVIDIA GPU: python -m benchmarks.gpu [--out FOLDER] [--models bert,vit] [--no-inductor] [SECTION ...]

    inference   the five models at full size, a call under no_grad; eager, Inductor as it is and with trivial masks removed
                by hand, and mlirc alternate in one process
    training    likewise, forward and backward
    latency     inference at batch 1, with reduce-overhead too
    kernels     memory-bound kernels on 1 GiB, against the bytes a second of a large copy
    flex        patterns of flex_attention, a call under no_grad, and forward and backward
    launch      host time of one kernel launch in a compiled graph
    first       the first call of each model, in inference and training, each in a fresh process with empty caches

Writes a table, and a line of JSON for each measurement to FOLDER/gpu.jsonl. `of_limit` is the least time that a model's matmuls
and parameters take at the GPU's rates (on_gpu/limits.py), over the time it took.
"""

import argparse
import contextlib
import datetime
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("MLIRC_CACHE_DIR", "off")
os.environ.setdefault("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")

import torch

from benchmarks.on_gpu.first_call import WAYS, in_fresh_process
from benchmarks.on_gpu.flex import PATTERNS
from benchmarks.on_gpu.kernels import KERNELS, copy_rate
from benchmarks.on_gpu.limits import matmul_rate, work
from benchmarks.on_gpu.models import MODELS, GpuModel, without_masks

SECTIONS = ("launch", "kernels", "flex", "latency", "inference", "training", "first")
ROUNDS, CALLS = 7, 5


class Report:
    """`failed`: how many measurements of mlirc's, or whole models, failed."""

    def __init__(self, folder: Path):
        self.failed = 0
        self.file = (folder / "gpu.jsonl").open("a")
        self.about = {
            "date": str(datetime.date.today()),
            "gpu": torch.cuda.get_device_name(),
            "torch": torch.__version__,
        }

    @cached_property
    def rates(self) -> tuple[float, float]:
        """Operations a second of large matmuls, and bytes of large copies."""
        rates = matmul_rate(), copy_rate()
        self.add("limits", "rates", "libraries", products_per_s=rates[0], copy_per_s=rates[1])
        return rates

    def add(self, section: str, what: str, backend: str, **values: Any) -> None:
        self.file.write(
            json.dumps({**self.about, "section": section, "what": what, "backend": backend, **values}) + "\n"
        )
        self.file.flush()
        self.failed += "failure" in values and backend.startswith("mlirc")
        numbers = "  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in values.items())
        print(f"{section:10} {what:14} {backend:24} {numbers}", flush=True)


# ---- models


def compiled(function: Callable, mode: str = "default") -> Callable:
    """By mlirc; a graph that would run in eager raises."""
    options: Any = {"fallback": "error", "mode": mode}
    return torch.compile(function, backend="mlirc", options=options)


def contenders(inductor: bool, modes: list[str], masked: bool) -> dict[str, tuple[Callable, Callable]]:
    """name -> (what makes a callable of a module, the context that it is called in)."""
    nothing = contextlib.nullcontext
    found: dict[str, tuple[Callable, Callable]] = {"eager": (lambda m: m, nothing)}
    for mode in modes:
        suffix = "" if mode == "default" else f" {mode}"
        if inductor:
            if masked:
                found[f"inductor{suffix}"] = (lambda m, mode=mode: torch.compile(m, mode=mode), nothing)
            found[f"inductor mask-free{suffix}"] = (lambda m, mode=mode: torch.compile(m, mode=mode), without_masks)
        found[f"mlirc{suffix}"] = (lambda m, mode=mode: compiled(m, mode), nothing)
    return found


def measure_model(
    report: Report, section: str, model: GpuModel, batch: int, inductor: bool, modes: list[str], masked: bool = True
) -> None:
    training = section == "training"
    torch._dynamo.reset()
    module = model.build(training)
    inputs = model.inputs(batch, training)

    def step(call: Callable) -> Any:
        if not training:
            with torch.no_grad():
                return call(**inputs).logits
        module.zero_grad(set_to_none=True)
        output = call(**inputs)
        output.loss.backward()
        return output.logits.detach()

    ready: dict[str, tuple[Callable, Callable]] = {}
    values: dict[str, dict[str, Any]] = {}
    results: dict[str, list[torch.Tensor]] = {}
    for name, (make, where) in contenders(inductor, modes, masked).items():
        try:
            call = make(module)
            with where():
                for _ in range(4):
                    result = step(call)
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
                step(call)
                torch.cuda.synchronize()
        except Exception as error:
            report.add(section, model.name, name, failure=" ".join(str(error).split())[:400])
            continue
        gradients = [p.grad.clone() for p in module.parameters() if p.grad is not None] if training else []
        results[name] = [result.clone(), *gradients]
        ready[name] = call, where
        values[name] = {"peak_mb": (torch.cuda.max_memory_allocated() - before) / 1e6}
    for name, error in errors(model, module, inputs, training, results).items():
        values[name] |= error
    del results
    times: dict[str, list[float]] = {name: [] for name in ready}
    for _ in range(ROUNDS):
        for name, (call, where) in ready.items():
            with where():
                step(call)
                times[name].append(timed(lambda call=call: step(call), CALLS))
    eager = statistics.median(times["eager"])
    limit = 1e3 * work(model, batch, training).seconds(*report.rates)
    for name in ready:
        ms = 1e3 * statistics.median(times[name])
        spread = 1e3 * (max(times[name]) - min(times[name]))
        speed = {"vs_eager": 1e3 * eager / ms, "of_limit": limit / ms}
        report.add(section, f"{model.name} x{batch}", name, ms=ms, **speed, spread_ms=spread, **values[name])


def errors(model: GpuModel, module: Any, inputs: dict, training: bool, results: dict) -> dict[str, dict[str, float]]:
    """Relative distance from float64 eager of the logits, and of all gradients as one vector."""
    from mlirc.measurement.error import EverythingInFloat64, relative_distance

    exact_module = model.build(training).double()
    given = {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}
    with EverythingInFloat64(), torch.set_grad_enabled(training):
        output = exact_module(**given)
        if training:
            output.loss.backward()
    exact = [output.logits.detach()]
    gradients = [p.grad for p in exact_module.parameters() if p.grad is not None]
    found = {}
    for name, result in results.items():
        found[name] = {"error": relative_distance(result[:1], exact)}
        if training:
            found[name]["grad_error"] = relative_distance(result[1:], gradients)
    return found


def timed(call: Callable[[], Any], calls: int) -> float:
    """Seconds of a call, from when the device is idle until it is done, over several calls in a row."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / calls


def measure_first_calls(report: Report, models: list[str], inductor: bool) -> None:
    """Each backend calls the first model once more, before: what it imports is compiled to bytecode then."""
    with tempfile.TemporaryDirectory() as bytecode:
        for way, backend in product(WAYS, ["inductor mask-free"] * inductor + ["mlirc"]):
            for count, model in enumerate([models[0], *models]):
                try:
                    seconds = in_fresh_process(model, way, backend, Path(bytecode))
                except RuntimeError as error:
                    report.add("first", f"{model} {way}", backend, failure=" ".join(str(error).split())[:400])
                    continue
                if count:
                    report.add("first", f"{model} {way}", backend, first_s=seconds)


# ---- kernels and launches


def measure_kernels(report: Report, inductor: bool) -> None:
    rate = copy_rate()
    report.add("kernels", "copy", "copy_", tb_per_s=rate / 1e12)
    for kernel in KERNELS:
        torch._dynamo.reset()
        inputs = kernel.make()
        with torch.no_grad():
            for name in ("eager", "inductor", "mlirc"):
                if name == "inductor" and not inductor:
                    continue
                try:
                    made = {"eager": lambda f: f, "mlirc": compiled}.get(name, torch.compile)
                    call = made(kernel.function)
                    for _ in range(3):
                        call(*inputs)
                    run = partial(call, *inputs)
                    seconds = statistics.median([timed(run, 5) for _ in range(5)])
                except Exception as error:
                    report.add("kernels", kernel.name, name, failure=" ".join(str(error).split())[:300])
                    continue
                moved = kernel.bytes(inputs)
                report.add("kernels", kernel.name, name, ms=1e3 * seconds, of_copy=moved / seconds / rate)
        del inputs, run
        torch.cuda.empty_cache()


def measure_flex(report: Report, inductor: bool) -> None:
    for pattern, training in product(PATTERNS, (False, True)):
        torch._dynamo.reset()
        function, inputs = pattern.call()
        what = f"{pattern.name}{' training' if training else ''}"
        for name, make in {"inductor": torch.compile, "mlirc": compiled}.items():
            if name == "inductor" and not inductor:
                continue
            try:
                step = partial(pattern.step, make(function), inputs, training)
                for _ in range(3):
                    step()
                seconds = statistics.median([timed(step, 5) for _ in range(5)])
            except Exception as error:
                report.add("flex", what, name, failure=" ".join(str(error).split())[:300])
                continue
            limit = pattern.operations(training) / report.rates[0]
            report.add("flex", what, name, ms=1e3 * seconds, of_limit=limit / seconds)
        torch.cuda.empty_cache()


def measure_launch(report: Report) -> None:
    """A chain of small kernels that do not fuse: the slope over their number is one launch."""
    x = torch.randn(64, 64, device="cuda")

    def chain(count: int) -> Callable:
        def fn(x: torch.Tensor) -> torch.Tensor:
            for _ in range(count):
                x = torch.softmax(x, 0)
                x = torch.softmax(x.t().contiguous(), 0)
            return x

        return fn

    seconds: dict[int, tuple[float, float]] = {}
    for count in (4, 36):
        torch._dynamo.reset()
        call = torch.compile(chain(count), backend="mlirc", options={"pipeline": "strict"})
        with torch.no_grad():
            for _ in range(20):
                call(x)
            seconds[count] = host_time(lambda call=call: call(x))
    from mlirc.frontend.statistics import graphs

    kernels = [sum(k.launches for k in g.kernels) for g in graphs[-2:]]
    slope = (seconds[36][0] - seconds[4][0]) / (kernels[1] - kernels[0])
    report.add("launch", "one launch", "mlirc", us=1e6 * slope, kernels=str(kernels), call_us=1e6 * seconds[4][0])


def host_time(call: Callable[[], Any], calls: int = 20) -> tuple[float, float]:
    """Seconds of the host for a call, the device never being waited for; and until all is done."""
    best = (float("inf"), float("inf"))
    for _ in range(15):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        host = time.perf_counter() - start
        torch.cuda.synchronize()
        best = min(best, (host / calls, (time.perf_counter() - start) / calls))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.split("\n")[0])
    parser.add_argument("sections", nargs="*", default=SECTIONS, metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--no-inductor", action="store_true")
    parser.add_argument("--no-masked", action="store_true", help="Inductor is given models without trivial masks alone")
    parser.add_argument("--modes", default="default")
    arguments = parser.parse_args()
    unknown = set(arguments.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"no section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    report = Report(arguments.out)
    inductor, modes = not arguments.no_inductor, arguments.modes.split(",")
    for section in arguments.sections or SECTIONS:
        if section == "kernels":
            measure_kernels(report, inductor)
        elif section == "flex":
            measure_flex(report, inductor)
        elif section == "launch":
            measure_launch(report)
        elif section == "first":
            measure_first_calls(report, arguments.models.split(","), inductor)
        else:
            for name in arguments.models.split(","):
                start = time.perf_counter()
                latency = section == "latency"
                both = ["default", "reduce-overhead"] if latency else modes
                try:
                    model = MODELS[name]()
                    batch = 1 if latency else model.batch
                    measure_model(report, section, model, batch, inductor, both, not arguments.no_masked)
                except Exception as error:
                    report.add(section, name, "mlirc", failure=" ".join(str(error).split())[:400])
                gc.collect()
                torch.cuda.empty_cache()
                print(f"{section:10} {name:14} {time.perf_counter() - start:.0f} s in all", flush=True)
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()

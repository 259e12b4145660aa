"""Steady time of several backends, alternating in one process: what slows the machine down slows all of them."""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch

from benchmarks.error import error_of, reference_step, take_step
from benchmarks.setting import Setting, caller, compiled

# A sample shorter than this, in seconds, would measure the clock.
SHORTEST = 0.005
WARM_UP = 3


def measure_steady(setting: Setting, backends: list[str], rounds: int) -> dict[str, dict[str, Any]]:
    """For each backend: `steady` (seconds: median, quartiles `low` and `high`, samples) and `error` against float64."""
    torch._dynamo.reset()
    model, module, inputs = setting.build()
    reference = reference_step(model, module, inputs, setting.training)
    calls = {backend: compiled(module, backend) for backend in backends}
    errors = {
        backend: error_of(take_step(model, module, call, inputs, setting.training), reference)
        for backend, call in calls.items()
    }
    steps = {backend: caller(model, module, call, inputs, setting.training) for backend, call in calls.items()}
    samples = alternate(steps, rounds)
    return {backend: {"steady": spread(samples[backend]), "error": asdict(errors[backend])} for backend in backends}


def alternate(steps: dict[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """Seconds of one call, a sample a round; each second round goes backwards, so that no one is favoured."""
    repeats = {}
    for name, step in steps.items():
        for _ in range(WARM_UP):
            step()
        repeats[name] = max(1, round(SHORTEST / seconds(step, 1)))
    samples: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds):
        for name in list(steps)[:: -1 if number % 2 else 1]:
            samples[name].append(seconds(steps[name], repeats[name]))
    return samples


def seconds(step: Callable[[], None], repeats: int) -> float:
    started = time.perf_counter()
    for _ in range(repeats):
        step()
    return (time.perf_counter() - started) / repeats


def spread(samples: list[float]) -> dict[str, Any]:
    low, median, high = statistics.quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else samples * 3
    return {"median": median, "low": low, "high": high, "samples": samples}

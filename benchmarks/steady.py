"""Steady time of several backends, alternating in one process, and their error."""

from dataclasses import asdict
from typing import Any

import torch

from benchmarks.peers import pause_between
from benchmarks.setting import Setting, caller, compiled
from benchmarks.step import reference_step, take_step
from mlirc.measurement.alternate import alternate, spread
from mlirc.measurement.error import error_of


def measure_steady(setting: Setting, backends: list[str], rounds: int) -> dict[str, dict[str, Any]]:
    """For each backend: `steady` (seconds: median, quartiles `low` and `high`, samples), `cpu` (the same of the processor's time, all
    threads') and `error` against float64."""
    torch._dynamo.reset()
    model, module, inputs = setting.build()
    reference = reference_step(model, module, inputs, setting.training)
    calls = {backend: compiled(module, backend) for backend in backends}
    errors = {
        backend: error_of(take_step(model, module, call, inputs, setting.training), reference)
        for backend, call in calls.items()
    }
    steps = {backend: caller(model, module, call, inputs, setting.training) for backend, call in calls.items()}
    samples = alternate(steps, rounds, pause=pause_between(steps))
    return {
        backend: {
            "steady": spread(samples[backend].wall),
            "cpu": spread(samples[backend].cpu),
            "error": asdict(errors[backend]),
        }
        for backend in backends
    }

"""Steady time of several calls, alternating in one process: what slows the machine down slows all of them."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

# A sample shorter than this, in seconds, would measure the clock.
SHORTEST = 0.005
WARM_UP = 3
COMPILATIONS = 3  # of each side that is compared: their differences are noise
TRIALS = 5  # of how long a call takes: the shortest counts, because one that was interrupted would make all samples of it too short

Steps = Mapping[str, Callable[[], Any]]


@dataclass
class Samples:
    """Seconds of one call, a sample a round: by wall clock, and of the processor, summed over the process's threads."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


def alternate(
    steps: Steps,
    rounds: int,
    finish: Callable[[], None] | None = None,
    warm_up: int = WARM_UP,
    trials: int = TRIALS,
    pause: float = 0.0,
) -> dict[str, Samples]:
    """Each round measures each step once. The next round begins with the next step, and each second one goes backwards, so that
    no step is favoured by its place. `finish` waits for what a step leaves running, on a GPU.

    pause   seconds before each sample, and then a call that is not measured, for steps whose threads keep spinning after a call
    """
    names = list(steps)
    repeats = {}
    for name, step in steps.items():
        for _ in range(warm_up):
            step()
        call = min(seconds(step, 1, finish) for _ in range(trials))
        repeats[name] = max(1, round(SHORTEST / max(call, 1e-9)))
    samples = {name: Samples() for name in names}
    for number in range(rounds):
        start = number // 2 % len(names)
        for name in (names[start:] + names[:start])[:: -1 if number % 2 else 1]:
            if pause:
                time.sleep(pause)
                seconds(steps[name], 1, finish)
            wall, cpu = both_clocks(steps[name], repeats[name], finish)
            samples[name].wall.append(wall)
            samples[name].cpu.append(cpu)
    return samples


def seconds(step: Callable[[], Any], repeats: int, finish: Callable[[], None] | None = None) -> float:
    """Wall-clock seconds of one of so many calls."""
    return both_clocks(step, repeats, finish)[0]


def both_clocks(step: Callable[[], Any], repeats: int, finish: Callable[[], None] | None) -> tuple[float, float]:
    if finish is not None:
        finish()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(repeats):
        step()
    if finish is not None:
        finish()
    return (time.perf_counter() - wall) / repeats, (time.process_time() - cpu) / repeats


def spread(samples: list[float]) -> dict[str, Any]:
    """Median, quartiles `low` and `high`, and the samples."""
    low, median, high = statistics.quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else samples * 3
    return {"median": median, "low": low, "high": high, "samples": samples}

"""Alternating measurement: every step once a round, no one favoured by its place; both clocks."""

import threading
import time
from collections import Counter

import torch

from mlirc.execution.modules import waiter
from mlirc.measurement.alternate import SHORTEST, WARM_UP, alternate


def test_each_step_is_measured_once_a_round_and_takes_every_place():
    order: list[str] = []
    steps = {name: lambda name=name: (order.append(name), time.sleep(SHORTEST))[0] for name in "abc"}
    samples = alternate(steps, 12)
    assert all(len(taken.wall) == len(taken.cpu) == 12 for taken in samples.values())
    rounds = ["".join(order[-36:][k : k + 3]) for k in range(0, 36, 3)]
    assert all(sorted(taken) == list("abc") for taken in rounds)
    for place in range(3):
        assert Counter(taken[place] for taken in rounds) == {"a": 4, "b": 4, "c": 4}


def test_a_sleep_costs_wall_clock_and_no_processor():
    (slept,) = alternate({"sleep": lambda: time.sleep(0.02)}, 3).values()
    assert min(slept.wall) >= 0.02 and min(slept.cpu) < 0.01


def test_cpu_time_is_that_of_all_threads():
    def work() -> None:
        started = time.thread_time()
        while time.thread_time() - started < 0.02:
            pass

    def two() -> None:
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    (taken,) = alternate({"two": two}, 2).values()
    assert min(taken.cpu) >= 0.039


def test_a_step_that_keeps_spinning_does_not_slow_down_the_next():
    """Its thread is busy for a while after each call, as those of ONNX Runtime are."""
    spins = [0.0]

    def spinning() -> None:
        spins[0] = time.monotonic() + 0.03
        time.sleep(SHORTEST)

    def beside() -> None:
        time.sleep(SHORTEST if time.monotonic() > spins[0] else 4 * SHORTEST)

    steps = {"spinning": spinning, "beside": beside}
    assert max(alternate(steps, 4)["beside"].wall) > 3 * SHORTEST
    assert max(alternate(steps, 4, pause=0.04)["beside"].wall) < 3 * SHORTEST


def test_what_a_step_leaves_running_is_waited_for():
    left = []
    (taken,) = alternate(
        {"later": lambda: left.append(0)}, 2, lambda: (time.sleep(0.01 * bool(left)), left.clear())
    ).values()
    assert min(taken.wall) > 0
    assert not left


def test_a_call_that_was_interrupted_does_not_make_samples_short():
    calls = 0

    def step() -> None:
        nonlocal calls
        calls += 1
        time.sleep(10 * SHORTEST * (calls == WARM_UP + 1))

    alternate({"step": step}, 2)
    assert calls > 100


def test_every_gpu_with_memory_is_waited_for(monkeypatch):
    """Whichever is current: what is measured may be on another one."""
    waited = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 512 * (device != 1))
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    waiter()()
    assert waited == [0, 2]

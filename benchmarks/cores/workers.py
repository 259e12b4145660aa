"""A process for each subject: all compile, a few at a time, and then measure one at a time."""

import multiprocessing
import os
import time
from multiprocessing.connection import Connection
from typing import Any

import torch

from benchmarks.cores.subjects import steps_of
from benchmarks.peers import pause_between
from mlirc.measurement.alternate import alternate

CPUS_OF_A_COMPILER = 2  # a process that compiles has so many


def use_threads(count: int, cpus: list[int], pin: bool) -> None:
    """Sets PyTorch's number of threads, and with `pin` lets all threads of this process run on the first `count` processors alone."""
    torch.set_num_threads(count)
    if not pin:
        return
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), cpus[:count])


def serve(pipe: Connection, part: str, name: str, backends: list[str], pin: bool) -> None:
    """A subject's process: compiles, says so, then measures with each (threads, rounds) that it is sent."""
    if "inductor" in backends:
        from torch._inductor import config

        config.cpp.dynamic_threads = True
    cpus = sorted(os.sched_getaffinity(0))
    torch.set_num_threads(min(CPUS_OF_A_COMPILER, len(cpus)))
    try:
        steps = steps_of(part, name, backends)
        pipe.send("ready")
        while (order := pipe.recv()) is not None:
            threads, rounds = order
            use_threads(threads, cpus, pin)
            pipe.send(alternate(steps, rounds, warm_up=1, trials=2, pause=pause_between(steps)))
    except Exception as problem:
        pipe.send(" ".join(f"{type(problem).__name__}: {problem}".split())[:400])


class Worker:
    """The process of a subject, and the pipe to it. `failure` is why it measures nothing (more)."""

    def __init__(self, part: str, name: str, backends: list[str], pin: bool):
        self.part, self.name = part, name
        self.failure = ""
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other, part, name, backends, pin), daemon=True)
        self.process.start()
        other.close()

    def answer(self, deadline: float) -> Any:
        """What the process sends before the deadline; None, with `failure`, where it sends nothing or failed."""
        try:
            if not self.pipe.poll(max(deadline - time.monotonic(), 0)):
                self.failure = "no time left"
                self.process.terminate()
                return None
            answer = self.pipe.recv()
        except EOFError:
            self.failure = "the process ended"
            return None
        if isinstance(answer, str) and answer != "ready":
            self.failure = answer
            return None
        return answer

    def measure(self, threads: int, rounds: int, deadline: float) -> Any:
        self.pipe.send((threads, rounds))
        return self.answer(deadline)


def started(chosen: list[tuple[str, str]], backends: list[str], pin: bool, deadline: float) -> list[Worker]:
    """Workers that have compiled; a few compile at a time."""
    at_once = max(1, len(os.sched_getaffinity(0)) // CPUS_OF_A_COMPILER)
    workers: list[Worker] = []
    for first in range(0, len(chosen), at_once):
        group = [Worker(part, name, backends, pin) for part, name in chosen[first : first + at_once]]
        for worker in group:
            worker.answer(deadline)
        workers += group
    return workers

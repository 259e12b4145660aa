"""Worker processes: each judges programs of a range of seeds; one that crashes or hangs is a finding, too."""

import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

LIMIT = 180.0  # seconds for one program and its shrinking
RECYCLED = 400  # programs, after which a worker makes room for a new process
MEMORY = 12 << 30  # bytes of address space


@dataclass
class Finding:
    """A program that is wrong, as found and as small as it got."""

    seed: int
    kind: str
    signature: str
    text: str
    differences: list[str] = field(default_factory=list)
    original: str = ""


@dataclass
class Worker:
    """A process, and what it was last heard to do."""

    process: subprocess.Popen
    seed: int | None = None
    since: float = field(default_factory=time.monotonic)
    done: int = 0


def run(seeds: Iterator[int], workers: int, end: float, arguments: list[str]) -> Iterator[tuple[int, Finding | str]]:
    """(seed, its verdict's kind or a finding) for each seed, until the time `end`."""
    selector, alive = selectors.DefaultSelector(), []
    for _ in range(workers):
        _start(selector, alive, arguments)
    for worker in list(alive):
        _give(worker, seeds, end)
    while alive:
        for key, _ in selector.select(timeout=1.0):
            worker: Worker = key.data
            line = key.fileobj.readline()  # type: ignore[union-attr]
            seed = worker.seed
            if not line:
                yield from _ended(worker, selector, alive, seeds, end, arguments)
                continue
            answer = json.loads(line)
            worker.done += 1
            worker.seed = None
            assert seed is not None
            yield seed, Finding(**answer) if "text" in answer else answer["kind"]
            if worker.done >= RECYCLED:
                _stop(worker, selector, alive)
                fresh = _start(selector, alive, arguments)
                _give(fresh, seeds, end)
            else:
                _give(worker, seeds, end)
        for worker in list(alive):
            if worker.seed is not None and time.monotonic() - worker.since > LIMIT:
                worker.process.kill()
        for worker in [w for w in alive if w.seed is None]:
            _stop(worker, selector, alive)


def _ended(worker, selector, alive, seeds, end, arguments) -> Iterator[tuple[int, Finding | str]]:
    """A worker died with a program: that is a finding. Another takes over."""
    selector.unregister(worker.process.stdout)
    alive.remove(worker)
    status = worker.process.wait()
    if worker.seed is None:
        return
    hung = time.monotonic() - worker.since > LIMIT
    kind = "hang" if hung else f"crash ({signal.Signals(-status).name if status < 0 else status})"
    from tests.fuzz.program import random_program

    yield worker.seed, Finding(worker.seed, kind, kind, random_program(worker.seed, _only(arguments)))
    _give(_start(selector, alive, arguments), seeds, end)


def _only(arguments: list[str]) -> str:
    return arguments[arguments.index("--kinds") + 1] if "--kinds" in arguments else ""


def _start(selector: selectors.BaseSelector, alive: list[Worker], arguments: list[str]) -> Worker:
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz.worker", *arguments]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )
    worker = Worker(process)
    alive.append(worker)
    selector.register(process.stdout, selectors.EVENT_READ, worker)  # type: ignore[arg-type]
    return worker


def _give(worker: Worker, seeds: Iterator[int], end: float) -> None:
    worker.seed = None if time.monotonic() > end else next(seeds, None)
    worker.since = time.monotonic()
    if worker.seed is not None:
        try:
            worker.process.stdin.write(f"{worker.seed}\n")  # type: ignore[union-attr]
            worker.process.stdin.flush()  # type: ignore[union-attr]
        except BrokenPipeError:
            pass  # it has ended: its output says so


def _stop(worker: Worker, selector: selectors.BaseSelector, alive: list[Worker]) -> None:
    selector.unregister(worker.process.stdout)  # type: ignore[arg-type]
    alive.remove(worker)
    worker.process.stdin.close()  # type: ignore[union-attr]
    try:
        worker.process.wait(30)
    except subprocess.TimeoutExpired:
        worker.process.kill()


def limit_memory() -> None:
    """A program that asks for too much gets an exception, as in eager, and not the machine's memory."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")


def counts(results: Counter) -> str:
    return ", ".join(f"{results[kind]} {kind}" for kind in sorted(results))

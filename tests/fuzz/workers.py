"""Worker processes: each judges programs of a range of seeds; one that crashes or hangs is a finding, too."""

import contextlib
import json
import os
import resource
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ASKERS = 4  # processes at a time that ask whether PyTorch ends without us
LIMIT = 180.0  # seconds for one program and its shrinking
RECYCLED = 400  # programs, after which a worker makes room for a new process
CACHED = 6  # each so many-th program uses the disk cache, and once more in another process, which finds it warm
SUSPECTS = 20  # programs: memory that one of PyTorch's bugs spoils may end its process some programs later
TRIES = 16  # runs without us, after a crash: what spoils memory ends one process in ten, or all
START = 0.2  # seconds between the starts of two workers
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
    again: bool = False
    since: float = field(default_factory=time.monotonic)
    done: int = 0
    phase: str = ""
    texts: deque[str] = field(default_factory=lambda: deque(maxlen=SUSPECTS))  # of its last programs
    rest: bytes = b""  # of a line that is not whole


@dataclass
class Pool:
    """Processes that judge programs until the time `end`, or until there are no seeds."""

    seeds: Iterator[int]
    end: float
    arguments: list[str]
    alive: list[Worker] = field(default_factory=list)
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    cache: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="mlirc-fuzz-cache-")))
    warm: deque[tuple[int, int]] = field(
        default_factory=deque
    )  # seeds, and the processes that filled the cache with them
    hits: int = 0  # graphs that were found in the cache
    asked: list[tuple[Future, Worker, str]] = field(default_factory=list)
    """Whether PyTorch ends, or does not, without us, of workers that did; and how they did."""
    askers: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(ASKERS))

    @property
    def device(self) -> str:
        return self.arguments[self.arguments.index("--device") + 1] if "--device" in self.arguments else "cpu"

    def outcomes(self, workers: int) -> Iterator[tuple[int, Finding | str]]:
        """(seed, its verdict's kind or a finding) for each seed, and once more for those that another process ran again."""
        try:
            yield from self._outcomes(workers)
        finally:
            self.askers.shutdown(wait=False, cancel_futures=True)
            shutil.rmtree(self.cache, ignore_errors=True)

    def _outcomes(self, workers: int) -> Iterator[tuple[int, Finding | str]]:
        while workers or self.alive or self.asked:
            if workers:  # one after another: all at once would read the same files at the same time
                workers -= 1
                self.start()
            for key, _ in self.selector.select(timeout=START if workers else 1.0):
                yield from self.hear(key.data)
            for worker in self.alive:
                if worker.seed is not None and time.monotonic() - worker.since > LIMIT:
                    worker.process.kill()
            yield from self.decided()

    def hear(self, worker: Worker) -> Iterator[tuple[int, Finding | str]]:
        """What a worker has written: whole lines, or its end."""
        data = os.read(worker.process.stdout.fileno(), 1 << 16)  # type: ignore[union-attr]
        if not data:
            yield from self.ended(worker)
            return
        worker.since = time.monotonic()
        *lines, worker.rest = (worker.rest + data).split(b"\n")
        for answer in map(json.loads, lines):
            if "phase" in answer:
                worker.phase = answer["phase"]
                worker.texts.extend([answer["program"]] if "program" in answer else [])
            else:
                yield from self.answered(worker, answer)

    def answered(self, worker: Worker, answer: dict) -> Iterator[tuple[int, Finding | str]]:
        """A verdict."""
        seed, worker.seed = worker.seed, None
        worker.done += 1
        assert seed is not None
        self.hits += answer.pop("hits", 0)
        ends = answer.pop("ends", False)  # it says no more
        yield seed, Finding(**answer) if "text" in answer else answer["kind"]
        if seed % CACHED == 0 and not worker.again:
            self.warm.append((seed, worker.process.pid))
        if ends or worker.done >= RECYCLED:
            self.stop(worker)
            self.start()
        else:
            self.give(worker)

    def ended(self, worker: Worker) -> Iterator[tuple[int, Finding | str]]:
        """A worker died with a program: a finding, if it was compiled code that ran. Another takes over."""
        self.selector.unregister(worker.process.stdout)  # type: ignore[arg-type]
        self.alive.remove(worker)
        status = worker.process.wait()
        if worker.seed is None:
            return
        if status > 0 and worker.phase == "given" and not worker.done:
            raise RuntimeError(f"a worker ended with status {status} before its first program; its error is above")
        hung = time.monotonic() - worker.since > LIMIT
        how = "hang" if hung else f"crash ({signal.Signals(-status).name if status < 0 else status})"
        if worker.phase == "compiled" and status < 0:
            ask = aot_eager_hangs if hung else aot_eager_dies
            self.asked.append((self.askers.submit(ask, list(worker.texts), self.device), worker, how))
        else:
            yield self.outcome(worker, how, ours=worker.phase == "compiled")
        self.start()

    def decided(self) -> Iterator[tuple[int, Finding | str]]:
        """The outcomes of workers that ended, once it is known whether PyTorch does so without us, or there is no time left to ask."""
        waiting, self.asked = self.asked, []
        late = time.monotonic() > self.end + LIMIT
        for answer, worker, how in waiting:
            if answer.done() or late:
                yield self.outcome(worker, how, ours=not (answer.done() and answer.result()))
            else:
                self.asked.append((answer, worker, how))

    def outcome(self, worker: Worker, how: str, ours: bool) -> tuple[int, Finding | str]:
        assert worker.seed is not None
        if ours:
            return worker.seed, Finding(worker.seed, how, how, worker.texts[-1] if worker.texts else "")
        return worker.seed, f"{how.split()[0]} of {'PyTorch' if worker.phase != 'shrunk' else 'shrinking'}"

    def start(self) -> None:
        if time.monotonic() > self.end:
            return
        command = [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz.worker", "--cache", str(self.cache)]
        command += self.arguments
        root = Path(__file__).parents[2]
        env = os.environ | {"MALLOC_ARENA_MAX": "2"}
        if "--freed" in self.arguments:
            env["PYTHONMALLOC"] = "malloc"
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root, env=env)
        worker = Worker(process)
        self.alive.append(worker)
        self.selector.register(process.stdout, selectors.EVENT_READ, worker)  # type: ignore[arg-type]
        self.give(worker)

    def give(self, worker: Worker) -> None:
        """The next seed; a worker that gets none ends."""
        worker.seed = None if time.monotonic() > self.end else self.next(worker)
        worker.since, worker.phase = time.monotonic(), "given"
        if worker.seed is None:
            self.stop(worker)
            if self.warm:  # in a process of its own
                self.start()
            return
        with contextlib.suppress(BrokenPipeError):  # it has ended: its output says so
            worker.process.stdin.write(b"%d%s\n" % (worker.seed, b" again" * worker.again))  # type: ignore[union-attr]
            worker.process.stdin.flush()  # type: ignore[union-attr]

    def next(self, worker: Worker) -> int | None:
        """A seed that another process filled the cache with, or a new one."""
        for place, (seed, pid) in enumerate(self.warm):
            if pid != worker.process.pid:
                del self.warm[place]
                worker.again = True
                return seed
        worker.again = False
        return next(self.seeds, None)

    def stop(self, worker: Worker) -> None:
        self.selector.unregister(worker.process.stdout)  # type: ignore[arg-type]
        self.alive.remove(worker)
        with contextlib.suppress(BrokenPipeError):
            worker.process.stdin.close()  # type: ignore[union-attr]
        try:
            worker.process.wait(30)
        except subprocess.TimeoutExpired:
            worker.process.kill()


def aot_eager_dies(texts: Iterable[str], device: str = "cpu") -> bool:
    """Whether programs, one after another, end their process, or the GPU, without us, too, in one of some tries."""
    for _ in range(TRIES):
        done = _by_aot_eager(list(texts), device)
        if done is None:
            return False
        if done.returncode < 0 or b"DeviceLost" in done.stderr:
            return True
    return False


def aot_eager_hangs(texts: Sequence[str], device: str = "cpu") -> bool:
    """Whether the last of the programs takes PyTorch as long without us."""
    return _by_aot_eager([texts[-1]], device) is None


def _by_aot_eager(texts: list[str], device: str) -> subprocess.CompletedProcess | None:
    """How a process ended that ran the programs, or None where it had not ended in the time that a program has."""
    program = (
        "import json, sys; from tests.fuzz import tensors; from tests.fuzz.judge import load, need_device, run\n"
        f"tensors.use_device({device!r})\n"
        "for text in json.load(sys.stdin): run(load(text), 'aot_eager'); need_device('aot_eager')"
    )
    command, root = [sys.executable, "-c", program], Path(__file__).parents[2]
    try:
        return subprocess.run(command, input=json.dumps(texts).encode(), cwd=root, timeout=LIMIT, capture_output=True)
    except subprocess.TimeoutExpired:
        return None


def limit_memory() -> None:
    """A program that asks for too much gets an exception, as in eager, and not the machine's memory."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def counts(results: Counter) -> str:
    return ", ".join(f"{results[kind]} {kind}" for kind in sorted(results))

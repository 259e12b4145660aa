"""Judges cases in other processes: one that ends its process, or does not end, is a finding with its name.

On a CPU a process is forked, with the cases that there are. One that has used CUDA forks none that can, and PyTorch's databases ask for GPUs when
they are imported: for a GPU each process starts anew (fresh.py).
"""

import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import torch

from tests.databases.case import DatabaseCase, Finding, judge

BATCH = 40
SECONDS = 120  # for one case, and for what makes them


def judged(
    make: Callable[[], Sequence[DatabaseCase]],
    seconds: float = SECONDS,
    judge: Callable[[DatabaseCase], Finding] = judge,
) -> Iterator[tuple[str, Finding]]:
    """The name of each case with its finding: also `crash`, `hang`, and `harness` where the case itself is wrong."""
    made = make()

    def start(done: int, reader: int, writer: int) -> int:
        child = os.fork()
        if child == 0:
            os.close(reader)
            judge_some(lambda: made, done, writer, judge, BATCH)
        return child

    return judged_by(start, seconds)


def judged_by(
    start: Callable[[int, int, int], int], seconds: float = SECONDS, until: float | None = None
) -> Iterator[tuple[str, Finding]]:
    """The same of processes that `start(done, reader, writer)` starts, whose ids it returns: behind the first `done` cases each calls
    judge_some. `until`: when to stop, by time.time()."""
    done, ended = 0, False
    while not ended:
        reader, writer = os.pipe()
        child = start(done, reader, writer)
        os.close(writer)
        try:
            before, ended = done, True
            for name, finding in _findings(reader, seconds, until):
                if name:
                    done += 1
                    yield name, finding
                ended = finding.kind == "end"
            ended = ended and (done == before or _is_late(until))
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(reader)


def _is_late(until: float | None) -> bool:
    return until is not None and time.time() > until


def judge_some(make: Callable, done: int, writer: int, judge: Callable, count: int) -> None:
    """Judges `count` cases, the first `done` left out, and writes a line for each to `writer`. Does not return."""
    torch.set_num_threads(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    tell = lambda *what: os.write(writer, json.dumps(what).encode() + b"\n")
    try:
        for case in islice(make(), done, done + count):
            tell("begins", case.name)
            try:
                finding = judge(case)
            except Exception:
                finding = Finding("harness", (traceback.format_exc(),))
            tell(finding.kind, finding.texts)
        tell("end", ())
    except BaseException:
        tell("begins", "what makes the cases")
        tell("harness", (traceback.format_exc(),))
    signal.pause()


def _findings(reader: int, seconds: float, until: float | None) -> Iterator[tuple[str, Finding]]:
    """What a child writes, a line each; the last is its end, without a name, or how a case ended it."""
    text, since, name = b"", time.monotonic(), ""
    while True:
        if select.select([reader], [], [], 1)[0]:
            if not (more := os.read(reader, 1 << 16)):
                yield name or "what makes the cases", Finding("crash")
                return
            *lines, text = (text + more).split(b"\n")
            for line in lines:
                kind, what = json.loads(line)
                since = time.monotonic()
                if kind == "begins":
                    name = what
                    continue
                yield ("" if kind == "end" else name), Finding(kind, tuple(what))
                if kind == "end":
                    return
        if _is_late(until):
            yield "", Finding("end")
            return
        if time.monotonic() - since > seconds:
            yield name or "what makes the cases", Finding("hang")
            return

"""Judges cases in forked processes: one that ends its process, or does not end, is a finding with its name."""

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
GPU_BATCH = 200


def judged(
    make: Callable[[], Sequence[DatabaseCase]],
    seconds: float = SECONDS,
    judge: Callable[[DatabaseCase], Finding] = judge,
    device: str = "cpu",
) -> Iterator[tuple[str, Finding]]:
    """The name of each case with its finding: also `crash`, `hang`, and `harness` where the case itself is wrong.

    A process that has used a GPU cannot fork one that does: each child makes the cases anew there.
    """
    made = make() if device == "cpu" else None
    done, ended = 0, False
    while not ended:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            _judge_some(make if made is None else lambda: made, done, writer, judge, BATCH if made else GPU_BATCH)
        os.close(writer)
        try:
            before, ended = done, True
            for name, finding in _findings(reader, seconds):
                if name:
                    done += 1
                    yield name, finding
                ended = finding.kind == "end"
            ended = ended and done == before
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(reader)


def _judge_some(make: Callable, done: int, writer: int, judge: Callable, count: int) -> None:
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


def _findings(reader: int, seconds: float) -> Iterator[tuple[str, Finding]]:
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
        elif time.monotonic() - since > seconds:
            yield name or "what makes the cases", Finding("hang")
            return

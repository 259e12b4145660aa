"""Judges cases in a process that starts anew, as one that uses CUDA has to: what is imported may have asked for GPUs, and such a process cannot fork.

The process makes the cases itself, of parts of databases: python tests/databases/fresh.py JSON, which writes to file number WRITER.
"""

import json
import os
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.databases import operators
from tests.databases.case import DatabaseCase, judge
from tests.databases.every import DATABASES
from tests.databases.forked import judge_some

Part = tuple[str, int, int]
"""A database, which of its parts, counted from 0, and of how many."""
BATCH = 400  # cases of one process
WRITER = 9
PARTS = 150  # of a database, in a sample: a few operators each


def parts_of_all(names: Sequence[str]) -> list[Part]:
    """All parts of these databases, in an order that is random but always the same."""
    every = [(name, k, PARTS) for name in names for k in range(PARTS)]
    random.Random(0).shuffle(every)
    return every


def cases_of(parts: Sequence[Part], only: str, count: int, device: str) -> Iterator[DatabaseCase]:
    """Cases whose names have `only` in them. Of a database of operators a part is some of these, which alone are asked for samples."""
    made: dict[str, list[DatabaseCase]] = {}
    for name, part, of in parts:
        kind = name.removeprefix("operators: ")
        if kind != name:
            found = list(operators.cases(kind, count, device, part, of))
        else:
            if name not in made:
                made[name] = list(DATABASES[name](count=count, device=device))
            found = made[name][part::of]
        yield from (case for case in found if only in case.name)


@dataclass(frozen=True)
class Starter:
    """Starts a process for judged_by: `starter(done, reader, writer)` gives its id."""

    parts: Sequence[Part]
    only: str
    count: int
    device: str

    def __call__(self, done: int, reader: int, writer: int) -> int:
        what = json.dumps([list(self.parts), self.only, self.count, self.device, done])
        files = [(os.POSIX_SPAWN_DUP2, writer, WRITER), (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
        return os.posix_spawn(sys.executable, [sys.executable, __file__, what], os.environ, file_actions=files)


if __name__ == "__main__":
    parts_, only_, count_, device_, done_ = json.loads(sys.argv[1])
    judge_some(lambda: cases_of(parts_, only_, count_, device_), done_, WRITER, judge, BATCH)

"""How long the threads of this process wait for a processor while others compute: Linux tells it of each thread."""

import os
from contextlib import suppress
from pathlib import Path

TASKS = Path("/proc/self/task")


class ProcessorWait:
    """A context manager. `share` is what part of the time that threads of this process could run, within, they had no processor: 0 where
    they wait for each other alone, near 1 where all processors are taken. None where the system does not tell.
    """

    def __init__(self) -> None:
        self.share: float | None = None

    def __enter__(self) -> "ProcessorWait":
        self.before = _times()
        return self

    def __exit__(self, *_: object) -> None:
        after = _times()
        pairs = [(after[thread], self.before.get(thread, (0, 0))) for thread in after]
        ran, waited = (sum(now[k] - then[k] for now, then in pairs) for k in (0, 1))
        if ran > 0:
            self.share = waited / (ran + waited)


def _times() -> dict[str, tuple[int, int]]:
    """Nanoseconds that each thread ran, and that it waited for a processor; no thread where the system does not tell."""
    found = {}
    with suppress(OSError):
        for thread in os.listdir(TASKS):
            with suppress(OSError, ValueError):
                ran, waited, _ = (TASKS / thread / "schedstat").read_text().split()
                found[thread] = int(ran), int(waited)
    return found

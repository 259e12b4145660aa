"""Shows the progress of measuring: a bar on a terminal, else one line at the end; nothing within the first second."""

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import Progress as Bar

PATIENCE = 1.0  # seconds


class Progress:
    """with Progress(20) as progress: progress.finished(3)"""

    def __init__(self, total: int):
        self.total, self.count = total, 0
        self.start = time.perf_counter()
        self.bar: Bar | None = None

    def __enter__(self) -> "Progress":
        return self

    def finished(self, count: int) -> None:
        """So many more kernels are done."""
        self.count += count
        if self.bar is None and time.perf_counter() - self.start > PATIENCE and sys.stderr.isatty():
            self.bar = Bar(console=Console(stderr=True), transient=True)
            self.bar.add_task("mlirc measures kernels", total=self.total)
            self.bar.start()
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=self.count)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()
        seconds = time.perf_counter() - self.start
        if seconds > PATIENCE and kind is None:
            print(f"mlirc measured {self.count} of {self.total} kernels in {seconds:.1f} s", file=sys.stderr)

"""How long each step of a graph took, for its report."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from mlirc.frontend.graph.observer import Observer
from mlirc.frontend.statistics import GraphReport


class Timing(Observer):
    """Notes the seconds of each step. Another thread links; of `link` the time is noted that the first call waits for it."""

    def __init__(self, report: GraphReport):
        self.report = report

    def on_step(self, step: str, made: Any, seconds: float) -> None:
        if step != "link":
            self.report.seconds[step] = seconds


@contextmanager
def timed(report: GraphReport, what: str) -> Iterator[None]:
    """Notes how long what is done within took, where it fails too."""
    start = perf_counter()
    try:
        yield
    finally:
        report.seconds[what] = perf_counter() - start

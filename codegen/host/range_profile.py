"""Times the ranges of a host program's calls, and shows them in torch.profiler's traces and, where there is a GPU, in NVTX."""

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import torch

from mlirc.codegen.host.parts import HostRange

BEGIN, END, CLOCK = "profile_begin", "profile_end", "profile_clock"  # links of host programs (ranges.py)
PREFIX = "mlirc: "  # of the names in traces
UNKNOWN = -1  # work at sizes that no argument and no call before it says


class RangeProfile:
    """The times of one program's ranges. Several threads may call the program at once: each has its own open ranges, and adds times under the GIL.

    On a GPU a range lasts from one event on the stream of its GPU to another, whichever GPU is current. The end of the call waits for them.
    """

    def __init__(self, ranges: list[HostRange], on_gpu: bool):
        self.ranges, self.on_gpu = ranges, on_gpu
        self._thread = threading.local()
        self._begin = ctypes.CFUNCTYPE(None, ctypes.c_int64)(self._begun)
        clock = ctypes.POINTER(ctypes.c_int64)  # seconds and nanoseconds
        self._end = ctypes.CFUNCTYPE(None, ctypes.c_int64, clock, clock, *3 * [ctypes.c_int64])(self._ended)

    def functions(self) -> dict[str, int | None]:
        """The addresses of the functions that mark a range's begin and end, by the names that host programs link."""
        clock = ctypes.CDLL(None).clock_gettime
        found = {BEGIN: self._begin, END: self._end, CLOCK: clock}
        return {name: ctypes.cast(function, ctypes.c_void_p).value for name, function in found.items()}

    def around(self, native: Callable[[list[Any]], list[Any]]) -> Callable[[list[Any]], list[Any]]:
        """The native function, wrapped so that its open ranges are closed where an op fails."""

        def run(inputs: list[Any]) -> list[Any]:
            outer = tuple(getattr(self._thread, name, None) for name in ("open", "timed", "taken", "work"))
            self._thread.open, self._thread.timed, self._thread.taken, self._thread.work = [], [], {}, {}
            try:
                return native(inputs)
            finally:
                while self._thread.open:
                    self._close()
                self._read_events()
                for number, taken in self._thread.taken.items():
                    self.ranges[number].seconds.append(sum(taken))
                    self.ranges[number].executions = len(taken)
                    work = zip(*self._thread.work[number], strict=True)
                    self.ranges[number].work = [None if UNKNOWN in steps else sum(steps) for steps in work]
                self._thread.open, self._thread.timed, self._thread.taken, self._thread.work = outer

        return run

    def _begun(self, number: int) -> None:
        name = PREFIX + self.ranges[number].label
        shown = torch.profiler.record_function(name)
        shown.__enter__()
        event = None
        if self.on_gpu:
            torch.cuda.nvtx.range_push(name)
            event = self._event(number)
        self._thread.open.append((shown, event))

    def _ended(self, number: int, started: Any, ended: Any, *work: int) -> None:
        self._thread.work.setdefault(number, []).append(work)
        if self.on_gpu:
            self._thread.timed.append((number, self._thread.open[-1][1], self._event(number)))
        else:
            self._took(number, ended[0] - started[0] + 1e-9 * (ended[1] - started[1]))
        self._close()

    def _event(self, number: int) -> torch.cuda.Event:
        with torch.cuda.device(self.ranges[number].gpu):
            event = torch.cuda.Event(enable_timing=True)
            event.record()
        return event

    def _close(self) -> None:
        shown, _ = self._thread.open.pop()
        shown.__exit__(None, None, None)
        if self.on_gpu:
            torch.cuda.nvtx.range_pop()

    def _read_events(self) -> None:
        for number, started, done in self._thread.timed:
            done.synchronize()
            self._took(number, 1e-3 * started.elapsed_time(done))

    def _took(self, number: int, seconds: float) -> None:
        """Notes an execution: one in a loop has several in a call."""
        self._thread.taken.setdefault(number, []).append(seconds)

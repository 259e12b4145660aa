"""Futures of compiled graphs: background threads link them while AOTAutograd and Dynamo continue."""

from collections.abc import Callable

from mlirc.codegen.process import background
from mlirc.frontend.cache.compiled import Compiled
from mlirc.frontend.graph.observer import Watch


class Pending:
    """A future of what `work` returns; a background thread runs it. An exception of `work` is raised by `result`, as failure(error)."""

    def __init__(self, work: Callable[[], Compiled], failure: Callable[[Exception], Exception], watched: Watch):
        self.watched = watched
        self._made = background.start(work)
        self._failure = failure

    def result(self) -> Compiled:
        """Waits for the compiled graph. Any thread may call this, any number of times. Raises CompilationError."""
        try:
            return self._made.result()
        except Exception as error:
            raise self._failure(error) from error


class Behind(Pending):
    """The future of a graph that other code runs meanwhile (frontend/budget). The budget sets `made` when the machine code exists."""

    made: Pending

    def __init__(self) -> None:
        """Starts no thread, unlike Pending: the budget's job compiles."""

    @property
    def watched(self) -> Watch:  # type: ignore[override]
        return self.made.watched

    def result(self) -> Compiled:
        return self.made.result()

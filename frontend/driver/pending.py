"""A graph whose machine code other threads are making while AOTAutograd and Dynamo go on."""

from collections.abc import Callable

from mlirc.codegen.process import background
from mlirc.frontend.cache.compiled import Compiled
from mlirc.frontend.graph.observer import Watch


class Pending:
    """The result of `work`, which a thread of its own does. Its exception becomes failure(error), in the thread that asks for the result."""

    def __init__(self, work: Callable[[], Compiled], failure: Callable[[Exception], Exception], watched: Watch):
        self.watched = watched
        self._made = background.start(work)
        self._failure = failure

    def result(self) -> Compiled:
        """Waits for it. Any thread may call this, any number of times. Raises CompilationError."""
        try:
            return self._made.result()
        except Exception as error:
            raise self._failure(error) from error


class Behind(Pending):
    """A graph that is compiled while other code runs it. `made` is set once its machine code is there."""

    made: Pending

    def __init__(self) -> None:
        """Begins nothing."""

    @property
    def watched(self) -> Watch:  # type: ignore[override]
        return self.made.watched

    def result(self) -> Compiled:
        return self.made.result()

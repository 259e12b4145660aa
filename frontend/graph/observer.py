"""Observers: objects whose methods are called at each step of compiling a graph. driver/observers.py says which there are."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, TypeVar

T = TypeVar("T")
Native = Callable[[list], list]
"""A graph's program: takes what @graph takes, in a list, and gives what it gives."""


class Observer:
    """Base of observers. It keeps no object of MLIR's, because the last step, `link`, runs on another thread.

    step    "import", a stage of passes ("simplify", "fuse", "plan", "lower"), "emit" or "link"
    given   the step's arguments; made: its result (steps.py)
    """

    def around(self, step: str, *given: Any) -> AbstractContextManager[Any]:
        """A context manager around the step and all observers' `on_step`."""
        return nullcontext()

    def on_step(self, step: str, made: Any, seconds: float) -> None:
        """Called after the step, `seconds` after its beginning, in the order in which observers are attached."""

    def native(self, native: Native, compiled: Any, written: Sequence[int], constants: Sequence[Any]) -> Native:
        """The callable to be called in place of the program `native`. written: numbers of the placeholders that the graph writes to."""
        return native


class Watch:
    """Runs steps within their observers."""

    def __init__(self, observers: Sequence[Observer]):
        self.observers = observers

    def step(self, name: str, work: Callable[..., T], *given: Any) -> T:
        """work(*given)."""
        with ExitStack() as within:
            for observer in self.observers:
                within.enter_context(observer.around(name, *given))
            start = time.perf_counter()
            made = work(*given)
            for observer in self.observers:
                observer.on_step(name, made, time.perf_counter() - start)
        return made

    def native(self, native: Native, compiled: Any, written: Sequence[int], constants: Sequence[Any]) -> Native:
        """What is called in place of the program."""
        for observer in self.observers:
            native = observer.native(native, compiled, written, constants)
        return native

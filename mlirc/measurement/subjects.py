"""What is measured: something that each side can compile, call again and again, and be held against float64."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from mlirc.measurement.error import CallResults
from mlirc.measurement.facts import CompiledFacts, facts_of
from mlirc.measurement.sides import Side


@dataclass(frozen=True)
class CompiledSubject:
    """A subject under one side: a call to be timed, what one call gives, and what compiling said."""

    step: Callable[[], Any]
    results: CallResults
    facts: CompiledFacts


class Subject(Protocol):
    """A model, a call of a script, or a captured graph."""

    name: str

    def compiled(self, side: Side) -> CompiledSubject:
        """Compiled and called at least once. Raises what compiling or the call raises."""
        ...

    def exact(self) -> CallResults | None:
        """What a call gives in float64; None where that has no meaning."""
        ...

    def finish(self) -> Callable[[], None] | None:
        """What waits for a GPU; None on a CPU."""
        ...


@dataclass
class FunctionSubject:
    """A function that torch.compile takes.

    function   it, uncompiled
    step       makes of it, compiled or not, the call that is timed: with its backward in training
    results    what one call of it gives
    reference  what it gives in float64
    arguments  of torch.compile, beside the backend
    """

    name: str
    function: Callable
    step: Callable[[Callable], Callable[[], Any]]
    results: Callable[[Callable], CallResults]
    reference: Callable[[], CallResults | None]
    arguments: dict[str, Any] = field(default_factory=dict)
    on_gpu: bool = False

    def compiled(self, side: Side) -> CompiledSubject:
        from mlirc.frontend import statistics

        first = len(statistics.graphs)
        call = side.compiled(self.function, **self.arguments)
        step = self.step(call)
        started = time.perf_counter()
        step()
        first_call = time.perf_counter() - started
        facts = facts_of([report for report in statistics.graphs[first:] if report.counts()], first_call)
        return CompiledSubject(step, self.results(call), facts)

    def exact(self) -> CallResults | None:
        return self.reference()

    def finish(self) -> Callable[[], None] | None:
        from mlirc.execution.modules import waiter

        return waiter() if self.on_gpu else None

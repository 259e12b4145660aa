"""Runs a graph by quick code (ATen, quick_code.py) until a background job has compiled its best code.

Each call runs one or the other as a whole. A forward and its backward graph are replaced independently: both kinds of code save
the tensors that AOTAutograd asks for, so a backward pass cannot tell which code its forward pass ran.
"""

import copy
import dataclasses
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from mlirc.codegen.process.limits import with_room
from mlirc.frontend.budget import pace
from mlirc.frontend.budget.jobs import Abandoned, Job
from mlirc.frontend.budget.quick_code import quick_code
from mlirc.frontend.fallback import in_eager
from mlirc.frontend.graph.aten_graph import AtenGraph, Run
from mlirc.frontend.torch_compat.dynamo.tracing_context import TracingContext, tracing

LEAST_FOR_A_NODE = 1e-3
"""The least seconds that compiling takes per node. Where they exceed the budget, the first call does not wait."""
OF_THE_PROCESS = ("quick", "quick_calls", "tracing", "fallback", "cuda_graph", "eager_calls")
"""Fields of a GraphReport that calls update while the graph is being compiled; the best code's report does not replace them."""

Make = Callable[[AtenGraph, Callable[[str], AbstractContextManager]], None]
"""Compiles a graph. The second argument gives, for a step's name, a context manager in which that step runs."""


def quick_run(graph: AtenGraph, make: Make, improved: Run) -> Run:
    """A callable for the graph: quick code until `make` has ended, then `improved`. Raises what `quick_code` raises."""
    improvement = Improvement(graph, make, improved)

    def call(args: list) -> list:
        best = improvement.best
        return improvement.begin(args) if best is None else best(args)

    call._boxed_call = True  # type: ignore[attr-defined]
    improvement.called = weakref.ref(call)
    return call


class Improvement:
    """The background compilation of a graph that runs quick code meanwhile.

    quick     the quick code; None once `best` is set
    best      what calls run once compilation has ended, or failed; None before
    improved  the best code, which works once `make` has ended
    in_time   whether the budget may suffice, so that the first call waits for it
    called    a weak reference to what AOTAutograd calls: the job is dropped with it
    """

    def __init__(self, graph: AtenGraph, make: Make, improved: Run):
        self.graph: AtenGraph | None = graph
        self.report = graph.report
        self.report.quick = "not begun"
        self.seconds = 0.0 if graph.options.compile_seconds is None else graph.options.compile_seconds
        nodes = len(graph.gm.graph.nodes)
        self.in_time = nodes * LEAST_FOR_A_NODE < self.seconds
        self.quick: Run | None = quick_code(graph)
        self.best: Run | None = None
        self.called: Callable[[], object] = lambda: self
        self.improved: Run | None = improved
        self.make: Make | None = make
        self.context, self.grad = TracingContext.try_get(), torch.is_grad_enabled()
        self.job = Job(self.improve, lambda: self.called() is not None)

    def begin(self, args: list) -> list:
        """A call before the best code exists: the first one waits for the budget, others run quick code."""
        if self.in_time and not self.job.begun:
            self.job.submit()
            self.job.wait(self.seconds)
        quick = self.quick
        if self.best is not None or quick is None:
            return self.best(args)  # type: ignore[misc]
        self.report.quick_calls += 1
        with pace.calling():
            results = quick(args)
        self.job.submit()
        return results

    def improve(self) -> None:
        """Compiles the best code; a background thread runs this."""
        graph = self.graph
        if graph is None:
            return
        try:
            with pace.giving_way():
                options = dataclasses.replace(graph.options, progress=False)  # no progress line for background work
                report = copy.deepcopy(graph.report)
                inner = dataclasses.replace(graph, options=options, report=report, after_node=pace.give_way)
                with_room(self.compile, inner)
        except Abandoned:
            raise
        except Exception as error:
            self.fail(graph, error)
        else:
            made = {name: x for name, x in vars(inner.report).items() if name not in OF_THE_PROCESS}
            vars(self.report).update(made)
            self.swap(self.improved)

    def compile(self, graph: AtenGraph) -> None:
        def around(name: str) -> AbstractContextManager:
            self.report.quick = name
            self.job.between_steps()
            return pace.alone() if name == "import" else nullcontext()

        within: AbstractContextManager = nullcontext() if self.context is None else tracing(self.context)
        assert self.make is not None
        with within, torch.set_grad_enabled(self.grad):
            self.make(graph, around)

    def fail(self, graph: AtenGraph, error: Exception) -> None:
        """Keeps the quick code, and reports the fallback; where fallbacks are errors, later calls raise it."""
        try:
            in_eager.at_a_call(graph)(error)
        except Exception as raised:
            self.swap(raising(raised))
        else:
            self.swap(self.quick)

    def swap(self, run: Run | None) -> None:
        """From now on calls run `run`. Drops what was needed to compile, and the quick code, once its last call returns."""
        self.best, self.report.quick = run, ""
        self.quick = self.improved = self.graph = self.make = self.context = None


def raising(error: Exception) -> Run:
    def run(args: list) -> list:
        raise error

    return run

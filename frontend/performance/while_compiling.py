"""Performance measures around compiling, as an observer."""

from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from mlirc.codegen.llvm import background
from mlirc.codegen.runtime import compiler_pages
from mlirc.frontend.cache import frozen_parameters
from mlirc.frontend.driver.aten_graph import AtenGraph
from mlirc.frontend.driver.observer import Observer
from mlirc.frontend.fallback.fallback import optional


class WhileCompiling(Observer):
    """Around lower: LLVM works on kernels while others are lowered (a dump has them all in its module, so not there).
    After emit: the native code that tells whether parameters changed is made. After link: pages of the compilers that nobody
    wrote to leave the resident set."""

    def __init__(self, graph: AtenGraph):
        self.overlaps = graph.options.dump is None
        self.states: Future[None] | None = None

    def around(self, step: str, *given: Any) -> AbstractContextManager[Any]:
        lowers = step == "lower" and given[0].graph.stages[step].endswith("lower-kernels")
        if lowers and self.overlaps:
            given[0].given["lower-kernels"] = {"listener": given[0].kernels}
        return nullcontext()

    def on_step(self, step: str, made: Any, seconds: float) -> None:
        if step == "emit" and "prepare" in made.programs:
            self.states = optional(background.start, frozen_parameters.make_ready)
        elif step == "link":
            if self.states is not None:
                optional(self.states.result)
            optional(compiler_pages.give_back)

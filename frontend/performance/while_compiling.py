"""Performance measures around compiling, as an observer.

overlap_llvm       LLVM works on kernels while others are lowered: BERT's training step waits for 0.11 s of it, not 0.46
make_ready_early   the native code that tells whether parameters changed is made before pages are given back: 46 MB and 27 ms
                   in the first process of an installation, 7 MB and 2 ms in others
give_pages_back    what the compilers touched of their libraries leaves the resident set: 160 MB, for 20 ms of a thread
"""

from concurrent.futures import Future
from typing import Any

from mlirc.codegen.process import background
from mlirc.frontend.cache import frozen_parameters
from mlirc.frontend.fallback.fallback import optional
from mlirc.frontend.graph.aten_graph import AtenGraph
from mlirc.frontend.graph.observer import Observer
from mlirc.frontend.performance import compiler_pages
from mlirc.frontend.report.logs import shown


class WhileCompiling(Observer):
    """Starts these measures while a graph is compiled. One that fails is a line of the log."""

    def __init__(self, graph: AtenGraph):
        # a pass behind it needs the kernels, as dumps and logs do
        last = graph.stages["lower"].endswith("lower-kernels")
        self.overlaps = last and graph.options.dump is None and not shown()
        self.made: Future[None] | None = None

    def on_step(self, step: str, made: Any, seconds: float) -> None:
        if step == "import" and self.overlaps:
            self.overlap_llvm(made)
        elif step == "emit" and "prepare" in made.programs:
            self.make_ready_early()
        elif step == "link":
            self.give_pages_back()

    def overlap_llvm(self, lowering: Any) -> None:
        lowering.given["lower-kernels"] = {"listener": lowering.kernels}

    def make_ready_early(self) -> None:
        self.made = optional(background.start, frozen_parameters.make_ready)

    def give_pages_back(self) -> None:
        if self.made is not None:
            optional(self.made.result)
        optional(compiler_pages.give_back)

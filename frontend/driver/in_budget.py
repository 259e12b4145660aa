"""A graph with a budget for compiling: what the disk cache does not have is compiled in the background, and quick code runs until then."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from mlirc.frontend.cache.graph_cache import DiskCache
from mlirc.frontend.driver.pending import Behind, Pending
from mlirc.frontend.driver.run import Wrap, run_of
from mlirc.frontend.graph.aten_graph import AtenGraph, Run

Around = Callable[[str], AbstractContextManager]
"""Gives a context manager for the name of a step, which is entered without a lock and before the step."""


def in_budget(
    graph: AtenGraph,
    cache: DiskCache,
    compile_anew: Callable[[AtenGraph, DiskCache, Around], Pending],
    recorded: Wrap | None,
) -> Run:
    """What runs the graph, of which compile_anew makes the best code."""
    from mlirc.frontend.budget.quick_run import quick_run

    behind = Behind()

    def compile_behind(graph: AtenGraph, around: Around) -> None:
        """Goes all the way and waits for the machine code. Nobody else reads this graph's report meanwhile."""
        cache.graph = graph
        made = compile_anew(graph, cache, around)
        with around("link"):
            made.result()
        behind.made = made

    # the run is made now, to hear of operators that are overridden from now on
    return quick_run(graph, compile_behind, run_of(graph, behind, recorded))

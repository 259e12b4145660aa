"""Attaches the observers of a graph that is compiled; nothing else does. driver.py imports this file then, and not for a graph from the cache."""

from mlirc.frontend.budget.pace import GivesWay
from mlirc.frontend.cache.graph_cache import DiskCache
from mlirc.frontend.driver.timing import Timing
from mlirc.frontend.driver.verification import Verification
from mlirc.frontend.graph.aten_graph import AtenGraph
from mlirc.frontend.graph.observer import Observer, Watch
from mlirc.frontend.options import TUNED_MODES
from mlirc.frontend.performance.while_compiling import WhileCompiling
from mlirc.frontend.report import progress
from mlirc.frontend.report.logs import Logs, shown
from mlirc.frontend.report.report import Report
from mlirc.frontend.report.step_errors import StepErrors


def watch(graph: AtenGraph, cache: DiskCache) -> Watch:
    """Attaches what hears of the steps of this graph, in the order in which they hear of one."""
    observers: list[Observer] = [
        StepErrors(graph),
        Verification(graph),
        Timing(graph.report),  # counts verification, and not what follows
    ]
    if progress.terminal(graph.options) is not None:
        observers.insert(0, progress.ShownSteps(graph.kind, graph.options))
    if graph.options.dump is not None:
        from mlirc.frontend.report.dump import Dump

        observers.append(Dump(graph.options.dump, graph))
    if shown():
        observers.append(Logs(graph))
    observers += [Report(graph.report), cache, WhileCompiling(graph)]
    if graph.options.compile_seconds is not None:
        observers.append(GivesWay())  # behind WhileCompiling, whose listener it calls
    if graph.options.mode in TUNED_MODES:
        from mlirc.frontend.driver.tuning import Tuning

        observers.append(Tuning(graph, cache.folder))  # last: it replaces kernels, where a dump has the cost model's
    return Watch(observers)

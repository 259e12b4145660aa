"""The last step, `run`: a compiled graph as AOTAutograd calls it, whether it was compiled here or loaded from the disk cache."""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from mlirc.codegen.cache.folder import CacheFolder
from mlirc.codegen.process.limits import with_room
from mlirc.frontend import statistics
from mlirc.frontend.cache.compiled import Compiled
from mlirc.frontend.cache.graph_cache import Place, load
from mlirc.frontend.driver.boxed_call import wrap
from mlirc.frontend.driver.pending import Pending
from mlirc.frontend.driver.timing import timed
from mlirc.frontend.fallback import fallback, in_eager
from mlirc.frontend.fallback.first_run import Effects, Instead, effects_of, first_run
from mlirc.frontend.graph.aten_graph import AtenGraph, Run
from mlirc.frontend.importer.bodies import constants_of
from mlirc.frontend.options import CUDA_GRAPH_MODES
from mlirc.frontend.report.progress import compiling
from mlirc.frontend.torch_compat.storage_use import storage_use

Wrap = Callable[[Run, Compiled], Run]


def run_of(graph: AtenGraph, compiled: Compiled | Pending, recorded: Wrap | None) -> Run:
    """`recorded` makes of a run one that records CUDA graphs."""

    def ready(found: Compiled, later: Instead | None) -> tuple[Run, Effects, Instead | None]:
        graph.report.refused = found.program.refused
        graph.report.profile = found.program.host.ranges
        effects, held = effects_of(graph.gm, graph.kind, found.program), constants_of(graph.gm)
        native = found.program.native
        if isinstance(compiled, Pending):
            native = compiled.watched.native(native, found, effects.written, held)
        run = wrap(found, arguments, held, native)
        if recorded is not None and all(kind != "zeros" for kind, _ in found.outputs):
            run = recorded(run, found)
        return run, effects, later

    def loaded() -> tuple[Run, Effects, Instead | None]:
        later = fallback.optional(in_eager.later, graph)  # while threads make the code
        if not isinstance(compiled, Pending):
            return ready(compiled, later)
        with timed(graph.report, "wait"), compiling(f"{graph.kind}: machine code", graph.options):
            return ready(compiled.result(), later)

    arguments = graph.arguments
    return first_run(loaded, in_eager.at_a_call(graph), graph.operators)


def load_graph(
    folder: CacheFolder,
    key: str,
    kind: str,
    arguments: int,
    freeze: bool,
    effects: Effects,
    instead: Instead,
    operators: Iterable[str],
) -> Run | None:
    """What runs a graph on a CPU that has this key in the disk cache, if it is there.

    arguments  how many placeholders it has
    freeze     the option of that name
    effects    what running it changes
    instead    what runs in its place if its first run fails, or an operator is overridden
    operators  of ATen that it was made of
    """
    start = time.perf_counter()
    report = statistics.GraphReport(kind)
    compiled = with_room(load, Place(folder, key), report, freeze)
    if compiled is None:
        return None
    report.seconds["cache"] = time.perf_counter() - start
    statistics.record(report)

    def failed(error: Exception) -> Run:
        report.fallback = fallback.tell(kind, error)
        statistics.record_fallback(report)
        return instead(error)

    run = first_run(
        lambda: (wrap(compiled, arguments, [], compiled.program.native), effects, failed), failed, operators
    )
    run.report = report  # type: ignore[attr-defined]
    return run


def recording(graph: AtenGraph) -> Wrap | None:
    """What records CUDA graphs of this graph's run, in the modes that do. Asked before passes rewrite the graph."""
    if not graph.on_gpu or graph.options.mode not in CUDA_GRAPH_MODES or storage_use() is None:
        return None
    if graph.options.profile:
        graph.report.cuda_graph = "not recorded: the option 'profile' times each kernel"
        return None
    from mlirc.frontend.cuda_graphs import facts, recordings

    found = facts.read_facts(graph.gm, graph.kind)

    def recorded(run: Run, compiled: Compiled) -> Run:
        eager = next((name for name in graph.report.aten if name.startswith("higher_order.")), "")
        why = f"functions of {eager} run in eager" if eager and not found.why else found.why
        failures = compiled.program.failures
        return recordings.recorded(run, replace(found, why=why), graph.kind, graph.report, failures)

    return recorded

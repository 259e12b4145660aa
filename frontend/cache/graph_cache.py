"""The entry of a compiled graph in the disk cache: its key, or why it has none; storing and loading.

The key is made of all that decides what comes out: the graph with the user's source lines (graph_text.py), the passes,
the environment (codegen/cache/environment.py), and other people's passes and ops by their files' content. Source lines are
part of it: they are in error messages and reports, and a wrong line is worse than compiling again, which finds its
kernels by themselves.
"""

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from torch.fx import GraphModule

from mlirc.codegen.aten.overridden_kernels import overridden_of
from mlirc.codegen.cache import environment
from mlirc.codegen.cache.entry import UNREADABLE, CacheEntry
from mlirc.codegen.cache.environment import ChangedSources
from mlirc.codegen.cache.folder import OFF, VARIABLE, CacheFolder, folder, is_off
from mlirc.codegen.process.signal_handlers import raise_of_handler
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.frontend.cache.compiled import Compiled, from_data, to_data
from mlirc.frontend.cache.foreign_sources import NoSource, foreign_sources
from mlirc.frontend.cache.graph_text import graph_text
from mlirc.frontend.errors import NoText
from mlirc.frontend.graph.aten_graph import AtenGraph
from mlirc.frontend.graph.observer import Observer
from mlirc.frontend.importer.bodies import all_nodes
from mlirc.frontend.options import TUNED_MODES, Options
from mlirc.frontend.report.logs import shown
from mlirc.frontend.statistics import GraphReport, KernelReport
from mlirc.lowering.pipeline.ledger_entry import LedgerEntry

KIND = "graph"
NOT_KEPT = (
    "kind",
    "seconds",
    "fallback",
    "cache",
    "key",
    "tracing",
    "cuda_graph",
    "refused",
    "eager_calls",
    "quick",
    "quick_calls",
)  # of a report: they are about the process that compiles


@dataclass(frozen=True)
class Place:
    """`folder` is where kernels go, or None; `key` the graph's own, or "" with a reason why it has none."""

    folder: CacheFolder | None
    key: str
    why: str = ""


class DiskCache(Observer):
    """Looks a graph up before it is compiled, and keeps what it became once its code is there."""

    def __init__(self, graph: AtenGraph):
        self.graph = graph
        self.place = Place(None, "")
        self._objects: list[str] = []

    @property
    def folder(self) -> CacheFolder | None:
        """The cache folder for kernels."""
        return self.place.folder

    def find(self) -> Compiled | None:
        """What is at the graph's place, with its report, if that can be loaded. Notes in the report's `cache` what came of it,
        and in its `seconds` how long it took."""
        start = time.perf_counter()
        graph = self.graph
        self.place = place_of(graph.gm, graph.parameters, graph.kind, graph.stages, graph.options)
        found = load(self.place, graph.report, graph.options.freeze)
        if self.place.folder is not None:
            graph.report.seconds["cache"] = time.perf_counter() - start
        return found

    def on_step(self, step: str, made: Any, seconds: float) -> None:
        if step == "emit":
            self._objects = made.objects
        elif step == "link":
            keep(self.place, self.graph.report, made, self.without_text(made))

    def without_text(self, compiled: Compiled) -> list[str]:
        """What the compiled graph needs that has no text, so that it cannot be kept."""
        return [*self._objects, *(f"{x!r}" for kind, x in compiled.outputs if kind == "value" and not _is_plain(x))]


def load(place: Place, report: GraphReport, freeze: bool) -> Compiled | None:
    """What is at a graph's place, with its report, if that can be loaded; `freeze` is the user's option."""
    found = _load(place, report, freeze)
    report.cache = "hit" if found else f"off: {place.why}" if place.why else "miss"
    report.key = place.key
    return found


def keep(place: Place, report: GraphReport, compiled: Compiled, odd: Sequence[str]) -> None:
    """Writes the compiled graph to its place, if it has one. `odd` is what it needs that has no text."""
    if place.folder is None or not place.key:
        return
    if odd:
        report.cache, report.key = f"off: the graph needs an object that has no text: {odd[0][:60]}", ""
        return
    start = time.perf_counter()
    blobs: list[bytes] = []
    data = to_data(compiled, blobs)
    data["report"] = {name: _plain(value) for name, value in vars(report).items() if name not in NOT_KEPT}
    place.folder.put(KIND, [place.key], CacheEntry(data, blobs))
    report.seconds["cache"] += time.perf_counter() - start


def place_of(
    gm: GraphModule, parameters: Sequence[int], kind: str, stages: Mapping[str, str], options: Options
) -> Place:
    """The place of a graph in the disk cache, and whether it is there; or why it has none."""
    if not options.cache:
        return Place(None, "", "the option 'cache' is False")
    found = folder()
    if found is None:
        return Place(None, "", f"{VARIABLE} is {OFF!r}" if is_off() else "its folder was refused")
    try:
        foreign = foreign_sources(stages)
        environment.environment()
    except (ChangedSources, NoSource) as reason:
        return Place(None, "", str(reason))
    if options.profile:
        return Place(found, "", "the option 'profile' times each call")
    if options.candidates:
        return Place(found, "", "the option 'candidates' wants every pair that fusion looks at")
    if options.dump is not None:
        return Place(found, "", "the option 'dump' wants every stage")
    if shown():
        return Place(found, "", "TORCH_LOGS or TORCH_TRACE wants every stage")
    odd = overridden_of(node.target for node in all_nodes(gm))
    if odd:
        return Place(found, "", f"the graph has {odd}")
    try:
        text = graph_text(gm, parameters)
    except NoText as reason:
        return Place(found, "", f"the graph has {reason}")
    gpus = environment.gpu_models() if "cuda" in text else []
    tuned = [options.tune_seconds] if gpus and options.mode in TUNED_MODES else []
    plan = [] if options.fusion_plan is None else [options.fusion_plan.text]
    return Place(
        found, environment.key(KIND, kind, dict(stages), foreign, text, gpus, tuned, *options.in_code(), *plan)
    )


def _load(place: Place, report: GraphReport, freeze: bool) -> Compiled | None:
    if place.folder is None or not place.key:
        return None
    entry = place.folder.get(KIND, place.key)
    if entry is None:
        return None
    try:
        data = entry.data
        compiled = from_data(data, entry.blobs, freeze)
        _read_report(data["report"], report)
    except UNREADABLE as error:
        raise_of_handler(error)
        place.folder.forget(KIND, place.key, f"it cannot be loaded: {type(error).__name__}: {error}")
        return None
    return compiled


def _plain(value: Any) -> Any:
    """A field of a report, for json; dataclasses.asdict copies all that is below, which takes as long as the rest of `keep`."""
    return [vars(x) if dataclasses.is_dataclass(x) else x for x in value] if isinstance(value, list) else value


def _is_plain(x: Any) -> bool:
    """Whether json gives back what it was given."""
    return x is None or isinstance(x, (bool, int, str)) or (isinstance(x, float) and math.isfinite(x))


def _read_report(data: dict[str, Any], report: GraphReport) -> None:
    for name, value in data.items():
        setattr(report, name, value)
    report.kernels = [KernelReport(**kernel) for kernel in data["kernels"]]
    report.ledger = [LedgerEntry(**entry) for entry in data["ledger"]]
    for name in ("aten", "through_python"):
        setattr(report, name, {op: (calls, why) for op, (calls, why) in data[name].items()})

"""A compiled graph's place in the disk cache: its key, or why it has none; what is kept of it.

The key is made of all that decides what comes out: the imported module with the user's source lines, the passes, the
operators' schemas, the environment (codegen/environment.py), and other people's passes and ops by their files' content.
Source lines are part of it: they are in error messages and reports, and a wrong line is worse than compiling again,
which finds its kernels by themselves.
"""

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlirc.codegen import environment, stored_program
from mlirc.codegen.cache_entry import Entry
from mlirc.codegen.cache_folder import OFF, VARIABLE, CacheFolder, folder, is_off
from mlirc.codegen.environment import ChangedSources
from mlirc.codegen.program import Program
from mlirc.dialects import aten_arguments
from mlirc.dialects.bindings import ir
from mlirc.dialects.dialect import attribute_value
from mlirc.frontend.dump import describe
from mlirc.frontend.foreign_sources import NoSource, foreign_sources
from mlirc.frontend.importer import Imported
from mlirc.frontend.options import Options
from mlirc.frontend.prepared import Prepared
from mlirc.frontend.statistics import GraphReport, KernelReport
from mlirc.lowering.ledger import Entry as LedgerEntry

KIND = "graph"
NOT_KEPT = ("kind", "seconds", "fallback", "cache")  # of a report: they are about the process that compiles


@dataclass(frozen=True)
class Place:
    """`folder` is where kernels go, or None; `key` the graph's own, or "" with a reason why it has none."""

    folder: CacheFolder | None
    key: str
    why: str = ""


Found = tuple[Program, Prepared | None]


def find(
    imported: Imported, kind: str, stages: Mapping[str, str], options: Options, report: GraphReport
) -> tuple[Place, Found | None]:
    """The graph's place, and what is there, with its report, if that can be loaded. `stages` are the graph's passes.

    Needs an entered context. Notes in the report's `cache` what came of it, and in its `seconds` how long it took.
    """
    start = time.perf_counter()
    place = _place(imported, kind, stages, options)
    found = _load(place, report)
    report.cache = "hit" if found else f"off: {place.why}" if place.why else "miss"
    if place.folder is not None:
        report.seconds["cache"] = time.perf_counter() - start
    return place, found


def keep(place: Place, report: GraphReport, program: Program, prepared: Prepared | None) -> None:
    """Writes the compiled graph to its place, if it has one."""
    if place.folder is None or not place.key:
        return
    start = time.perf_counter()
    blobs: list[bytes] = []
    data: dict[str, Any] = {"graph": stored_program.to_data(program, blobs), "prepare": None, "parameters": []}
    if prepared is not None:
        assert isinstance(prepared.prepare, Program)
        data |= {"prepare": stored_program.to_data(prepared.prepare, blobs), "parameters": prepared.positions}
    kept = dataclasses.asdict(report)
    data["report"] = {name: value for name, value in kept.items() if name not in NOT_KEPT}
    place.folder.put(KIND, [place.key], Entry(data, blobs))
    report.seconds["cache"] += time.perf_counter() - start


def _place(imported: Imported, kind: str, stages: Mapping[str, str], options: Options) -> Place:
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
    if options.dump is not None:
        return Place(found, "", "the option 'dump' wants every stage")
    if imported.objects:
        what = describe(imported.objects[0])
        return Place(found, "", f"an ATen call takes an object that has no text: {what[:60]}")
    text = imported.module.operation.get_asm(enable_debug_info=True)
    return Place(found, environment.key(KIND, kind, dict(stages), foreign, _schemas(imported.module), text))


def _schemas(module: ir.Module) -> list[str]:
    """What the operators that the graph calls take and give: a library may change that under the same name."""
    (graph,) = module.body.operations
    calls = (
        op for op in graph.regions[0].blocks[0].operations if op.operation.name in ("mlircx.aten", "mlircx.aten_effect")
    )
    names = {attribute_value(op.attributes["op"]) for op in calls}
    return [str(getattr(aten_arguments.resolve(name), "_schema", "")) for name in sorted(names)]


def _load(place: Place, report: GraphReport) -> Found | None:
    if place.folder is None or not place.key:
        return None
    entry = place.folder.get(KIND, place.key)
    if entry is None:
        return None
    try:
        program = stored_program.from_data(entry.data["graph"], entry.blobs)
        prepared = None
        if entry.data["prepare"] is not None:
            prepare = stored_program.from_data(entry.data["prepare"], entry.blobs)
            prepared = Prepared(prepare, entry.data["parameters"])
    except (KeyError, RuntimeError, ValueError) as error:
        place.folder.forget(KIND, place.key, f"it cannot be loaded: {type(error).__name__}: {error}")
        return None
    _read_report(entry.data["report"], report)
    return program, prepared


def _read_report(data: dict[str, Any], report: GraphReport) -> None:
    for name, value in data.items():
        setattr(report, name, value)
    report.kernels = [KernelReport(**kernel) for kernel in data["kernels"]]
    report.ledger = [LedgerEntry(**entry) for entry in data["ledger"]]
    for name in ("aten", "through_python"):
        setattr(report, name, {op: (calls, why) for op, (calls, why) in data[name].items()})

"""What a page shows of a capture, as data for JSON. A part that cannot be read is left out, and a note says why."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mlirc.execution.captures import Captured, DumpedFrame, DumpedGraph
from mlirc.report import code_data, drawn_graph, memory_data, native_code, pass_changes
from mlirc.report.stage_modules import StageModules

SECONDS = 3.0  # that passes may take to be run again, and machine code to be made again, of all graphs
MOST_GUARDS = 1 << 20  # characters


def report_data(capture: Captured, profiles: Mapping[str, Any], seconds: float = SECONDS) -> dict[str, Any]:
    """`profiles` are rows of `mlirc profile --json` by the graph's name."""
    left = Budgets(Budget(seconds), Budget(seconds))
    graphs = [graph_data(graph, profiles.get(graph.name), left) for graph in capture.graphs]
    return {
        "folder": str(capture.folder),
        "run": dict(capture.run),
        "graphs": graphs,
        "frames": [frame_data(frame) for frame in capture.frames],
    }


class Budget:
    """Seconds of this process that are left for what can be left out; they count from `begin` to `end`."""

    def __init__(self, seconds: float):
        self.left, self.began = seconds, 0.0

    def begin(self) -> None:
        self.began = time.process_time()

    def end(self) -> None:
        self.left -= time.process_time() - self.began

    @property
    def spent(self) -> bool:
        return time.process_time() - self.began > self.left


@dataclass(frozen=True)
class Budgets:
    passes: Budget
    code: Budget


def graph_data(graph: DumpedGraph, profile: Any, left: Budgets) -> dict[str, Any]:
    record, notes = graph.record, [f"{name} is missing" for name in graph.missing]
    told = _mapping(record.get("report"))

    def optional(what: str, work: Callable[[], Any], other: Any) -> Any:
        try:
            return work()
        except Exception as error:
            notes.append(f"{what}: {' '.join(f'{type(error).__name__}: {error}'.split())[:400]}")
            return other

    kernels = [x for x in _list(told.get("kernels")) if isinstance(x, dict)]
    data: dict[str, Any] = {
        "number": graph.number,
        "name": graph.name,
        "kind": graph.kind,
        "dynamo": graph.dynamo,
        "target": record.get("target"),
        "fallback": told.get("fallback") or "",
        "failed": record.get("failed"),
        "options": _mapping(record.get("options")),
        "facts": {key: told.get(key) for key in ("read", "written", "flops", "arena", "buffers", "cache", "tracing")},
        "kernels": kernels,
        "calls": optional("calls", lambda: calls_of(told), []),
        "source": [],
        "ledger": optional("ledger", lambda: ledger_of(told), []),
        "seconds": [[k, v] for k, v in _mapping(told.get("seconds")).items() if isinstance(v, int | float)],
        "profile": profile or told.get("profile") or None,
        "aten": optional("aten", lambda: graph.aten.read_text(errors="replace") if graph.aten else "", ""),
    }
    stages = optional("stages", lambda: StageModules(graph), None)
    data["stages"] = [] if stages is None else [{"name": k, "text": v} for k, v in stages.texts.items()]
    data["candidates"] = optional("candidates", lambda: candidates_of(graph), [])
    if stages is not None:
        data["drawing"] = optional("graph", lambda: drawn_graph.drawn_graph(stages, generated(kernels)), None)
        data["memory"] = optional("memory", lambda: memory_data.memory_data(stages, graph.inputs), None)
        native, more = native_code.native_code(stages, left.code)
        notes += more
        data["code"] = optional("code", lambda: code_data.code_data(stages, native), [])
        found = optional(
            "passes", lambda: pass_changes.pass_changes(stages, _mapping(record.get("passes")), left.passes), None
        )
        data["passes"], more = found if found is not None else ([], [])
        notes += more
    nodes = (data.get("drawing") or {}).get("nodes", [])
    data["source"] = optional("source", lambda: source_of(_mapping(record.get("source")), kernels, nodes), [])
    data["notes"] = notes
    return data


def frame_data(frame: DumpedFrame) -> dict[str, Any]:
    record, guards = frame.record, ""
    try:
        guards = frame.guards.read_text(errors="replace")[:MOST_GUARDS] if frame.guards else ""
    except OSError as error:
        guards = str(error.strerror)
    kept = ("number", "frame", "compile_id", "recompiled", "ended_by", "fallback", "aten")
    return {key: record.get(key) for key in kept} | {"guards": guards}


def calls_of(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Calls of libraries and of ATen, with why."""
    library = [{"name": name, "count": count, "why": ""} for name, count in _mapping(told.get("library")).items()]
    aten = [{"name": name, "count": count, "why": why} for name, (count, why) in _mapping(told.get("aten")).items()]
    return library + aten


def generated(kernels: list[dict[str, Any]]) -> set[tuple[str, frozenset[str]]]:
    """What our kernels are called, with their lines: an attention is one op until it is lowered."""
    return {(str(kernel.get("name")), frozenset(map(str, _list(kernel.get("lines"))))) for kernel in kernels}


def source_of(
    lines: Mapping[str, Any], kernels: list[dict[str, Any]], nodes: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The user's lines by file, in order, each with the kernels, and the calls of libraries and of ATen, that it became."""
    became: dict[str, list[int]] = {}
    for k, kernel in enumerate(kernels):
        for line in _list(kernel.get("lines")):
            became.setdefault(str(line), []).append(k)
    calls: dict[str, dict[tuple[str, str], int]] = {}
    for node in nodes:
        if node["k"] in ("library", "aten"):
            for line in node["l"]:
                counts = calls.setdefault(line, {})
                counts[node["t"], node["k"]] = counts.get((node["t"], node["k"]), 0) + 1
    found = []
    for place in dict.fromkeys([*lines, *became, *calls]):
        file, _, number = place.rpartition(":")
        known = _mapping(lines.get(place))
        found.append(
            {
                "file": file or place,
                "line": int(number) if number.isdigit() else 0,
                "text": known.get("text", ""),
                "function": known.get("function", ""),
                "aten": [list(map(str, x)) for x in _list(known.get("aten"))],
                "kernels": became.get(place, []),
                "calls": [[name, kind, times] for (name, kind), times in calls.get(place, {}).items()],
            }
        )
    rest = [k for k, kernel in enumerate(kernels) if not _list(kernel.get("lines"))]
    others = dict[tuple[str, str], int]()
    for node in nodes:
        if node["k"] in ("library", "aten") and not node["l"]:
            others[node["t"], node["k"]] = others.get((node["t"], node["k"]), 0) + 1
    if rest or others:
        called = [[name, kind, times] for (name, kind), times in others.items()]
        found.append({"file": "", "line": 0, "text": "", "function": "", "aten": [], "kernels": rest, "calls": called})
    order = {file: k for k, file in enumerate(dict.fromkeys(x["file"] for x in found))}
    return sorted(found, key=lambda x: (order[x["file"]], x["line"]))


def ledger_of(told: Mapping[str, Any]) -> list[list[Any]]:
    """Rows: pass, action, subject, rule, whether it was taken, numbers, line."""
    return [
        [
            e["pass_name"],
            e["action"],
            e["subject"],
            e["rule"],
            bool(e["taken"]),
            e.get("numbers") or {},
            e.get("location", ""),
        ]
        for e in _list(told.get("ledger"))
    ]


def candidates_of(graph: DumpedGraph) -> list[dict[str, Any]]:
    """Records of pairs that fusion passes looked at (docs/debugging.md), where they were kept."""
    import json

    if graph.fusion is None:
        return []
    records = [json.loads(line) for line in graph.fusion.read_text().splitlines() if line.strip()]
    return [x for x in records if isinstance(x, dict) and x.get("record") == "candidate"]


def _mapping(x: Any) -> Mapping[str, Any]:
    return x if isinstance(x, Mapping) else {}


def _list(x: Any) -> list[Any]:
    return x if isinstance(x, list) else []

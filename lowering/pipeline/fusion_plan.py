"""A fusion plan: a file that says which pairs of kernels become one. Saved, edited, replayed. Imports no MLIR.

    {"format": 1, "graphs": [{"kind": "forward", "others": "decide", "pairs": [
      {"decision": "forbid", "pass": "fuse-elementwise", "action": "fuse", "first": ["add@model.py:4"], "second": ["gelu@model.py:5"]},
      ...]}]}

docs/debugging.md says what each field means.
"""

import json
import os
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.module.nearest import nearest
from mlirc.lowering.pipeline.fusion_log import Candidate, Members
from mlirc.lowering.pipeline.parser import PipelineError

FORMAT = 1
MOST = 1 << 26  # bytes of a file
DECISIONS = ("force", "forbid", "taken", "refused")
ACTIONS = ("fuse", "horizontal", "recompute")
KINDS = ("inference", "forward", "backward")
OTHERS = ("decide", "refuse")


class FusionPlanError(PipelineError):
    """A plan that cannot be read, that does not fit the graph, or that forces what cannot be: which entry, and why, in one line."""


@dataclass(frozen=True)
class PlanEntry:
    """One pair. `number` is its place in the file."""

    number: int
    decision: str
    pass_name: str
    action: str
    function: str
    first: Members
    second: Members

    @property
    def members(self) -> frozenset[str]:
        return frozenset(self.first + self.second)

    @property
    def computed(self) -> frozenset[str]:
        return without_stars(self.members)

    def __str__(self) -> str:
        return f"entry {self.number} ({self.decision} {' + '.join(self.first)} -> {' + '.join(self.second)})"[:300]


@dataclass(frozen=True)
class GraphPlan:
    """The pairs of one graph. `kind` is the graph's, or None for any.

    others   of "decide", passes decide about pairs that no entry forces or forbids; of "refuse", the pairs that are forced or
             were taken are merged, in order, and nothing else is
    """

    kind: str | None
    others: str
    entries: tuple[PlanEntry, ...]

    def forced(self, pass_name: str, function: str) -> list[PlanEntry]:
        decisions = ("force",) if self.others == "decide" else ("force", "taken")
        mine = [e for e in self.entries if (e.pass_name, e.function) == (pass_name, function)]
        return [e for e in mine if e.decision in decisions]

    def parts(self, forced: Collection[PlanEntry], pass_name: str, function: str) -> list[PlanEntry]:
        """The pairs that the saving run merged and that a later forced pair of the pass has as parts: without them its groups would not be there."""
        mine = [e for e in self.entries if (e.pass_name, e.function, e.decision) == (pass_name, function, "taken")]
        groups = [(e.number, without_stars(names)) for e in forced for names in (e.first, e.second)]
        return [e for e in mine if any(e.number < number and e.computed <= group for number, group in groups)]

    def missing(self, function: str, known: Collection[str]) -> list[tuple[PlanEntry, str]]:
        """Names that the function does not have, each with its entry."""
        entries = [e for e in self.entries if e.function == function]
        return [(e, name) for e in entries for name in sorted(e.computed) if name not in known]


@dataclass(frozen=True)
class FusionPlan:
    """A plan file: its name, and its content."""

    name: str
    text: str

    @cached_property
    def graphs(self) -> tuple[GraphPlan, ...]:
        """Raises FusionPlanError."""
        return parse_plan(self.text, self.name)

    def fitting(self, kind: str | None, function: str, known: Collection[str]) -> GraphPlan | None:
        """The plan of a graph whose function has kernels of these names; None where the file has none for its kind. Raises FusionPlanError
        that says which entry names what is not there."""
        mine = [g for g in self.graphs if kind is None or g.kind in (None, kind)]
        if not mine:
            return None
        found = min(mine, key=lambda g: len(g.missing(function, known)))
        if missing := found.missing(function, known):
            entry, name = missing[0]
            more = f", and {len(missing) - 1} more names are not there" if len(missing) > 1 else ""
            raise FusionPlanError(
                f"{self.name}: the plan does not fit: {entry}: @{function} has no kernel "
                f"'{name[:100]}'{nearest(name, known) or ';'} it has {len(known)}{more}"
            )
        return found

    def check_done(self, followed: Collection[GraphPlan], done: Collection[int]) -> None:
        """After all passes: `followed` are the graphs of this file that passes looked at, `done` the entries that they carried out. Raises
        FusionPlanError for what is forced and was no pass's to do."""
        left = [e for g in followed or self.graphs for e in g.entries if e.decision == "force" and e.number not in done]
        if left:
            which = f"'{left[0].pass_name}' looked at @{left[0].function}" if followed else "fuses"
            raise FusionPlanError(f"{self.name}: {left[0]}: no pass that ran {which}")


def without_stars(names: Collection[str]) -> frozenset[str]:
    """Kernels that are computed, as copies or not."""
    return frozenset(name.removesuffix("*") for name in names)


def read_plan(path: str | os.PathLike[str]) -> FusionPlan:
    """Raises FusionPlanError, whatever is in the file."""
    name = os.fspath(path)
    try:
        if not Path(name).is_file():
            os.stat(name)
            raise FusionPlanError(f"{name}: no regular file")
        if Path(name).stat().st_size > MOST:
            raise FusionPlanError(f"{name}: larger than {MOST} bytes")
        plan = FusionPlan(name, Path(name).read_text("utf-8"))
    except UnicodeDecodeError as error:
        raise FusionPlanError(f"{name}: byte {error.start} is not UTF-8") from error
    except (OSError, ValueError) as error:
        if isinstance(error, FusionPlanError):
            raise
        raise FusionPlanError(f"{name[:200]}: {getattr(error, 'strerror', None) or error}") from error
    _ = plan.graphs
    return plan


def parse_plan(text: str, name: str) -> tuple[GraphPlan, ...]:
    """Raises FusionPlanError."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FusionPlanError(f"{name}: no JSON: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        version = data.get("format") if isinstance(data, dict) else None
        raise FusionPlanError(
            f"{name}: a fusion plan of format {str(version)[:50]!r}; this mlirc reads format {FORMAT}"
        )
    graphs = data.get("graphs")
    if not isinstance(graphs, list) or not graphs:
        raise FusionPlanError(f"{name}: 'graphs' is no list of plans")
    entries = 0
    found = []
    for graph in graphs:
        found.append(_graph(graph, name, entries))
        entries += len(found[-1].entries)
    return tuple(found)


def _graph(data: Any, name: str, first: int) -> GraphPlan:
    if not isinstance(data, dict) or not isinstance(data.get("pairs"), list):
        raise FusionPlanError(f"{name}: a graph has no list 'pairs'")
    _check_fields(data, ("kind", "others", "pairs"), name, "a graph")
    kind, others = data.get("kind"), data.get("others", "decide")
    if kind is not None and kind not in KINDS:
        raise FusionPlanError(f"{name}: 'kind' is {str(kind)[:50]!r}; it can be null, {', '.join(KINDS)}")
    if others not in OTHERS:
        raise FusionPlanError(f"{name}: 'others' is {str(others)[:50]!r}; it can be {' or '.join(OTHERS)}")
    return GraphPlan(kind, others, tuple(_entry(x, name, first + k) for k, x in enumerate(data["pairs"])))


FIELDS = ("decision", "pass", "action", "function", "first", "second", "rule", "kind", "bytes_saved")


def _entry(data: Any, name: str, number: int) -> PlanEntry:
    where = f"{name}: entry {number}"
    if not isinstance(data, dict):
        raise FusionPlanError(f"{where} is no object")
    _check_fields(data, FIELDS, name, f"entry {number}")
    texts = {"decision": data.get("decision"), "pass": data.get("pass", ""), "action": data.get("action", "fuse")}
    texts["function"] = data.get("function", "graph")
    for field, value in texts.items():
        if not isinstance(value, str):
            raise FusionPlanError(f"{where}: '{field}' is no text")
    for field, known in (("decision", DECISIONS), ("action", ACTIONS)):
        if texts[field] not in known:
            close = nearest(texts[field], known) or ";"
            raise FusionPlanError(f"{where}: '{field}' is '{texts[field][:50]}'{close} it can be {', '.join(known)}")
    if not texts["pass"] and texts["decision"] != "forbid":
        raise FusionPlanError(f"{where}: 'pass' says which pass is to merge the pair; it is not there")
    groups = [_members(data.get(field), f"{where}: '{field}'") for field in ("first", "second")]
    if both := {name for name in set(groups[0]) & set(groups[1]) if not name.endswith("*")}:
        raise FusionPlanError(f"{where}: 'first' and 'second' both have '{min(both)[:100]}'")
    return PlanEntry(number, texts["decision"], texts["pass"], texts["action"], texts["function"], *groups)


def _members(value: Any, where: str) -> Members:
    if not isinstance(value, list) or not value or not all(isinstance(x, str) for x in value):
        raise FusionPlanError(f"{where} is no list of names of kernels")
    return tuple(value)


def _check_fields(data: Mapping[str, Any], known: Collection[str], name: str, what: str) -> None:
    for field in data:
        if field not in known:
            close = nearest(field, known) or ";"
            raise FusionPlanError(f"{name}: {what} has a field '{field[:50]}'{close} there are {', '.join(known)}")


def plan_text(candidates: Iterable[Candidate], kind: str | None) -> str:
    """A file that decides as these records say, a pair a line."""
    lines = []
    for c in candidates:
        line: dict[str, Any] = {"decision": "taken" if c.taken else "refused", "pass": c.pass_name, "action": c.action}
        if c.function != "graph":
            line["function"] = c.function
        line |= {"first": c.first.members, "second": c.second.members, "rule": c.rule}
        line |= {} if c.taken else {"kind": c.kind}
        lines.append(f"  {json.dumps(line | {'bytes_saved': c.bytes_saved})}")
    head = f'{{"format": {FORMAT}, "graphs": [{{"kind": {json.dumps(kind)}, "others": "decide", "pairs": ['
    return head + "\n" + ",\n".join(lines) + "\n]}]}\n"

"""Every pair of kernels that a fusion pass looked at, as data: one JSON line each (docs/debugging.md). Imports no MLIR."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, field
from typing import Any

from mlirc.dialects.lazy_dataclass import dataclass

FORMAT = 1
Members = tuple[str, ...]
Key = tuple[Any, ...]
"""Identifies a kernel from one pass to the next: its label, iteration spaces and source lines."""


@dataclass(frozen=True)
class Group:
    """A kernel, or a pair that was merged into one: its label, the kernels of to-kernels that it is made of (`members`), its ops, source
    lines, iteration spaces (`parallel`, `inner`), and the bytes that it reads and writes."""

    name: str
    members: Members
    ops: list[str]
    lines: list[str]
    parallel: str
    inner: str
    read: int
    written: int


@dataclass
class Candidate:
    """Two groups, and what a pass decided.

    action      "fuse": the first into the second, which reads it; "horizontal": two that read the same; "recompute": the second
                computes the first by itself
    kind        of a refusal: "legal" where they cannot be one kernel, by this rule or another, "cost" where it would not pay,
                "plan" or "rewrites" where the user said so; else ""
    limits      the numbers that the rule compared
    bytes_saved, recomputed, estimated_gain   bytes that are moved less, scalar ops more, nanoseconds (cost.py); None where
                they cannot be one kernel
    typical     whether sizes are symbols, and numbers those of typical sizes
    rewrite     its number for `--rewrites`; None where the pass did not ask
    measured    what `mlirc opt --measure` found, or None
    """

    number: int
    pass_name: str
    action: str
    function: str
    first: Group
    second: Group
    taken: bool
    rule: str
    kind: str
    limits: dict[str, int]
    bytes_saved: int | None
    recomputed: int | None
    estimated_gain: float | None
    typical: bool
    rewrite: int | None
    line: str
    measured: dict[str, Any] | None = None

    def as_dict(self) -> dict[str, Any]:
        data = asdict(self)
        return {"record": "candidate", "number": data.pop("number"), "pass": data.pop("pass_name"), **data}


@dataclass
class FusionLog:
    """The pairs that the fusion passes of one pipeline run looked at. Members have names that stay from pass to pass.

    plan         a fusion_plan.FusionPlan that says what to merge, or None
    kind         the kind of the graph, by which the plan's graphs are chosen; None for any
    done         the numbers of the plan's entries that were carried out
    followed     the plan's graphs that passes looked at
    wanted       whether the graph's report shows the candidates
    candidates   the pairs, in order
    left         by function, the kernels that the last fusion pass left, with their members
    counts       by function and name, how many kernels had the name
    """

    plan: Any = None
    kind: str | None = None
    done: set[int] = field(default_factory=set)
    followed: list[Any] = field(default_factory=list)
    wanted: bool = False
    candidates: list[Candidate] = field(default_factory=list)
    left: dict[str, list[tuple[Key, Members]]] = field(default_factory=dict)
    counts: dict[str, Counter[str]] = field(default_factory=dict)

    def begin(self, function: str, kernels: Sequence[tuple[Key, str]]) -> list[Members]:
        """The members of each kernel of a function, at the start of a pass. A kernel is (key, name); a new one has itself as its
        only member, under that name."""
        known: dict[Key, list[Members]] = {}
        for key, members in self.left.get(function, ()):
            known.setdefault(key, []).append(members)
        waiting = {key: iter(members) for key, members in known.items()}
        return [next(waiting.get(key, iter(())), None) or (self._named(function, name),) for key, name in kernels]

    def end(self, function: str, kernels: Iterable[tuple[Key, Members]]) -> None:
        self.left[function] = list(kernels)

    def names(self, function: str) -> set[str]:
        counts = self.counts.get(function, {}).items()
        return {name if k == 1 else f"{name}#{k}" for name, most in counts for k in range(1, most + 1)}

    def fitting(self, function: str) -> Any:
        """The plan's part for this graph, or None. Raises FusionPlanError."""
        found = self.plan.fitting(self.kind, function, self.names(function))
        if found is None:
            self.plan = None  # it is for graphs of another kind
        elif found not in self.followed:
            self.followed.append(found)
        return found

    def check_plan(self) -> None:
        """After all passes. Raises FusionPlanError for an entry that no pass carried out."""
        if self.plan is not None:
            self.plan.check_done(self.followed, self.done)

    def _named(self, function: str, name: str) -> str:
        counts = self.counts.setdefault(function, Counter())
        counts[name] += 1
        return name if counts[name] == 1 else f"{name}#{counts[name]}"


def json_lines(candidates: Iterable[Candidate], passes: str, target: str, **more: Any) -> str:
    """A line that says what ran, then one for each candidate."""
    run = {"record": "run", "format": FORMAT, "passes": passes, "target": target, **more}
    return "".join(json.dumps(line) + "\n" for line in (run, *(c.as_dict() for c in candidates)))

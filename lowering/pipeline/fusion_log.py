"""Every pair of kernels that a fusion pass looked at, as data: one JSON line each (docs/debugging.md). Imports no MLIR."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

FORMAT = 1
Members = tuple[str, ...]
Key = tuple[Any, ...]
"""By what a kernel is known again in the next pass: its label, spaces and source lines."""


@dataclass(frozen=True)
class Group:
    """A kernel, or what became one: its label, the kernels of to-kernels that it is made of, its ops, lines, spaces and bytes."""

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
    """What the fusion passes of one pipeline run looked at. Groups have names that stay from pass to pass.

    wanted   whether they belong into the graph's report
    left     by function, the kernels that the last fusion pass left, with what they are made of
    counts   by function, how many kernels of a name there were
    plan     a fusion_plan.FusionPlan that says what to merge, or None; `kind` is the graph's, None for any
    done     the numbers of the plan's entries that were carried out, `followed` its graphs that passes looked at
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
        """What the kernels of a function are made of, at the start of a pass; each comes with a name to take where it is new."""
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

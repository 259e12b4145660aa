"""Records and plans of pairs for batch-kernels, which merges ops and no bodies: kernels that have nothing in common but a launch."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mlirc.lowering.fusion import cost
from mlirc.lowering.fusion.candidates import CandidateRecords, key_of
from mlirc.lowering.fusion.graph import FusionGraph, FusionNode
from mlirc.lowering.fusion.planned import planned
from mlirc.lowering.pipeline.ledger import Ledger


class BatchRecords:
    """The records of one run of batch-kernels on one function. A group of kernels is recorded as the first of a pair, as if it had
    been merged already."""

    def __init__(self, function: Any, ledger: Ledger, pass_name: str):
        graph = FusionGraph(function)
        self.function, self.ledger, self.pass_name = function, ledger, pass_name
        self.records = CandidateRecords(graph, function, ledger, ledger.fusion, pass_name)  # type: ignore[arg-type]
        self.nodes: dict[Any, FusionNode] = {node.ops[0]: node for node in graph.kernels()}
        self.plan = planned(ledger, graph, function.name.value)
        self.entries = self.plan.graph.forced(pass_name, function.name.value) if self.plan is not None else []
        self.merged: dict[Any, tuple[str, ...]] = {}

    def refused_by_plan(self, group: Sequence[Any], op: Any) -> bool:
        """Whether the plan forbids a pair, or leaves it out; this is then recorded."""
        if self.plan is None:
            return False
        pair = self._pair(group, op)
        entry = self.plan.forbids(pair)
        names = {name for node in pair for name in node.members}
        wanted = self.plan.decides or any(e.members <= names for e in self.entries)
        if entry is None and wanted:
            return False
        self.add(group, op, "PLAN", "plan", **({"entry": entry.number} if entry is not None else {}))
        return True

    def add(self, group: Sequence[Any], op: Any, rule: str, kind: str, **limits: int) -> None:
        """`kind` is Candidate's. What cannot be one kernel saves nothing."""
        pair = self._pair(group, op)
        made = self.records.candidate(pair, "horizontal", rule, kind, limits, None, True)
        if kind != "legal":
            device = pair[1].body.results[0].tensor.info.device
            gain = cost.estimated_gain(0, 0, True, device)
            made = replace(made, bytes_saved=0, recomputed=0, estimated_gain=gain)
        self.records.log.candidates.append(made)

    def leave(self, group: Sequence[Any]) -> tuple[str, ...]:
        """What a group computes, which is about to be erased: an erased op is not even compared."""
        return tuple(name for op in group for name in self.nodes.pop(op).members)

    def take(self, names: tuple[str, ...], made: Any) -> None:
        """`made` came in place of a group."""
        self.merged[made] = names
        if self.plan is not None:
            self.records.log.done |= {e.number for e in self.entries if e.members <= set(names)}

    def finish(self) -> None:
        """Leaves the names for the next pass. Raises FusionPlanError for an entry that was forced, and cannot be."""
        known = {op: node.members for op, node in self.nodes.items()} | self.merged
        kernels = FusionGraph(self.function).kernels()
        self.records.log.end(self.records.function, [(key_of(node), known[node.ops[0]]) for node in kernels])
        for entry in self.entries:
            if self.plan is not None and entry.number not in self.records.log.done:
                raise self.plan.error(entry, f"'{self.pass_name}' cannot make one kernel of them")

    def _pair(self, group: Sequence[Any], op: Any) -> tuple[FusionNode, FusionNode]:
        first = self.nodes[group[-1]]
        if len(group) > 1:
            first = replace(first, members=tuple(name for x in group for name in self.nodes[x].members))
        return first, self.nodes[op]

"""Carries out a fusion plan (pipeline/fusion_plan.py) in one pass: pairs that it forces are merged first, in its order; pairs that it
forbids are refused. What is forced and cannot be one kernel is an error."""

from collections.abc import Callable
from typing import Any

from mlirc.lowering.fusion.graph import FusionGraph, FusionNode
from mlirc.lowering.fusion.merge import Refused
from mlirc.lowering.pipeline.fusion_plan import FusionPlan, FusionPlanError, GraphPlan, PlanEntry, without_stars

Merge = Callable[[FusionNode, FusionNode, str], bool]
"""Merges a pair whatever that costs, by an action, and says whether it was let. Raises Refused."""


class PlannedPairs:
    """What a plan says to one pass on one function. `done` gets the numbers of entries that were carried out."""

    def __init__(self, plan: FusionPlan, graph: GraphPlan, nodes: FusionGraph, function: str, done: set[int]):
        self.plan, self.nodes, self.function, self.done = plan, nodes, function, done
        self.graph = graph
        self.forbidden = [e for e in graph.entries if e.decision == "forbid" and e.function == function]

    @property
    def decides(self) -> bool:
        """Whether passes decide about pairs that are not forced."""
        return self.graph.others == "decide"

    def forbids(self, pair: tuple[FusionNode, FusionNode]) -> PlanEntry | None:
        """The entry whose kernels may not be one, and would be."""
        computed = without_stars((*pair[0].members, *pair[1].members))
        return next((entry for entry in self.forbidden if entry.computed <= computed), None)

    def carry_out(self, pass_name: str, merge: Merge) -> None:
        """Raises FusionPlanError."""
        for entry in self.graph.forced(pass_name, self.function):
            self.done.add(entry.number)
            nodes = self.nodes.kernels()
            if any(entry.members <= set(node.members) for node in nodes):
                continue
            first, second = (self.holder(entry, names, nodes) for names in (entry.first, entry.second))
            if entry.action == "horizontal" and first.position > second.position:
                first, second = second, first
            against = self.forbids((first, second))
            if against is not None:
                raise self.error(entry, f"entry {against.number} forbids it")
            if entry.action != "horizontal" and not any(second in tensor.readers for tensor in first.outputs):
                raise self.error(entry, "the second does not read the first")
            try:
                merge(first, second, entry.action)
            except Refused as refusal:
                raise self.error(entry, f"they cannot be one kernel: {refusal.rule}") from refusal

    def holder(self, entry: PlanEntry, names: tuple[str, ...], nodes: list[FusionNode]) -> FusionNode:
        """The smallest kernel made of all of these."""
        found = [node for node in nodes if set(names) <= set(node.members)]
        if not found:
            raise self.error(entry, f"nothing has made one kernel of {' + '.join(names)[:200]}")
        return min(found, key=lambda node: len(node.members))

    def error(self, entry: PlanEntry, why: str) -> FusionPlanError:
        return FusionPlanError(f"{self.plan.name}: {entry}: {why}")


def planned(ledger: Any, nodes: FusionGraph, function: str) -> PlannedPairs | None:
    """What the ledger's plan says about a function; None where there is none. Raises FusionPlanError."""
    log = ledger.fusion
    if log.plan is None:
        return None
    graph = log.fitting(function)
    return None if graph is None else PlannedPairs(log.plan, graph, nodes, function, log.done)

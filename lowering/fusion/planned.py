"""Carries out a fusion plan (pipeline/fusion_plan.py) in one pass: merges the pairs that it forces, in its order, before the pass
chooses any, and refuses the pairs that it forbids. A forced pair that cannot be one kernel is an error."""

from collections.abc import Callable
from typing import Any

from mlirc.lowering.fusion.graph import FusionGraph, FusionNode
from mlirc.lowering.fusion.merge import Refused
from mlirc.lowering.pipeline.fusion_plan import FusionPlan, FusionPlanError, GraphPlan, PlanEntry, without_stars

Merge = Callable[[FusionNode, FusionNode, str], bool]
"""Called with a pair and an action. Merges the pair without asking the cost model. Returns False if `--rewrites` does not allow it;
raises Refused if the pair cannot be one kernel."""


class PlannedPairs:
    """The part of a plan for one pass on one function. The numbers of entries that were carried out are added to `done`."""

    def __init__(self, plan: FusionPlan, graph: GraphPlan, nodes: FusionGraph, function: str, done: set[int]):
        self.plan, self.nodes, self.function, self.done = plan, nodes, function, done
        self.graph = graph
        self.forbidden = [e for e in graph.entries if e.decision == "forbid" and e.function == function]

    @property
    def decides(self) -> bool:
        """Whether the pass decides about pairs that the plan does not name."""
        return self.graph.others == "decide"

    def forbids(self, pair: tuple[FusionNode, FusionNode]) -> PlanEntry | None:
        """The entry that forbids to merge this pair, if there is one."""
        computed = without_stars((*pair[0].members, *pair[1].members))
        return next((entry for entry in self.forbidden if entry.computed <= computed), None)

    def carry_out(self, pass_name: str, merge: Merge) -> None:
        """Merges the forced pairs of this pass, and before each what its groups are made of. Raises FusionPlanError."""
        forced = self.graph.forced(pass_name, self.function)
        parts = self.graph.parts(forced, pass_name, self.function) if self.decides else []
        for entry in sorted([*forced, *parts], key=lambda e: e.number):
            try:
                self.carry_out_entry(entry, merge)
            except FusionPlanError:
                if entry.decision == "force" or not self.decides:
                    raise  # else the forced pair says what it lacks
            self.done.add(entry.number)

    def carry_out_entry(self, entry: PlanEntry, merge: Merge) -> None:
        nodes = self.nodes.kernels()
        if any(entry.members <= set(node.members) for node in nodes):
            return
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
        """The smallest kernel that contains all of these members."""
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

"""A global fusion planner: branch and bound over the legal groups, beside the greedy passes: `python examples/plan_fusions.py`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import mlirc
from mlirc.passes import Candidate, KernelFusion, register


@register
@dataclass(frozen=True)
class PlanFusions:
    """Merge kernels so that all together read and write the fewest bytes; it stands before fuse-elementwise.

    before:  %1 = kernel "matmul"   %2, %3 = kernel "add_layer_norm"(%1, %x)     of greedy passes: 5 tensors
    after:   %2 = kernel "matmul_add"(.., %x)   %3 = kernel "layer_norm"(%2)     4 tensors
    """

    name = "plan-fusions"
    takes = "kernel"
    nodes: int = 1000  # of the search in one region; then the best so far is taken

    def run(self, function: Any, ledger: Any) -> None:
        fusion = KernelFusion(function, ledger, self.name)
        for region in regions(fusion.candidates()):
            search = Search(fusion, region, self.nodes)
            for step in search.best:
                fusion.merge(step)
            ledger.record(self.name, "plan", f"{len(region)} kernels", "OPTIMAL" if search.left > 0 else "NODES", True)
        fusion.write_back()


def regions(pairs: list[Candidate]) -> list[frozenset[str]]:
    """Kernels that a chain of mergeable pairs connects; no kernel is made of two regions."""
    found: list[frozenset[str]] = []
    for first, second in (names_of(pair) for pair in pairs if not never(pair)):
        touched = [region for region in found if region & (first | second)]
        found = [region for region in found if region not in touched] + [first.union(second, *touched)]
    return found


def names_of(pair: Candidate) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(pair.first.members), frozenset(pair.second.members)


def never(pair: Candidate) -> bool:
    """Whether no kernel computes both. Other rules speak of who else reads the first, or of this way to merge."""
    return pair.kind == "legal" and pair.action == "fuse" and pair.rule not in ("NO CYCLE", "WRITTEN ONCE")


class Search:
    """The merges of a region that leave the fewest bytes. Two kernels end as one or apart: these are the branches."""

    def __init__(self, fusion: KernelFusion, region: frozenset[str], nodes: int):
        self.fusion, self.region, self.left = fusion, region, nodes
        self.least, self.best, self.path = 1 << 62, [], []
        self.visit([])

    def visit(self, apart: list) -> None:  # of pairs of groups: no kernel has all of both
        self.left -= 1
        pairs = self.fusion.candidates(self.region)
        apart = apart + [names_of(pair) for pair in pairs if never(pair)]
        if (now := sum(g.read + g.written for g in self.fusion.groups() if self.region >= set(g.members))) < self.least:
            self.least, self.best = now, list(self.path)
        ways = [c for c in pairs if not c.kind or (c.rule != "LIMITS" and (c.estimated_gain or 0) > 0)]
        for pair in sorted(ways, key=lambda way: -(way.bytes_saved or 0)):
            if self.left <= 0 or self.bound(apart) >= self.least:
                return
            if self.differ(*(both := names_of(pair)), apart):
                continue
            self.fusion.attempt(pair)
            self.path.append(pair)
            self.visit(apart)
            self.path.pop()
            self.fusion.undo()
            apart = [*apart, both]

    def bound(self, apart: list) -> int:
        """No plan from here on moves fewer: who is apart from a tensor's producer, and from other readers, reads it."""
        total = 0
        for tensor in self.fusion.tensors():
            producer, alone = frozenset(tensor.producer or ()), []
            readers = {frozenset(names): read for names, read in tensor.readers.items() if names != tensor.producer}
            for reader, read in readers.items():
                if all(self.differ(reader, other, apart) for other in (producer, *alone)):
                    alone.append(reader)
                    total += read if reader <= self.region else 0
            total += tensor.written if producer & self.region and (tensor.elsewhere or alone) else 0
        return total

    def differ(self, one: frozenset[str], other: frozenset[str], apart: list) -> bool:
        inside = other and one <= self.region and other <= self.region
        return not inside or any((a <= one and b <= other) or (b <= one and a <= other) for a, b in apart)


block = lambda x, w: (y := x + x @ w) + torch.nn.functional.layer_norm(y, y.shape[-1:]) @ w


def main(plan: Path, model: Any, *arguments: Any) -> tuple:
    """Bytes of a call under the greedy passes and under the planner, its results by the plan's file, and eager's."""
    inserted = {"insert": {"before fuse-elementwise": PlanFusions.name}}
    with torch.no_grad():
        explained = (mlirc.explain(model, candidates=True, options=o)(*arguments).data for o in ({}, inserted))
        greedy, planned = (data["graphs"][0] for data in explained)
        merge, named = {"decision": "force", "pass": "fuse-elementwise"}, ("action", "function")
        taken = [c for c in planned["candidates"] if c["pass"] == PlanFusions.name and c["taken"]]
        pairs = [merge | {k: c[k] for k in named} | {k: c[k]["members"] for k in ("first", "second")} for c in taken]
        plan.write_text(json.dumps({"format": 1, "graphs": [{"pairs": pairs}]}))
        replayed = torch.compile(model, backend="mlirc", options={"fusion_plan": str(plan), "fallback": "error"})
        moved = (int(graph["read"]) + int(graph["written"]) for graph in (greedy, planned))
        return *moved, replayed(*arguments), model(*arguments)


if __name__ == "__main__":
    print(main(Path("plan.json"), block, torch.randn(128, 64), torch.randn(64, 64))[:2])

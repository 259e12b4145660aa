"""Fusion for a pass of anybody's: it chooses among pairs of kernels, by its own rule, and legality stays with the fusion passes."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Any

from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.fusion import cost as cost
from mlirc.lowering.fusion.body import Body, Tensor
from mlirc.lowering.fusion.candidates import CandidateRecords, group_of
from mlirc.lowering.fusion.graph import FusionGraph, FusionNode
from mlirc.lowering.fusion.merge import Limits, NotWorthIt, Refused
from mlirc.lowering.fusion.pairs import NEIGHBOURS, Fuser, is_empty
from mlirc.lowering.pipeline.fusion_log import Candidate, FusionLog, Group, Members
from mlirc.lowering.pipeline.ledger import Ledger

Outcome = tuple[str, str, dict[str, int], str, Body | None]
"""Of a pair: the rule, its kind, what it compared, the rule whatever that costs, and the kernel that it would be."""


@dataclass(frozen=True)
class TensorUse:
    """A tensor between kernels, or that kernels read: the members of the kernel that writes it (None: no kernel does), its
    bytes, those that each reader reads of it, and whether something else reads it too."""

    producer: Members | None
    written: int
    readers: dict[Members, int]
    elsewhere: bool


class KernelFusion:
    """The kernels of one function, merged pair by pair.

    candidates()          a record of each pair that shares a tensor, as the ledger has them: what merging would save, or the
                          rule against it. `kind` "legal": they cannot be one kernel; "cost": they can, and the fusion passes
                          would not; "": they would
    merge(candidate)      one kernel in place of two. False where a fusion plan or --rewrites refuses that
    refuse(candidate, rule)   records that the pass does not
    attempt(candidate), undo()   the same unrecorded, to be taken back, the last first
    groups(), tensors()   the kernels as they are, and what they read and write
    write_back()          at the end, once
    checks=False          an index need not be checked at a point at which nothing is computed any more

    NO CYCLE says that a pair cannot be merged now, other rules of kind "legal" that it cannot. A pair is left out where
    something lies between that no kernel can take in: an op that is no kernel, or a matmul that multiplies by it.
    """

    def __init__(
        self, function: Any, ledger: Ledger, pass_name: str, max_ops: int = 64, max_reads: int = 24, checks: bool = True
    ):
        self.fuser = Fuser(function, ledger, pass_name, Limits(max_ops, max_reads, checks=checks))
        self.graph, self.pass_name = self.fuser.graph, pass_name
        if self.fuser.records is None:
            self.fuser.records = CandidateRecords(self.graph, function, ledger, FusionLog(), pass_name)
        self._states: list[Any] = []
        self._outcomes: dict[tuple[Any, ...], Outcome] = {}
        self._bits, self._behind = separations(self.graph)
        self._decides = self.fuser.follow_plan()

    def groups(self) -> list[Group]:
        return [group_of(node) for node in self.graph.kernels()]

    def tensors(self) -> list[TensorUse]:
        readers: dict[int, dict[Members, int]] = {}
        for node in self.graph.kernels():
            for tensor in node.body.tensors:
                read = readers.setdefault(id(tensor.root), {})
                read[node.members] = read.get(node.members, 0) + cost.distinct_bytes(tensor.info)
        roots = [tensor for tensor in self.graph.tensors.values() if tensor.root is tensor]
        return [self._use(tensor, readers.get(id(tensor), {})) for tensor in roots if tensor.value is not None]

    def candidates(self, among: Collection[str] | None = None) -> list[Candidate]:
        """Pairs of kernels that might merge, in the order of the kernels; with `among`, only pairs of these. Empty where a fusion
        plan leaves nothing to decide."""
        pairs = self._pairs(among) if self._decides else ()
        return [self._candidate(pair, action) for pair, action in pairs]

    def merge(self, candidate: Candidate) -> bool:
        """Raises ValueError for a pair that is not there, or cannot be one kernel."""
        pair, rule, body = self._found(candidate)
        self.fuser.horizontal = candidate.action == "horizontal"
        if self.fuser.forbids(pair, candidate.action):
            return False
        if not self.fuser.allows(pair):
            return self.fuser.refuse(pair, "REWRITES", "rewrites", candidate.action)
        self.fuser.take(pair, rule, body)
        self.graph.merge(*pair, body)
        return True

    def refuse(self, candidate: Candidate, rule: str, **numbers: int) -> None:
        pair, *_ = self._found(candidate)
        self.fuser.horizontal = candidate.action == "horizontal"
        self.fuser.refuse(pair, rule, "cost", candidate.action, numbers)

    def attempt(self, candidate: Candidate) -> None:
        """Raises ValueError as `merge` does."""
        pair, _, body = self._found(candidate)
        self._states.append(self.graph.state())
        self.graph.merge(*pair, body)

    def undo(self) -> None:
        self.graph.restore(self._states.pop())

    def write_back(self) -> None:
        self.fuser.write_back()

    def _use(self, tensor: Tensor, readers: dict[Members, int]) -> TensorUse:
        node = tensor.node
        producer = None if node is None or node.body is None else node.members
        elsewhere = any(reader.body is None for reader in tensor.readers)
        return TensorUse(producer, cost.distinct_bytes(tensor.info), readers, elsewhere)

    def _pairs(self, among: Collection[str] | None) -> Iterator[tuple[tuple[FusionNode, FusionNode], str]]:
        nodes = [u for u in self.graph.kernels() if among is None or all(name in among for name in u.members)]
        chosen = set(nodes)
        for node in nodes:
            users = {u for t in node.outputs for u in t.readers if u.body is not None}
            beside = {}
            for tensor in node.inputs:
                later = [u for u in tensor.root.readers if u.body is not None and u.position > node.position]
                beside |= dict.fromkeys(sorted(later, key=lambda u: u.position)[:NEIGHBOURS])
            found = [(user, "fuse") for user in users] + [(u, "horizontal") for u in beside if u not in users]
            for other, action in sorted(found, key=lambda f: f[0].position):
                if other in chosen and not self._separated(node, other):
                    yield (node, other), action

    def _candidate(self, pair: tuple[FusionNode, FusionNode], action: str) -> Candidate:
        rule, kind, numbers, _, body = self._outcome(pair, action)
        if body is not None and self.graph.closes_cycle(*pair):
            rule, kind, body = "NO CYCLE", "legal", None
        made = self.fuser.records.candidate(pair, action, rule, kind, numbers, body, True)
        return replace(made, taken=False, rewrite=None)

    def _outcome(self, pair: tuple[FusionNode, FusionNode], action: str) -> Outcome:
        """What a pair would be depends on the kernels that both are made of alone, so that it is found once."""
        key = (pair[0].members, pair[1].members, action)
        if key not in self._outcomes:
            self._outcomes[key] = self._try(pair, action)
        return self._outcomes[key]

    def _try(self, pair: tuple[FusionNode, FusionNode], action: str) -> Outcome:
        if is_empty(pair[0].body) or is_empty(pair[1].body):
            return "NO POINTS", "legal", {}, "", None
        try:
            rule, body = self.fuser.merged(pair, action, self.fuser.limits)
            return rule, "", {}, rule, body
        except NotWorthIt as dear:
            try:
                rule, body = self.fuser.merged(pair, action, replace(self.fuser.limits, costs=False))
                return dear.rule, "cost", dear.numbers, rule, body
            except Refused as refusal:
                return refusal.rule, "legal", refusal.numbers, "", None
        except Refused as refusal:
            return refusal.rule, "legal", refusal.numbers, "", None

    def _found(self, candidate: Candidate) -> tuple[tuple[FusionNode, FusionNode], str, Body]:
        nodes = {node.members: node for node in self.graph.kernels()}
        first, second = nodes.get(candidate.first.members), nodes.get(candidate.second.members)
        if first is None or second is None:
            raise ValueError(f"'{candidate.first.name} -> {candidate.second.name}' is no pair of kernels any more")
        _, _, _, rule, body = self._outcome((first, second), candidate.action)
        if body is None or self.graph.closes_cycle(first, second):
            raise ValueError(
                f"'{candidate.first.name} -> {candidate.second.name}' cannot be one kernel: {candidate.rule}"
            )
        return (first, second), rule, body

    def _separated(self, first: FusionNode, second: FusionNode) -> bool:
        bits, behind = (
            [_union(of.get(name, 0) for name in node.members) for node in (first, second)]
            for of in (self._bits, self._behind)
        )
        return bool(bits[0] & behind[1] or bits[1] & behind[0])


def _union(masks: Iterable[int]) -> int:
    return reduce(or_, masks, 0)


def separations(graph: FusionGraph) -> tuple[dict[str, int], dict[str, int]]:
    """Two masks by a kernel's name: its own bit, and the bits of the kernels that depend on it through an op that cannot be fused."""
    nodes = [node for node in graph.order if node is not None]
    bits = {node: 1 << k for k, node in enumerate(nodes)}
    after, behind = dict.fromkeys(nodes, 0), dict.fromkeys(nodes, 0)
    for node in reversed(nodes):
        for user in node.users:
            reached = bits[user] | after[user]
            after[node] |= reached
            behind[node] |= reached if not takes_in(user, node) else behind[user]
    names = {node: node.members[0] for node in nodes if node.body is not None}
    return {name: bits[u] for u, name in names.items()}, {name: behind[u] for u, name in names.items()}


def takes_in(user: FusionNode, node: FusionNode) -> bool:
    """Whether a kernel may be made of both, and of what comes after the user: not where the user is no kernel, or multiplies."""
    if user.body is None or node.body is None:
        return False
    if user.body.contraction is None:
        return True
    made = {id(tensor) for tensor in node.outputs}
    inner = user.body.inner_dims
    return not any(id(read.tensor.root) in made and read.dims & inner for read in user.body.reads)

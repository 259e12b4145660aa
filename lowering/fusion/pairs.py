"""The driver of the fusion passes: tries pairs of kernels in order, decides, and records the decision in the ledger."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.lowering.analysis.index_maps import Map, dims_in, linearized_dims
from mlirc.lowering.fusion import cost as cost
from mlirc.lowering.fusion.body import Body, BodyNode, Tensor
from mlirc.lowering.fusion.graph import FusionGraph, FusionNode
from mlirc.lowering.fusion.horizontal import merge_horizontally
from mlirc.lowering.fusion.merge import Limits, NotWorthIt, ReadSite, Refused, inline, join, root_index, sites
from mlirc.lowering.kernel.typical_sizes import typical
from mlirc.lowering.module.source_lines import source_line
from mlirc.lowering.pipeline.ledger import Ledger

NEIGHBOURS = 8  # readers of one tensor that are tried in pairs, for horizontal fusion
ROUNDS = 8  # of going over all pairs: a merge may make an earlier pair legal. Real graphs need two or three
FEW, MANY = 16, 1024  # numbers of results or rows, one program each: FEW leave most of a GPU idle, MANY fill it
EMPTY: Mapping[str, int] = {}
Pair = Callable[[FusionNode, FusionNode], bool]


def is_empty(body: Body) -> bool:
    """Whether the kernel has no points, for all values of its symbols."""
    return 0 in body.space


class Fuser:
    """Merges kernels of one function. `pass_name` and `ledger` are where decisions go.

    NO POINTS    a kernel without points is not merged: linear indices cannot be decomposed where a size is 0
    """

    def __init__(self, function: Any, ledger: Ledger, pass_name: str, limits: Limits):
        kept = ledger.given.pop(function.operation, None) if ledger.fusion is None else None
        self.graph = kept if isinstance(kept, FusionGraph) else FusionGraph(function, kept)
        self.function = function
        self.ledger, self.pass_name, self.limits = ledger, pass_name, limits
        self.refused: dict[tuple[int, int], str] = {}  # by the nodes' numbers
        self.not_chosen: set[tuple[int, int]] = set()
        self.outlines = self.graph.outlines
        self.rows_first = self.horizontal = False
        self.records: Any = None
        self.plan: Any = None
        if ledger.fusion is not None:
            from mlirc.lowering.fusion.candidates import CandidateRecords
            from mlirc.lowering.fusion.planned import planned

            self.records = CandidateRecords(self.graph, function, ledger, ledger.fusion, pass_name)
            self.plan = planned(ledger, self.graph, function.name.value)

    def run(self, wanted: Pair, recompute: bool = False, rows_first: bool = False) -> None:
        """Merge producers into consumers, for the pairs that are `wanted`, until nothing changes; then write back.

        rows_first  what is stored anyway is not merged into a reduction over columns
        """
        self.rows_first = rows_first
        for _ in range(ROUNDS if self.follow_plan() else 0):
            changed = False
            for position in range(len(self.graph.order)):
                node = self.graph.order[position]
                if node is None or node.body is None:
                    continue
                if recompute:
                    changed |= self.recompute(node)
                if self.graph.order[position] is node:
                    changed |= self.merge_into_user(node, wanted)
                node.body = self.outlines.without_nodes(node.body)
            if not changed:
                break
        self.write_back()

    def run_horizontally(self) -> None:
        """Merge kernels that read the same tensor; then write back."""
        self.horizontal = True
        for position in range(len(self.graph.order) if self.follow_plan() else 0):
            node = self.graph.order[position]
            while node is not None and node.body is not None:
                node = self.merge_with_reader(node)
        self.write_back()

    def follow_plan(self) -> bool:
        """Merges what a plan forces. Returns whether the pass decides about the rest."""
        if self.plan is None:
            return True
        self.plan.carry_out(self.pass_name, self.force)
        return self.plan.decides

    def force(self, first: FusionNode, second: FusionNode, action: str) -> bool:
        """Merges a pair whatever that costs, unless its rewrite is not allowed. Raises Refused."""
        pair = (first, second)
        if is_empty(first.body) or is_empty(second.body):
            raise Refused("NO POINTS")
        if action != "recompute" and self.graph.closes_cycle(first, second):
            raise Refused("NO CYCLE")
        if action == "horizontal" and first in self.graph.sources(second):
            raise Refused("NO CYCLE")
        try:
            rule, body = self.merged(pair, action, self.limits)
        except NotWorthIt:
            rule, body = self.merged(pair, action, replace(self.limits, costs=False))
        if action == "recompute":
            made = self.allowed_to_recompute(pair, body)
            if not first.outputs[0].readers:
                self.graph.drop(first)
            return made
        if not self.allows(pair):
            return self.refuse(pair, "REWRITES", "rewrites")
        self.take(pair, rule, body)
        self.graph.merge(first, second, body)
        return True

    def merged(self, pair: tuple[FusionNode, FusionNode], action: str, limits: Limits) -> tuple[str, Body]:
        """The rule by which a pair becomes one kernel, and the kernel. Raises Refused."""
        first, second = pair[0].body, pair[1].body
        if action == "horizontal":
            return "SAME READS", merge_horizontally(first, second, read_later(pair), limits)
        if action == "recompute":
            if first.inner or len(first.results) != 1:
                raise Refused("RECOMPUTE")
            return "RECOMPUTE", inline(first, second, set(), limits)
        return merged_body(first, second, stored(pair), limits)

    def write_back(self) -> None:
        self.graph.write_back()
        if self.records is not None:
            self.records.finish()
            self.graph.release()
        else:
            self.ledger.left[self.function.operation] = self.graph

    # ---- one kernel in place of two

    def merge_into_user(self, producer: FusionNode, wanted: Pair) -> bool:
        users = {user for tensor in producer.outputs for user in tensor.readers if user.body is not None}
        for consumer in sorted(users, key=lambda user: _preference(producer, user)) if len(users) > 1 else users:
            if wanted(producer, consumer) and self.merge(producer, consumer):
                return True
        return False

    def merge(self, producer: FusionNode, consumer: FusionNode) -> bool:
        pair = (producer, consumer)
        if self.refused.get(numbers_of(pair), "NO CYCLE") != "NO CYCLE":
            return False
        if is_empty(producer.body) or is_empty(consumer.body):
            return self.refuse(pair, "NO POINTS")
        if self.graph.closes_cycle(producer, consumer):
            return self.refuse(pair, "NO CYCLE")
        keep = stored(pair)
        if keep and self.rows_first and folds_columns(producer, consumer):
            return self.refuse(pair, "ROWS FIRST", "cost")
        if self.rows_first and folds_rows(producer, consumer):
            return self.refuse(pair, "WITH ITS ROWS", "cost")
        try:
            bodies = producer.body, consumer.body
            rule, body = self.outlines.merge(merged_body, compares_reads, *bodies, keep, self.limits)
        except Refused as refusal:
            return self.refuse(pair, refusal.rule, kind_of(refusal), numbers=refusal.numbers)
        if self.forbids(pair):
            return False
        if not self.allows(pair):
            return self.refuse(pair, "REWRITES", "rewrites")
        self.take(pair, rule, body)
        self.graph.merge(producer, consumer, body)
        return True

    def merge_with_reader(self, node: FusionNode) -> FusionNode | None:
        """What `node` merged with a later reader of one of its inputs became, or None."""
        for tensor in sorted(node.inputs, key=cost.size_bytes, reverse=True):
            for other in self.graph.next_readers(node, tensor, NEIGHBOURS):
                merged = self.merge_readers(node, other)
                if merged is not None:
                    return merged
        return None

    def merge_readers(self, first: FusionNode, second: FusionNode) -> FusionNode | None:
        pair = (first, second)
        if numbers_of(pair) in self.refused:
            return None
        if is_empty(first.body) or is_empty(second.body):
            self.refuse(pair, "NO POINTS")
            return None
        if self.graph.closes_cycle(first, second) or first in self.graph.sources(second):
            self.refuse(pair, "NO CYCLE")
            return None
        try:
            body = merge_horizontally(first.body, second.body, read_later(pair), self.limits)
        except Refused as refusal:
            self.refuse(pair, refusal.rule, kind_of(refusal), numbers=refusal.numbers)
            return None
        if self.forbids(pair):
            return None
        if not self.allows(pair):
            self.refuse(pair, "REWRITES", "rewrites")
            return None
        self.take(pair, "SAME READS", body)
        return self.graph.merge(first, second, body)

    def allows(self, pair: tuple[FusionNode, FusionNode]) -> bool:
        """Whether two kernels, which may merge, are let."""
        return self.ledger.allows(self.pass_name, lambda: f"{labels(pair)} ({source_line(pair[1].locations[-1])})")

    def forbids(self, pair: tuple[FusionNode, FusionNode], action: str = "fuse") -> bool:
        """Whether a plan does, which is then recorded."""
        entry = None if self.plan is None else self.plan.forbids(pair)
        if entry is not None:
            self.refuse(pair, "PLAN", "plan", action, {"entry": entry.number})
        return entry is not None

    def refuse(
        self,
        pair: tuple[FusionNode, FusionNode],
        rule: str,
        kind: str = "legal",
        action: str = "fuse",
        numbers: Mapping[str, int] = EMPTY,
    ) -> bool:
        """Kinds are Candidate's. `numbers` are what the rule compared; beside them stands what merging would save at most."""
        if self.refused.get(numbers_of(pair)) == rule:
            return False
        self.refused[numbers_of(pair)] = rule
        first, second = pair[0].body, pair[1].body
        shared, points = cost.shared_bytes(first, second), (cost.points(first.space), cost.points(second.space))
        sizes = {"bytes_shared": shared, "points_of_first": points[0], "points_of_second": points[1]}
        self.record(pair, action, rule, kind, {**sizes, **numbers})
        if self.records is not None:
            body = self.in_spite_of_costs(pair, action) if kind != "legal" else None
            kind = kind if body is not None else "legal"
            self.record_candidate(pair, action, rule, kind, {**sizes, **numbers}, body, action != "recompute")
        return False

    def take(
        self, pair: tuple[FusionNode, FusionNode], rule: str, body: Body, action: str = "fuse", dropped: bool = True
    ) -> None:
        """Records that `body` comes in place of a pair; `dropped`: of its first kernel too."""
        gone = cost.moved(pair[1].body) + dropped * cost.moved(pair[0].body)
        self.record(pair, action, rule, "", {"bytes_saved": gone - cost.moved(body)})
        if self.records is not None:
            self.record_candidate(pair, action, rule, "", EMPTY, body, dropped)

    def record(
        self, pair: tuple[FusionNode, FusionNode], action: str, rule: str, kind: str, numbers: Mapping[str, Any]
    ) -> None:
        if self.records is not None:
            from mlirc.lowering.fusion.candidates import spaces_of

            numbers = {**spaces_of(pair), **numbers}
        where = source_line(pair[1].locations[-1])
        self.ledger.record(self.pass_name, action, labels(pair), rule, not kind, where, **numbers)

    def record_candidate(self, pair: tuple[FusionNode, FusionNode], action: str, *rest: Any) -> None:
        made = self.records.candidate(pair, "horizontal" if self.horizontal else action, *rest)
        self.records.log.candidates.append(made)

    def in_spite_of_costs(self, pair: tuple[FusionNode, FusionNode], action: str) -> Body | None:
        """What a pair would be if it were merged, whatever that costs; None where it cannot be."""
        try:
            return self.merged(pair, "horizontal" if self.horizontal else action, replace(self.limits, costs=False))[1]
        except Refused:
            return None

    # ---- a producer computed by each of its users

    def recompute(self, producer: FusionNode) -> bool:
        """RECOMPUTE: users compute a trivial expression themselves where that moves fewer bytes than storing it."""
        body = producer.body
        if is_empty(body) or body.inner or len(body.outputs) != 1 or len(producer.outputs[0].readers) < 2:
            return False
        nodes = body.nodes
        if not cost.is_trivial(nodes):
            return False
        result = producer.outputs[0]
        users = sorted(result.readers, key=lambda user: user.position)
        kernels = [user for user in users if user.body is not None]
        moved = {user: self.new_bytes(producer, user) for user in kernels}
        stored = cost.total_bytes(body.tensors) + cost.size_bytes(result) * len(users)
        bodies = {}
        for user in kernels:
            if is_empty(user.body):
                self.refuse((producer, user), "NO POINTS", "legal", "recompute")
                continue
            try:
                _, bodies[user] = self.outlines.merge(recomputed_body, never, body, user.body, set(), self.limits)
            except Refused as refusal:
                self.refuse((producer, user), refusal.rule, kind_of(refusal), "recompute", refusal.numbers)
        everywhere = len(bodies) == len(users)
        if everywhere and sum(moved.values()) < stored:
            chosen = kernels
        else:
            chosen = [user for user in bodies if moved[user] < cost.size_bytes(result)]
            if self.records is not None:
                self.record_not_chosen(producer, [user for user in bodies if user not in chosen], moved)
        if self.plan is not None:
            chosen = [user for user in chosen if not self.forbids((producer, user), "recompute")]
        allowed = [user for user in chosen if self.allowed_to_recompute((producer, user), bodies[user])]
        if not result.readers:
            self.graph.drop(producer)
        return bool(allowed)

    def allowed_to_recompute(self, pair: tuple[FusionNode, FusionNode], body: Body) -> bool:
        producer, user = pair
        last = producer.outputs[0].readers == {user}  # nothing is stored any more
        if not self.allows(pair):
            if self.records is not None:
                self.record_candidate(pair, "recompute", "REWRITES", "rewrites", EMPTY, body, last)
            return False
        self.take(pair, "RECOMPUTE", body, "recompute", last)
        self.graph.rewrite(user, body, producer)
        return True

    def record_not_chosen(self, producer: FusionNode, users: list[FusionNode], moved: Mapping[FusionNode, int]) -> None:
        """Once for each pair: storing it moves no more bytes than what the user would have to read."""
        stored = cost.size_bytes(producer.outputs[0])
        for user in users:
            if numbers_of((producer, user)) not in self.not_chosen:
                self.not_chosen.add(numbers_of((producer, user)))
                body = self.in_spite_of_costs((producer, user), "recompute")
                numbers = {"read_again": moved[user], "most": stored}
                self.record_candidate((producer, user), "recompute", "RECOMPUTE", "cost", numbers, body, False)

    def new_bytes(self, producer: FusionNode, user: FusionNode) -> int:
        """Bytes of what the producer reads and the user does not read yet."""
        known = {id(t.root) for t in user.inputs}
        return cost.total_bytes(t for t in producer.inputs if id(t.root) not in known)


def numbers_of(pair: tuple[FusionNode, FusionNode]) -> tuple[int, int]:
    return pair[0].number, pair[1].number


def stored(pair: tuple[FusionNode, FusionNode]) -> set[Tensor]:
    """The results of the first that others than the second read."""
    return {t for t in pair[0].outputs if len(t.readers) > (pair[1] in t.readers)}


def read_later(pair: tuple[FusionNode, FusionNode]) -> set[Tensor]:
    return {t for node in pair for t in node.outputs if t.readers}


def kind_of(refusal: Refused) -> str:
    return "cost" if isinstance(refusal, NotWorthIt) else "legal"


def labels(pair: tuple[FusionNode, FusionNode]) -> str:
    return f"{pair[0].body.label} -> {pair[1].body.label}"


def recomputed_body(producer: Body, consumer: Body, keep: set[Tensor], limits: Limits) -> tuple[str, Body]:
    """The rule RECOMPUTE, and a kernel in which the consumer computes by itself what it reads of the producer, which stays for other
    readers. Raises Refused."""
    return "RECOMPUTE", inline(producer, consumer, keep, limits)


def merged_body(producer: Body, consumer: Body, keep: set[Tensor], limits: Limits) -> tuple[str, Body]:
    """The rule by which two kernels merge, and the kernel. Raises Refused."""
    found = sites(producer, consumer)
    if producer.inner:
        return "SAME ROWS", join(producer, consumer, keep, limits, found)
    if not _splits_dims(found, consumer):
        return "ONE SPACE", inline(producer, consumer, keep, limits, found)
    # the consumer runs through several of the producer's dimensions as one: better to run through them one by one
    try:
        return "SAME ROWS", join(producer, consumer, keep, limits, found)
    except Refused:
        return "ONE SPACE", inline(producer, consumer, keep, limits, found)


def compares_reads(producer: Body, consumer: Body) -> bool:
    """Whether merged_body looks at where both read the same tensors."""
    try:
        return bool(producer.inner) or _splits_dims(sites(producer, consumer), consumer)
    except Refused:
        return False


def never(producer: Body, consumer: Body) -> bool:
    return False


def _splits_dims(found: list[ReadSite], consumer: Body) -> bool:
    """Whether a read of the producer's result, in its dimensions, has a division."""
    values = [value for site in found for value in site.solution or () if value is not None]
    return any(linearized_dims(value, consumer.space) is None for value in values)


def _preference(producer: FusionNode, user: FusionNode) -> tuple[bool, int]:
    """Reductions over columns come last: what is merged with one has to run along its columns too."""
    return folds_columns(producer, user), user.position


def folds_columns(producer: FusionNode, user: FusionNode) -> bool:
    """Whether a kernel folds the producer's results over other dimensions than the one whose elements lie side by side."""
    body = user.body
    if not body.inner:
        return False
    outputs = {id(t) for t in producer.outputs}
    for read in body.reads:
        index = root_index(read, body.space) if id(read.tensor.root) in outputs else None
        if index and not dims_in((nearest(read, index),)) & body.inner_dims and dims_in(index) & body.inner_dims:
            return True
    return False


def nearest(read: BodyNode, index: Map) -> Int:
    """The index, of those into the root of what is read, whose elements lie closest: that of channels in images that lie channels last."""
    info = read.tensor.root.info
    long = [(typical(step), -d) for d, (n, step) in enumerate(zip(info.shape, info.stride, strict=True)) if n != 1]
    return index[-min(long)[1]] if long and len(index) == info.rank else index[-1]


def folds_rows(producer: FusionNode, user: FusionNode) -> bool:
    """Whether, on a GPU, a kernel folds to few numbers what the producer makes of sums over rows, one value a row: the kernel that
    sums up the rows makes it as well, and has more programs."""
    body, row = user.body, producer.body.parallel
    if not body.inner or producer.body.inner or cost.points(body.parallel) > FEW or cost.points(row) < MANY:
        return False
    sums = [t.root.node.body for t in producer.inputs if t.root.node is not None and t.root.node.body is not None]
    of_rows = any(s.inner and symbols.product(s.parallel) == symbols.product(row) for s in sums)
    return of_rows and all(t.info.device.startswith("cuda") for t in producer.outputs)

"""Makes a record of each pair that a fusion pass looks at (pipeline/fusion_log.py). Where nobody asked for records, none of this runs."""

from collections.abc import Mapping
from typing import Any

from mlirc.dialects.core import symbols
from mlirc.lowering.fusion import cost as cost
from mlirc.lowering.fusion.body import FOLDS, Body
from mlirc.lowering.fusion.graph import FusionGraph, FusionNode
from mlirc.lowering.kernel.typical_sizes import TYPICAL
from mlirc.lowering.module.source_lines import source_line, source_lines
from mlirc.lowering.pipeline.fusion_log import Candidate, FusionLog, Group, Key
from mlirc.lowering.pipeline.ledger import Ledger


class CandidateRecords:
    """The pairs of kernels that one run of a pass on one function looked at. Names the kernels, and keeps the names for the next
    pass."""

    def __init__(self, graph: FusionGraph, function: Any, ledger: Ledger, log: FusionLog, pass_name: str):
        self.graph, self.function, self.pass_name = graph, function.name.value, pass_name
        self.ledger, self.log = ledger, log
        kernels = graph.kernels()
        named = log.begin(self.function, [(key_of(node), name_of(node)) for node in kernels])
        for node, members in zip(kernels, named, strict=True):
            node.members = members

    def finish(self) -> None:
        """Once the pass has written back what it changed."""
        self.log.end(self.function, [(key_of(node), node.members) for node in self.graph.kernels()])

    def candidate(
        self,
        pair: tuple[FusionNode, FusionNode],
        action: str,
        rule: str,
        kind: str,
        limits: Mapping[str, int],
        body: Body | None,
        dropped: bool,
    ) -> Candidate:
        """`body` is what the pair becomes, or would; `dropped` says that the first is no kernel of its own any more."""
        first, second = pair[0].body, pair[1].body
        saved = recomputed = gain = None
        if body is not None:
            gone = [second, first] if dropped else [second]
            saved = sum(map(cost.moved, gone)) - cost.moved(body)
            recomputed = cost.evaluations(body) - sum(map(cost.evaluations, gone))
            device = second.results[0].tensor.info.device
            gain = cost.estimated_gain(saved, recomputed, dropped, device)
        rewrites = self.ledger.rewrites
        asked = rewrites is not None and kind in ("", "rewrites")
        return Candidate(
            number=len(self.log.candidates),
            pass_name=self.pass_name,
            action=action,
            function=self.function,
            first=group_of(pair[0]),
            second=group_of(pair[1]),
            taken=not kind,
            rule=rule,
            kind=kind,
            limits=dict(limits),
            bytes_saved=saved,
            recomputed=recomputed,
            estimated_gain=gain,
            typical=any(not isinstance(n, int) for n in first.space + second.space),
            rewrite=rewrites.counts.get(self.pass_name, 0) - 1 if asked and rewrites is not None else None,
            line=source_line(pair[1].locations[-1]),
        )


def group_of(node: FusionNode) -> Group:
    body: Body = node.body
    return Group(
        name=body.label,
        members=node.members,
        ops=[op.name for op in body.nodes if op.is_work or op.name in FOLDS],
        lines=source_lines(node.location),
        parallel=symbols.print_list(body.parallel),
        inner=symbols.print_list(body.inner),
        read=cost.read_bytes(body),
        written=cost.moved(body) - cost.read_bytes(body),
    )


def key_of(node: FusionNode) -> Key:
    return node.body.label, node.body.parallel, node.body.inner, *source_lines(node.location)


def name_of(node: FusionNode) -> str:
    """ "add@model.py:5". The folder is left out: a plan that is saved on one machine is replayed on another."""
    lines = source_lines(node.location)
    return f"{node.body.label}@{lines[0].rsplit('/', 1)[-1] if lines else 'unknown'}"


def spaces_of(pair: tuple[FusionNode, FusionNode]) -> dict[str, str | int]:
    """`spaces` is "[8, 16] -> [8; 16]", inner dimensions behind a semicolon; where sizes are symbols, `each_symbol` is what numbers take them for."""
    texts, sizes = [], [size for node in pair for size in node.body.space]
    for node in pair:
        inner = symbols.print_list(node.body.inner)
        texts.append(f"[{symbols.print_list(node.body.parallel)}{inner and f'; {inner}'}]")
    known = all(isinstance(size, int) for size in sizes)
    return {"spaces": " -> ".join(texts)} | ({} if known else {"each_symbol": TYPICAL})

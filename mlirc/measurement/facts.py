"""Facts about compiled graphs: kernels, launches, bytes, memory, compile time."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any

from mlirc.frontend.statistics import GraphReport


@dataclass(frozen=True)
class CompiledFacts:
    """Sums over the graphs of one subject; None for a sum that depends on symbolic sizes.

    kernels       distinct generated kernels
    launches of these kernels in one call
    library, aten   calls of libraries and of ATen, in one call
    read, written bytes, each operand of a kernel or call once
    flops         of kernels and matmuls
    arena         bytes of the memory plan: tensors between kernels
    compile       seconds in mlirc's stages
    first_call    seconds, with TorchDynamo's and AOTAutograd's work
    plan          a digest of each graph's kernels, with their ops and launches, of its calls and its memory; "" where nothing is compiled
    taken         decisions of each pass that changed the graph, as the ledger has them
    """

    kernels: int | None = None
    launches: int | None = None
    library: int | None = None
    aten: int | None = None
    read: int | None = None
    written: int | None = None
    flops: int | None = None
    arena: int | None = None
    compile: float | None = None
    first_call: float | None = None
    plan: str = ""
    taken: dict[str, int] = field(default_factory=dict)

    @property
    def bytes(self) -> int | None:
        return None if self.read is None or self.written is None else self.read + self.written

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def facts_of(reports: Iterable[GraphReport], first_call: float) -> CompiledFacts:
    reports = list(reports)
    if not reports:
        return CompiledFacts(first_call=first_call)
    return CompiledFacts(
        kernels=sum(len(report.kernels) for report in reports),
        launches=sum(kernel.launches for report in reports for kernel in report.kernels),
        library=sum(sum(report.library.values()) for report in reports),
        aten=sum(count for report in reports for count, _ in report.aten.values()),
        read=total(report.read for report in reports),
        written=total(report.written for report in reports),
        flops=total(report.flops for report in reports),
        arena=total(report.arena for report in reports),
        compile=sum(sum(report.seconds.values()) for report in reports),
        first_call=first_call,
        plan=sha256(repr([plan_of(report) for report in reports]).encode()).hexdigest(),
        taken=dict(Counter(entry.pass_name for report in reports for entry in report.ledger if entry.taken)),
    )


def plan_of(report: GraphReport) -> list[Any]:
    """What a graph became, as far as its report says: equal for two compilations with the same passes."""
    return [report.kind, report.kernels, report.library, report.aten, report.arena, report.buffers]


def total(sizes: Iterable[str]) -> int | None:
    """The sum of sizes; None where one depends on a symbol."""
    known = list(sizes)
    return sum(map(int, known)) if all(size.isdigit() for size in known) else None

"""schedule-collectives: issues collectives as early as their operands allow, and waits for them as late as their readers allow."""

from typing import Any

from mlirc.dialects.control_flow.region_ops import REGION_OPS
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.pipeline.ledger import Ledger

NAMESPACE = "_c10d_functional."
WAIT = f"{NAMESPACE}wait_tensor.default"
FIXED = {"mlirc.assign", "mlircx.aten_effect", *REGION_OPS}  # they may overwrite what others read


@dataclass(frozen=True)
class ScheduleCollectives:
    """Let kernels run between a collective and its wait.

    before:  %1 = kernel(%x)    %2 = "mlircx.aten_effect"(%0) {op = "_c10d_functional.all_reduce.default"}
             %3 = "mlircx.aten"(%2, %0) {op = "_c10d_functional.wait_tensor.default"}    %4 = kernel(%1)    %5 = kernel(%3)
    after:   all_reduce, kernel(%x), kernel(%1), wait_tensor, kernel(%3)

    OPERANDS READY  a collective moves behind the ops that its operands come from, and stays behind what may write memory and
                    behind other collectives
    FIRST READER    a wait moves in front of the first op that reads its result, and stays in front of what may write memory,
                    other collectives left out
    """

    name = "schedule-collectives"
    takes = "kernel"

    def run(self, function: Any, ledger: Ledger) -> None:
        block = function.regions[0].blocks[0]
        if not any(called(op).startswith(NAMESPACE) for op in block.operations):
            return
        for op in list(block.operations):
            if called(op).startswith(NAMESPACE) and called(op) != WAIT:
                self.issue(op, block, ledger)
        for op in reversed(list(block.operations)):
            if called(op) == WAIT:
                self.wait(op, block, ledger)

    def issue(self, op: Any, block: Any, ledger: Ledger) -> None:
        """Moves a collective up."""
        before: list[Any] = []
        for other in block.operations:
            if other.operation == op.operation:
                break
            before.append(other)
        sources = sources_of(op)
        last = max((k for k, x in enumerate(before) if x.operation.name in FIXED or x.operation in sources), default=-1)
        if last == len(before) - 1 or not ledger.allows(self.name, op):
            return
        op.operation.move_before(before[last + 1].operation)
        ledger.record(self.name, "issue", called(op), "OPERANDS READY", True, op)

    def wait(self, op: Any, block: Any, ledger: Ledger) -> None:
        """Moves a wait down, and views of its result with it."""
        behind, passed = [], False
        for other in block.operations:
            if passed:
                behind.append(other)
            passed = passed or other.operation == op.operation
        moved, place = [op], None
        of_result = set(op.results)
        for other in behind:
            reads = any(x in of_result for x in other.operands)
            if reads and other.operation.name == "mlirc.view":
                moved.append(other)
                of_result |= set(other.results)
            elif reads or other.operation.name == "func.return" or is_fixed(other):
                place = other
                break
        between = behind[: behind.index(place)] if place is not None else []
        if place is None or len(between) < len(moved) or not ledger.allows(self.name, op):
            return
        for x in moved:
            x.operation.move_before(place.operation)
        ledger.record(self.name, "wait", called(op), "FIRST READER", True, op)


def called(op: Any) -> str:
    """The operator that an op calls, or ""."""
    return attribute_value(op.attributes["op"]) if op.operation.name in ("mlircx.aten", "mlircx.aten_effect") else ""


def is_fixed(op: Any) -> bool:
    """Whether a wait stays in front of the op. A collective writes new memory alone; one in place writes what it is given."""
    issues = called(op).startswith(NAMESPACE) and not called(op).split(".")[1].endswith("_")
    return op.operation.name in FIXED and not issues


def sources_of(op: Any) -> set[ir.Operation]:
    """What makes the op's operands."""
    return {x.owner for x in op.operands if not isinstance(x.owner, ir.Block)}

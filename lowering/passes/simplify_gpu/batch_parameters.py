"""batch-parameters: on a GPU, moves kernels that read parameters alone to the beginning of a graph, and combines them."""

from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.analysis.provenance import parameter_arguments, view_root
from mlirc.lowering.passes.fuse.batch_kernels import merge, space
from mlirc.lowering.pipeline.ledger import Ledger


@dataclass(frozen=True)
class BatchParameters:
    """Move kernels that read parameters alone to the beginning of the graph, and make one kernel of those with one space.

    Multiplying a convolution's weight by a batch norm's scale is such a kernel; a convolution has two. Nothing computed of parameters is cached on a
    GPU, because only reading all parameters would tell whether they changed. So each call computes these values.

    before:  ...  %1 = "mlircx.kernel"(%w0, %s0) ({ mul }) {parallel = "64, 64, 3, 3"}
             ...  %2 = "mlircx.kernel"(%w1, %s1) ({ mul }) {parallel = "64, 64, 3, 3"}
    after:   %1, %2 = "mlircx.kernel"(%w0, %s0, %w1, %s1) ({ mul; mul }) {parallel = "64, 64, 3, 3"}
             ...

    PARAMETERS  all operands are parameters that the graph does not write to, views of them, or constants; no reduction, no
                scan, no check_index
    LIMIT       a kernel reads at most `max_reads` tensors
    """

    name = "batch-parameters"
    takes = "kernel"
    max_reads: int = 48

    def run(self, function: Any, ledger: Ledger) -> None:
        block = function.regions[0].blocks[0]
        ops = [op.operation for op in block.operations]
        written = {view_root(op.operands[0]) for op in ops if op.name == "mlirc.assign"}
        parameters = parameter_arguments(function) - written
        kernels = [op for op in ops if is_elementwise(op) and all(comes_of(x, parameters) for x in op.operands)]
        groups = [g for g in self.groups(kernels) if ledger.allows(self.name, g[-1])]
        batched = {op for group in groups for op in group}
        move_to_beginning(ops, [op for op in kernels if op in batched])
        for group in groups:
            label = attribute_value(group[0].attributes["label"])
            taken = len(group) > 1
            ledger.record(self.name, "merge", label, "PARAMETERS", taken, group[-1], kernels=len(group))
            if taken:
                merge(group)

    def groups(self, kernels: list[Any]) -> list[list[Any]]:
        """Groups of kernels with one iteration space, in order, as large as `max_reads` allows."""
        last: dict[tuple, list[Any]] = {}
        found = []
        for op in kernels:
            group = last.get(space(op), [])
            if not group or sum(len(member.operands) for member in (*group, op)) > self.max_reads:
                group = last[space(op)] = []
                found.append(group)
            group.append(op)
        return found


def is_elementwise(op: Any) -> bool:
    if op.name != "mlircx.kernel" or not info_of(op.results[0]).device.startswith("cuda"):
        return False
    names = {item.operation.name for item in op.regions[0].blocks[0].operations}
    return not names & {"mlirc.reduce", "mlirc.scan", "mlirc.check_index"}


def comes_of(x: ir.Value, parameters: set[ir.Value]) -> bool:
    """Whether the value is a parameter, a view of one, or a constant."""
    root = view_root(x)
    return root in parameters or (
        not isinstance(root.owner, ir.Block) and root.owner.operation.name == "mlirc.constant"
    )


def move_to_beginning(ops: list[Any], kernels: list[Any]) -> None:
    """Moves the kernels, and the views and constants that they read, before all other ops, in their order."""
    moved = set(kernels)
    waiting = [x for op in kernels for x in op.operands]
    while waiting:
        owner = waiting.pop().owner
        if not isinstance(owner, ir.Block) and owner.operation not in moved:
            moved.add(owner.operation)
            waiting += owner.operation.operands
    first = next((op for op in ops if op not in moved), None)
    for op in ops:
        if first is not None and op in moved:
            op.move_before(first)

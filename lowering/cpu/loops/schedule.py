"""Schedules a kernel: the order in which its loops compute its values.

Reductions order the work into passes over the inner axes: pass k computes the reductions that depend on k others. A value that
two passes need is computed twice, read back from an output that holds it, or saved in a scratch row where computing it is
expensive.

softmax:   pass 0: max of x;  pass 1: e = exp(x - max), saved; its sum;  pass 2: e / sum, written
"""

from collections.abc import Iterable
from dataclasses import field

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.kernel.axes import Axis, Vector, is_scattered, is_transposed
from mlirc.lowering.kernel.nodes import Access, Kernel, Linear, Node, Output
from mlirc.lowering.kernel.typical_sizes import typical

SCRATCH_BYTES = 32 << 10  # of scratch rows on a thread's stack: about an L1 cache
ROWS = 8  # rows of a block whose columns are along the lanes
FEW_ROWS = 32  # columns of at most this many rows are reduced with accumulators in registers
TILE, SMALLEST_TILE = 2048, 512  # columns that are reduced at a time, divided by the number of accumulators


@dataclass(eq=False, slots=True)
class Pass:
    """A pass: one loop over the inner axes, or over all axes where no axis is inner."""

    reductions: list[Node]
    outputs: list[Output]
    keeps: list[tuple[Node, Access]] = field(default_factory=list)  # values written to scratch for a later pass
    nodes: list[Node] = field(default_factory=list)  # all values that it or its operands need, operands first
    scans: list[Node] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class LoopSchedule:
    """outer: the axes around all passes; axes: those of each pass. The vector's axis is the last, but for `block`."""

    outer: list[Axis]
    axes: list[Axis]
    vector: Vector
    block: Axis | None  # ACROSS: the last axis of a pass, in blocks; lanes run along another axis
    transposed: list[Access]  # transposed reads and outputs, whose unit stride is along `block`
    passes: list[Pass]
    outer_outputs: list[Output]  # outputs with one element for each point of the outer axes
    saved: dict[Node, tuple[int, Access]]  # value -> first pass that reads it back, and its place
    scratch: dict[int, tuple[int, torch.dtype]]  # operand number (below 0) -> elements, dtype

    @property
    def components(self) -> int:
        """Values that all accumulators of a point are made of: two for an arg reduction, one for any other."""
        folds = [n for step in self.passes for n in step.reductions + step.scans]
        return sum(2 if n.attributes["kind"].startswith("arg") else 1 for n in folds)

    @property
    def tile(self) -> int:
        """Columns that are folded at once: their accumulators stay in the cache, and their rows are read in long runs."""
        return max(TILE // max(self.components, 1) // 64 * 64, SMALLEST_TILE)

    @property
    def block_rows(self) -> int:
        """Points of `block` that are gone through at once."""
        return self.vector.lanes if self.transposed else ROWS

    @property
    def run_axis(self) -> Axis | None:
        """The innermost loop of a pass."""
        return self.axes[-1] if self.axes else None

    @property
    def vector_inside(self) -> bool:
        """Whether the lanes run along the innermost loop of a pass, not along a parallel axis around all passes."""
        return self.vector.axis is not None and self.vector.axis is self.run_axis


def make_schedule(kernel: Kernel, axes: list[Axis], vector: Vector) -> LoopSchedule:
    has_inner = any(axis.inner for axis in axes)
    outer = [a for a in axes if has_inner and not a.inner]
    inner = [a for a in axes if a.inner or not has_inner]
    for group in (outer, inner):
        if vector.axis in group:
            group.remove(vector.axis)
            group.append(vector.axis)
    transposed: list[Access] = []
    if has_inner:
        few = typical(symbols.product(a.size for a in inner)) <= FEW_ROWS
        folds = [n for n in kernel.nodes if n.kind in ("reduce", "scan")]
        across = vector.axis is not None and vector.axis in outer and all(vector.axis.name in n.dims for n in folds)
        block = inner[-1] if across and not few else None
    else:
        block = transposing_axis(kernel, inner, vector)
    if block is not None:
        inner.remove(block)
        inner.append(block)
        transposed = [a for a in kernel.accesses if is_transposed(a, vector, block)]
    names = {a.name for a in inner}
    written_inside = [o for o in kernel.outputs if not has_inner or names & (o.node.dims | o.access.address.dims)]
    scheduler = _Scheduler(kernel, inner, vector, written_inside, 0 if block else SCRATCH_BYTES)
    scheduler.run()
    return LoopSchedule(
        outer,
        inner,
        vector,
        block,
        transposed,
        scheduler.passes,
        [o for o in kernel.outputs if o not in written_inside],
        scheduler.saved,
        scheduler.scratch,
    )


def transposing_axis(kernel: Kernel, axes: list[Axis], vector: Vector) -> Axis | None:
    """The axis along which most of what is strided along the vector has stride 1."""
    accesses, others = list(kernel.accesses), [axis for axis in axes if axis is not vector.axis]
    found = [(sum(is_transposed(a, vector, axis) for a in accesses), axis) for axis in others]
    count, axis = max(found, key=lambda item: item[0], default=(0, None))
    return axis if count else None


class _Scheduler:
    def __init__(self, kernel: Kernel, axes: list[Axis], vector: Vector, outputs: list[Output], scratch_bytes: int):
        self.kernel, self.vector, self.outputs = kernel, vector, outputs
        self.axes, self.scratch_bytes = axes, scratch_bytes
        self.names = {a.name for a in axes}
        self.reductions = [n for n in kernel.nodes if n.kind == "reduce"]
        self.when = {o: o.node.depth for o in outputs}  # output -> the pass that writes it
        self.banned: set[tuple[Node, Output]] = set()

    def run(self) -> None:
        while True:
            self.attempt()
            conflict = self.conflict()
            if conflict is None:
                return
            node, output, later = conflict
            if node is None:
                self.when[output] = later
            else:
                self.banned.add((node, output))

    def attempt(self) -> None:
        self.saved: dict[Node, tuple[int, Access]] = {}
        self.borrowed: dict[Node, Output] = {}  # saved in the memory of an output that is written later
        self.scratch: dict[int, tuple[int, torch.dtype]] = {}
        self.computed: dict[Node, int] = {}  # inner value -> the first pass that computes it
        last = max([r.depth for r in self.reductions] + [w + 1 for w in self.when.values()], default=0)
        self.passes = []
        for k in range(last):
            reductions = [r for r in self.reductions if r.depth == k + 1]
            step = Pass(reductions, [o for o in self.outputs if self.when[o] == k])
            self.passes.append(step)
            roots = [r.operands[0] for r in step.reductions] + [o.node for o in step.outputs]
            seen: set[Node] = set()
            for root in roots:
                self.visit(root, k, step, seen)
            for node in step.nodes:
                if self.is_inner(node):
                    self.computed.setdefault(node, k)
            step.scans = [n for n in step.nodes if n.kind == "scan" and not self.is_read_back(n, k)]
            for output in step.outputs:
                if self.is_inner(output.node) and self.reads_memory(output.node) and self.is_direct(output.access):
                    self.saved.setdefault(output.node, (k + 1, output.access))

    def visit(self, node: Node, k: int, step: Pass, seen: set[Node]) -> None:
        """Adds what pass k computes for `node` to step.nodes."""
        if node in seen:
            return
        seen.add(node)
        if self.is_read_back(node, k):
            step.nodes.append(node)
            return
        if self.computed.get(node, k) < k and self.is_expensive(node):
            access = self.keep(node, k)
            if access is not None:
                first = self.computed[node]
                self.saved[node] = (first + 1, access)
                self.passes[first].keeps.append((node, access))
                step.nodes.append(node)
                return
        if node.kind != "reduce" or self.is_inner(node):
            for operand in node.operands:
                self.visit(operand, k, step, seen)
        step.nodes.append(node)

    def is_read_back(self, node: Node, k: int) -> bool:
        """Whether pass k reads the value from where an earlier one saved it."""
        return node in self.saved and self.saved[node][0] <= k

    def is_inner(self, node: Node) -> bool:
        return not self.names.isdisjoint(node.dims)

    def is_expensive(self, node: Node) -> bool:
        """Whether computing an inner value again is worth a store and a load."""
        return any(not n.cheap or n.kind == "scan" or self.is_gather(n) for n in self.cone(node))

    def is_gather(self, node: Node) -> bool:
        return node.access is not None and is_scattered(node.access, self.vector)

    def reads_memory(self, node: Node) -> bool:
        """Whether computing an inner value again would read an operand, or what was saved."""
        return any(n.access is not None or not self.saved.keys().isdisjoint(n.operands) for n in self.cone(node))

    def cone(self, node: Node) -> Iterable[Node]:
        """The inner values that `node` is computed from in one pass, itself included."""
        stack, seen = [node], {node}
        while stack:
            node = stack.pop()
            yield node
            for operand in node.operands:
                if operand not in seen and operand not in self.saved and self.is_inner(operand):
                    seen.add(operand)
                    stack.append(operand)

    def is_direct(self, access: Access) -> bool:
        return not is_scattered(access, self.vector)

    def keep(self, node: Node, k: int) -> Access | None:
        """The memory that holds a value until pass k: scratch, or an output that is written later; None where neither has room."""
        lanes = 1 if self.vector.axis is None or self.vector.axis in self.axes else self.vector.lanes
        count = symbols.product(a.size for a in self.axes)
        used = sum(n * t.itemsize for n, t in self.scratch.values())
        if isinstance(count, int) and used + count * lanes * node.dtype.itemsize <= self.scratch_bytes:
            number = -1 - len(self.scratch)
            self.scratch[number] = (count * lanes, node.dtype)
            strides, running = {}, lanes
            for axis in reversed(self.axes):
                strides[axis.name] = running
                running = running * axis.size
            return Access(number, node.dtype, Linear(strides, 0), contiguous_lanes=lanes > 1)
        for output in self.outputs:
            fits = output.access.dtype == node.dtype and self.when[output] >= k and self.is_direct(output.access)
            free = output not in self.borrowed.values() and (node, output) not in self.banned
            if fits and free and self.names <= output.access.address.dims:
                self.borrowed[node] = output
                return output.access
        return None

    def conflict(self) -> tuple[Node | None, Output, int] | None:
        """IN PLACE: an output may be the memory of an input read at the very index; no later pass may read it then.

        Nor may one read a value that was saved in an output's memory until that was written.
        """
        for node, output in self.borrowed.items():
            after = self.when[output] + 1
            if any(node in step.nodes for step in self.passes[after:]):
                return node, output, after
            later = self.reading(output, self.saved[node][0])
            if later is not None:
                return node, output, later
        for output, k in self.when.items():
            later = self.reading(output, k + 1)
            if later is not None:
                return None, output, later
        return None

    def reading(self, output: Output, first: int) -> int | None:
        """The last pass from `first` on that reads what may be the output's memory."""
        for k in reversed(range(first, len(self.passes))):
            for node in self.passes[k].nodes:
                if (
                    not self.is_read_back(node, k)
                    and node.access is not None
                    and self.is_inner(node)
                    and node.access.same_element_as(output.access)
                ):
                    return k
        return None

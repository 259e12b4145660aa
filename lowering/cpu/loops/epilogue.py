"""The scalar work on sums that a kernel written by hand has made: row by row, a vector of neighbouring sums at a time."""

from collections.abc import Mapping, Sequence

from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.emitter.memory import store
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.kernel.axes import Axis
from mlirc.lowering.kernel.nodes import Kernel, Node


def enter_call(e: VectorEmitter, epilogue: Sequence[Node]) -> None:
    """Computes what depends on no row, once for a call."""
    e.nodes = [n for n in epilogue if not n.dims and n.depth == 0]
    e.enter()
    e.nodes = ()


def enter_row(e: VectorEmitter, epilogue: Sequence[Node], axes: Sequence[Axis]) -> None:
    """Computes what depends on the row alone, whose indices along `axes` are in the environment."""
    e.nodes = [n for n in epilogue if n.depth == 0]
    e.enter(*(axis.name for axis in axes))
    e.nodes = ()


def finish_vector(
    e: VectorEmitter, kernel: Kernel, lanes: Axis, first: Value, sums: Mapping[Node, Value], mask: Value | None
) -> None:
    """The kernel's results along the axis of the lanes from `first` on, for these sums; those alone where `mask` holds."""
    e.env |= sums
    e.env[lanes.name] = first
    e.bound.add(lanes.name)
    if mask is not None:
        e.mask = mask
    for output in kernel.outputs:
        e.value(output.node)
    for output in kernel.outputs:
        store(e, output.access, output.node)

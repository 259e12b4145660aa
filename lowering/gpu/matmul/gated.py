"""silu(x @ a) * (x @ b) as one kernel: a and b lie in one matrix, and the epilogue has an element of both matmuls."""

from dataclasses import dataclass, replace
from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import OPS, Unary, attribute_value
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.dialects.core.kernel_builder import KernelBuilder
from mlirc.dialects.core.symbols import Int, parse_list, symbol
from mlirc.dialects.core.tensor_info import contiguous
from mlirc.dialects.core.tensor_types import info_of
from mlirc.lowering.layout.moved_views import may_move, move


@dataclass(frozen=True)
class Gate:
    """The ops that follow a matmul by two matrices side by side.

    half         the view of the activation's columns, which begin at column `start`
    other        the column at which the gate's other columns begin
    factor       the view of these other columns, or a view of that one
    activation   the op that reads `half`, or a view of all of it
    times        the multiplication of the activation by `factor`
    """

    half: Any
    start: int
    other: int
    factor: ir.Value
    activation: Any
    times: Any


def gate_of(matmul: Any) -> Gate | None:
    """The gate behind a matmul that no other op reads, or None."""
    result = matmul.results[0]
    views = [use.owner for use in result.uses]
    rows, columns = info_of(result).shape
    if len(views) != 2 or not isinstance(columns, int) or columns % 2:
        return None
    starts = [first_column(view, (rows, columns // 2)) for view in views]
    for (half, start), (beside, other) in (
        zip(views, starts, strict=True),
        zip(views[::-1], starts[::-1], strict=True),
    ):
        if start is None or other is None or {start, other} != {0, columns // 2}:
            return None
        (shown, activation), (factor, times) = (last_reader(view.results[0]) for view in (half, beside))
        if activation is None or times is None or not is_activation(activation) or times.operation.name != "mlirc.mul":
            continue
        made = activation.results[0]
        users = [use.owner.operation for use in made.uses]
        alike = info_of(shown) == info_of(factor) and info_of(made).shape == info_of(times.results[0]).shape
        if users == [times.operation] and alike and may_move(half.results[0], (columns // 2, 1)):
            return Gate(half, start, other, factor, activation, times)
    return None


def first_column(view: Any, shape: tuple[Int, ...]) -> int | None:
    """The first column of a view of this shape that selects contiguous columns of a matrix; None for any other op."""
    if view.operation.name != "mlirc.view" or info_of(view.results[0]).shape != shape:
        return None
    row, column = parse_list(attribute_value(view.attributes["map"]))
    start = column - symbol("d1")
    return start if row == symbol("d0") and isinstance(start, int) else None


def last_reader(x: ir.Value) -> tuple[ir.Value, Any | None]:
    """(value, op): the only op that reads `x`, or a view of all of `x`, and the value that it reads; (x, None) where several ops do."""
    readers = [use.owner for use in x.uses]
    if len(readers) != 1:
        return x, None
    reader = readers[0]
    if reader.operation.name == "mlirc.view" and info_of(reader.results[0]).numel == info_of(x).numel:
        return last_reader(reader.results[0])
    return x, reader


def is_activation(op: Any) -> bool:
    """Whether the op is an elementwise function of one operand, of the same dtype, that is not cheap."""
    cls = OPS.get(op.operation.name.removeprefix("mlirc."), object)
    return issubclass(cls, Unary) and not cls.cheap and info_of(op.results[0]).dtype == info_of(op.operands[0]).dtype


def replace_by_kernel(matmul: Any, gate: Gate) -> None:
    """Replaces the matmul and its gate by one kernel, at the matmul's position."""
    *bias, x, w = matmul.operands
    out = info_of(gate.half.results[0])
    out = replace(out, stride=contiguous(out.shape))
    with ir.InsertionPoint(matmul), matmul.location:
        k = KernelBuilder(out.shape, info_of(x).shape[-1:], "gated_matmul")
        row, column, at = k.dims
        sums = {}
        for start in sorted((gate.start, gate.other)):
            total = k.reduce("sum", k.mul(k.read(x, (row, at)), k.read(w, (at, column + start))))
            for b in bias:
                total = k.add(total, k.read(b, (column + start,)))
            sums[start] = total
        cls = OPS[gate.activation.operation.name.removeprefix("mlirc.")]
        attributes = {a.name: a.attr for a in gate.activation.attributes}
        gated = k.mul(k.apply(cls, sums[gate.start], attributes=attributes), sums[gate.other])
        made = k.finish([(gated, (row, column), out)])[0]
    move(gate.half.results[0], made)
    shown, times = gate.activation.operands[0], gate.times
    with ir.InsertionPoint(times), times.location:
        wanted = info_of(times.results[0])
        value = shown if info_of(shown) == wanted else GraphBuilder(wanted).copy(shown, wanted)
    times.results[0].replace_all_uses_with(value)
    for op in (times, gate.activation, gate.half):
        op.operation.erase()
    erase_views(gate.factor)
    matmul.operation.erase()


def erase_views(x: ir.Value) -> None:
    """Erases a view without readers, and then the views that only it read."""
    while x.owner.operation.name == "mlirc.view" and next(iter(x.uses), None) is None:
        view, x = x.owner, x.owner.operands[0]
        view.operation.erase()

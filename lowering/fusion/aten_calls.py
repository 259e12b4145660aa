"""Creates and inspects calls of ATen operators, for passes."""

from typing import Any

from mlirc.dialects.core import aten_arguments
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value, create
from mlirc.dialects.core.tensor_types import TensorInfo, type_of


def call_aten(op: str, given: list[Any], result: TensorInfo) -> ir.Value:
    """A call of the operator with these arguments; values among them become operands."""
    operands: list[ir.Value] = []

    def index(x: ir.Value) -> int:
        operands.append(x)
        return len(operands) - 1

    text = aten_arguments.encode(given, {}, index, [])
    return create("aten", operands, [type_of(result)], {"op": op, "args": text, "aliases": "-1"}).results[0]


def called(op: Any) -> str:
    """The operator that an `mlircx.aten` calls; "" for any other op, and where that operator's kernel is not PyTorch's."""
    if op.operation.name != "mlircx.aten" or "overridden" in op.attributes:
        return ""
    return attribute_value(op.attributes["op"])


def changeable(op: Any) -> bool:
    """Whether the call's first argument is operand 0, and no other one is: two that are one value share an operand."""
    return arguments(op)[:1] == [{"$": 0}] and attribute_value(op.attributes["args"]).count('{"$": 0}') == 1


def repeats_operand(op: Any) -> bool:
    """Whether two arguments of the call are one value, which is one operand then: conv2d(x, x). Operands have no fixed places there."""
    return attribute_value(op.attributes["args"]).count('{"$": ') > len(op.operands)


def arguments(op: Any) -> list[Any]:
    """A call's positional arguments; {"$": i} stands for operand i."""
    return aten_arguments.parse(attribute_value(op.attributes["args"]))[0]

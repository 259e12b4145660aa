"""Creates composite ops, and expands one into smaller ops in place."""

from collections.abc import Sequence
from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import create
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, type_of


def composite(
    name: str, operands: Sequence[ir.Value], results: Sequence[TensorInfo], **attributes: Any
) -> list[ir.Value]:
    """A new `mlirc.NAME` with these results, at the current insertion point."""
    return list(create(name, list(operands), [type_of(info) for info in results], attributes).results)


def expand(op: Any, operands: Sequence[ir.Value] | None = None) -> list[ir.Value]:
    """What a composite means, built at the current insertion point: values that replace its results, types included.

    `expand` of an op's class may return values of another dtype (float32 for a half result) and of another layout.
    """
    device = info_of(op.results[0]).device
    made = type(op).expand(GraphBuilder(device=device), *(operands or op.operands), **type(op).attributes_of(op))
    values = [made] if isinstance(made, ir.Value) else made
    return [with_type(value, info_of(result)) for value, result in zip(values, op.results, strict=True)]


def with_type(value: ir.Value, info: TensorInfo) -> ir.Value:
    """`value` with the dtype, strides and device of `info`."""
    g = GraphBuilder(info)
    value = g.cast(value, info.dtype)
    have = info_of(value)
    if have == info:
        return value
    assert have.shape == info.shape, f"an expansion made a tensor of shape {have.shape} instead of {info.shape}"
    return g.copy(value, info)

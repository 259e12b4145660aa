"""Channels-last order through a graph: what reads a value that oneDNN made so, and may give any layout, keeps it."""

from dataclasses import replace
from typing import Any

from mlirc.dialects.bindings import ir
from mlirc.dialects.dialect import OPS, Elementwise, Reduction, create
from mlirc.dialects.graph_builder import GraphBuilder
from mlirc.dialects.symbols import symbol
from mlirc.dialects.tensor_types import TensorInfo, info_of, type_of

POOLS = ("mlirc.max_pool", "mlirc.avg_pool", "mlirc.max_pool_backward")


def channels_last(info: TensorInfo) -> TensorInfo:
    """The images [N, C, H, W] with the channels innermost."""
    _, c, h, w = info.shape
    return replace(info, stride=(h * w * c, 1, w * c, c))


def relaid(x: ir.Value, info: TensorInfo) -> ir.Value:
    """`x` with the strides of `info`: a view where only dimensions of size 1 differ, else a copy."""
    have = info_of(x)
    if have == info:
        return x
    if all(n == 1 or a == b for n, a, b in zip(info.shape, have.stride, info.stride, strict=True)):
        return GraphBuilder(info).view(x, info.shape, info.stride, [symbol(f"d{d}") for d in range(info.rank)])
    return create("copy", [x], [type_of(info)]).out


def spread_channels_last(block: ir.Block, restored: dict[ir.Value, ir.Value]) -> None:
    """Follows values in channels-last order through elementwise ops and pools, to reductions and convolutions.

    restored    a value as the graph had it -> the same one in channels-last order, of which it is a copy

    before:  %1 = copy(%0)  %2 = max_pool(%1)                      after:  %2 = max_pool(%0) channels last  %3 = copy(%2)
    Copies that nobody reads any more go with the next clean-up; those that a result, a view or another call reads stay.
    """
    for op in list(block.operations):
        if not any(x in restored for x in op.operands):
            continue
        name = op.operation.name
        kept_shape = name in POOLS or is_elementwise(name)
        if kept_shape and info_of(op.results[0]).rank == 4:
            read_restored(op, restored)
            result = op.results[0]
            before = result.type
            result.set_type(type_of(channels_last(info_of(result))))
            with ir.InsertionPoint.after(op.operation), op.location:
                plain = create("copy", [result], [before])
            result.replace_all_uses_except(plain.out, plain.operation)
            restored[plain.out] = result
        elif name == "mlirc.max_pool_index" or is_reduction(name):
            read_restored(op, restored)
        elif name == "mlirc.copy" and op.results[0].type == restored[op.operands[0]].type:
            op.results[0].replace_all_uses_with(restored[op.operands[0]])


def read_restored(op: Any, restored: dict[ir.Value, ir.Value]) -> None:
    for k, x in enumerate(op.operands):
        op.operands[k] = restored.get(x, x)


def is_elementwise(name: str) -> bool:
    return issubclass(OPS.get(name.removeprefix("mlirc."), object), Elementwise)


def is_reduction(name: str) -> bool:
    return issubclass(OPS.get(name.removeprefix("mlirc."), object), Reduction)

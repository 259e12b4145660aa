"""Propagates channels-last order through a graph from convolutions to readers whose result may have any layout."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import OPS, Elementwise, Reduction, attribute_value, create
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.dialects.core.symbols import Int, symbol
from mlirc.dialects.core.tensor_info import contiguous
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, type_of
from mlirc.lowering.layout.moved_views import moved_view

COPIED = ("mlirc.copy", "mlirc.max_pool_index")
POOLS = ("mlirc.max_pool", "mlirc.avg_pool", "mlirc.max_pool_backward", "mlirc.avg_pool_backward")
# what puts elements elsewhere, in any order
NORM = "mlirc.batch_norm_inference"
PLACED = ("mlirc.cat2", "mlirc.cat3", "mlirc.cat4", "mlirc.pad", "mlirc.slice_scatter", "mlirc.reindex")


@lru_cache(maxsize=4096)
def channels_last(info: TensorInfo) -> TensorInfo:
    """The images [N, C, ...] with the channels innermost."""
    n, c, *image = info.shape
    last, *inner = contiguous((n, *image, c))[:-1]
    return replace(info, stride=(last, 1, *inner))


def relaid(x: ir.Value, info: TensorInfo) -> ir.Value:
    """`x` with the strides of `info`: a view where only dimensions of size 1 differ, else a copy."""
    have = info_of(x)
    if have == info:
        return x
    if all(n == 1 or a == b for n, a, b in zip(info.shape, have.stride, info.stride, strict=True)):
        return GraphBuilder(info).view(x, info.shape, info.stride, [symbol(f"d{d}") for d in range(info.rank)])
    return create("copy", [x], [type_of(info)]).out


def in_channels_last(x: ir.Value) -> ir.Value:
    return relaid(x, channels_last(info_of(x)))


def is_put_back(op: Any) -> bool:
    """Whether `op` copies an image out of channels-last order. The forward graph saves images in that order."""
    if op.operation.name != "mlirc.copy":
        return False
    x, out = info_of(op.operands[0]), info_of(op.results[0])
    return x.rank >= 3 and x != out and x == channels_last(x) and x.device == out.device


def spread_channels_last(
    block: ir.Block, restored: dict[ir.Value, ir.Value], allows: Callable[[Any], bool], everywhere: bool = False
) -> None:
    """Follows values in channels-last order through elementwise ops and pools, to reductions and convolutions; `everywhere`:
    through views and what puts elements elsewhere, too.

    allows      whether an op may be rewritten so
    restored    a value as the graph had it -> the same one in channels-last order, of which it is a copy, or a view of that

    before:  %1 = copy(%0)  %2 = max_pool(%1)                      after:  %2 = max_pool(%0) channels last  %3 = copy(%2)
    Copies that nobody reads any more go with the next clean-up; those that a result, a view or another call reads stay.
    """
    for op in list(block.operations):
        if not any(x in restored for x in op.operands):
            continue
        name = op.operation.name
        if name == "mlirc.view":
            if everywhere and allows(op):
                restore_view(op, restored)
        elif not (keeps_order(op, everywhere) or is_reduction(name) or name in COPIED) or not allows(op):
            continue
        elif keeps_order(op, everywhere):
            if is_cat_call(op) and not all(is_image(restored.get(x), op.results[0], name) for x in op.operands):
                continue  # then ATen's result may lie as any of them
            strides = next(
                filter(None, (kept_strides(restored.get(x), op.results[0], name) for x in op.operands)), None
            )
            read_restored(op, restored)
            if strides is not None:
                restore_result(op, strides, restored)
        elif name == "mlirc.max_pool_index" or is_reduction(name):
            read_restored(op, restored)
        elif name == "mlirc.copy":
            if op.results[0].type == restored[op.operands[0]].type:
                op.results[0].replace_all_uses_with(restored[op.operands[0]])
            elif everywhere:
                read_restored(op, restored)


def keeps_order(op: Any, everywhere: bool = True) -> bool:
    """Whether an op's results may lie as what it reads."""
    name = op.operation.name
    if name in (*POOLS, NORM) or is_elementwise(name):
        return True
    return everywhere and (name in PLACED or is_cat_call(op))


def is_cat_call(op: Any) -> bool:
    """Whether ATen concatenates images, more than an op of ours does: [N, C, H, W] or volumes, whose order ATen tells by their strides."""
    if op.operation.name != "mlircx.aten" or attribute_value(op.attributes["op"]) != "aten.cat.default":
        return False
    infos = [info_of(x) for x in (*op.operands, op.results[0])]
    return all(
        i.rank in (4, 5) and all(isinstance(n, int) for n in i.shape[1:]) and i.shape[1] > 1 and set(i.shape[2:]) != {1}  # type: ignore[operator]
        for i in infos
    )


def is_image(x: ir.Value | None, result: ir.Value, name: str) -> bool:
    """Whether an op of this name that reads `x`, which lies channels last, gives images that may lie so, too."""
    if x is None:
        return False
    info, out = info_of(x), info_of(result)
    return are_images(info, out, name) and info.stride[1] == 1


def kept_strides(x: ir.Value | None, result: ir.Value, name: str) -> tuple[Int, ...] | None:
    """The strides of the result of an op of this name that reads `x`, which lies channels last: channels last, or in the order of `x` where
    a view has split its channels; None where the result may not lie so.
    """
    if x is None:
        return None
    info, out = info_of(x), info_of(result)
    if is_image(x, result, name):
        return channels_last(out).stride
    split = is_elementwise(name) and info.shape == out.shape and not info.is_contiguous and info.is_dense
    return info.stride if split else None


def are_images(info: TensorInfo, out: TensorInfo, name: str) -> bool:
    """Whether an operand and the result of an op of this name are images that may lie in one order."""
    if out.rank < 3 or info.rank != out.rank:
        return False
    return info.shape == out.shape if is_elementwise(name) else info.shape[0] == out.shape[0]


def restore_result(op: Any, strides: tuple[Int, ...], restored: dict[ir.Value, ir.Value]) -> None:
    result = op.results[0]
    before = result.type
    result.set_type(type_of(replace(info_of(result), stride=strides)))
    with ir.InsertionPoint.after(op.operation), op.location:
        plain = create("copy", [result], [before])
    result.replace_all_uses_except(plain.out, plain.operation)
    restored[plain.out] = result


def restore_view(view: Any, restored: dict[ir.Value, ir.Value]) -> None:
    """Makes the view anew on the channels-last value, and notes it in `restored`."""
    source, info = restored[view.operands[0]], info_of(view.results[0])
    moved = moved_view(view, info_of(source).stride)
    if moved is None:
        return
    map_ = symbols.parse_list(attribute_value(view.attributes["map"]))
    with ir.InsertionPoint.after(view.operation), view.location:
        restored[view.results[0]] = GraphBuilder(info).view(source, info.shape, moved[0], map_, moved[1])


def read_restored(op: Any, restored: dict[ir.Value, ir.Value]) -> None:
    for k, x in enumerate(op.operands):
        op.operands[k] = restored.get(x, x)


def is_elementwise(name: str) -> bool:
    return issubclass(OPS.get(name.removeprefix("mlirc."), object), Elementwise)


def is_reduction(name: str) -> bool:
    return issubclass(OPS.get(name.removeprefix("mlirc."), object), Reduction)

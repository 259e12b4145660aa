"""Changes the strides of a value: readers through views get views with other strides."""

from functools import lru_cache
from typing import Any

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import TensorInfo, info_of
from mlirc.lowering.kernel.nodes import is_dim, linear_form


def may_move(x: ir.Value, stride: tuple[Int, ...]) -> bool:
    """Whether all readers of `x` can take it with these strides.

    A result of the graph keeps its strides, so it cannot. A view of `x` can if some strides describe it in the new layout.
    """
    for use in x.uses:
        reader = use.owner
        if reader.operation.name in ("func.return", "mlirc.assign"):
            return False
        if reader.operation.name == "mlirc.view":
            moved = moved_view(reader, stride)
            if moved is None or not may_move(reader.results[0], moved[0]):
                return False
    return True


def moved_view(view: Any, stride: tuple[Int, ...]) -> tuple[tuple[Int, ...], Int] | None:
    """Strides and offset of a view whose operand has the strides `stride`; None where no strides describe it."""
    text = attribute_value(view.attributes["map"])
    return _moved(text, info_of(view.results[0]), stride) if text else None


@lru_cache(maxsize=65536)
def _moved(map_: str, info: TensorInfo, stride: tuple[Int, ...]) -> tuple[tuple[Int, ...], Int] | None:
    address: Int = 0
    for index, step in zip(symbols.parse_list(map_), stride, strict=True):
        address = address + index * step
    ranges = {f"d{k}": n for k, n in enumerate(info.shape)}
    linear = linear_form(symbols.without_mods(symbols.substitute(address, {}, ranges)), frozenset(ranges))
    if any(map(is_dim, symbols.free_symbols(linear.rest))):
        return None
    strides = [
        old if n == 1 else linear.strides.get(f"d{k}", 0)
        for k, (n, old) in enumerate(zip(info.shape, info.stride, strict=True))
    ]
    return tuple(strides), linear.rest


def move(old: ir.Value, new: ir.Value) -> None:
    """Replaces `old` by `new`, the same elements with other strides, which `may_move` must allow. Each view of `old` is replaced by one of
    `new`, and erased."""
    for use in list(old.uses):
        reader = use.owner
        if reader.operation.name != "mlirc.view":
            reader.operands[use.operand_number] = new
            continue
        moved = moved_view(reader, info_of(new).stride)
        assert moved is not None
        info = info_of(reader.results[0])
        with ir.InsertionPoint(reader), reader.location:
            map_ = symbols.parse_list(attribute_value(reader.attributes["map"]))
            view = GraphBuilder(info).view(new, info.shape, moved[0], map_, moved[1])
        move(reader.results[0], view)
        reader.operation.erase()

"""Chooses which convolutions of a graph are channels last: all or none of a region that images pass through in one layout."""

from collections.abc import Callable
from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.symbols import Int, product
from mlirc.dialects.core.tensor_types import info_of
from mlirc.lowering.layout.channels_last import are_images, channels_last, is_reduction, keeps_order
from mlirc.lowering.layout.joined_images import Regions
from mlirc.lowering.layout.moved_views import moved_view

COPY = 0.25  # ns for an element, read and written


def regions_of(block: ir.Block, images_of: Callable[[Any], tuple[list[ir.Value], float]]) -> Regions:
    """Regions of a graph, as spread_channels_last follows them. `images_of` an op: those of a convolution, and what it gains;
    none for any other op.

    At the border of a region an image is copied once each way. What was channels last before is copied where it is not so.
    """
    regions = Regions()
    images: dict[ir.Value, bool] = {}  # that are followed -> whether they are made inside
    outside: set[ir.Value] = set()  # that are read by what wants them as eager has them
    for op in block.operations:
        name = op.operation.name
        joined, gain = images_of(op)
        if joined:
            regions.join(joined)
            regions.add(joined[0], gain)
        elif is_put_back(op):
            images[op.results[0]] = False
        elif any(x in images for x in op.operands):
            if name == "mlirc.view" or keeps_order(name):
                joined = [x for x in (*op.operands, op.results[0]) if keeps_image(x, op)]
                regions.join(joined)
            elif not is_reduction(name) and name != "mlirc.copy":
                outside.update(x for x in op.operands if x in images)
        for x in joined:
            images[x] = images.get(x, False) or x in op.results
    for x, made_inside in images.items():
        regions.add(x, border(x, made_inside, x in outside))
    return regions


def border(x: ir.Value, made_inside: bool, read_outside: bool) -> float:
    """What the copies of an image cost where its region lies channels last, less those where it does not."""
    info = info_of(x)
    copied = COPY * few(info.shape)
    gain = -copied if read_outside else 0.0
    if made_inside:
        return gain
    came_last = info == channels_last(info) or (not isinstance(x.owner, ir.Block) and is_put_back(x.owner))
    return gain + (copied if came_last else -copied)


def few(shape: tuple[Int, ...]) -> int:
    """Elements, as if sizes that nobody knows were 1."""
    count = product([n for n in shape if isinstance(n, int)])
    assert isinstance(count, int)
    return count


def keeps_image(x: ir.Value, op: Any) -> bool:
    """Whether `x`, an operand or the result, may lie channels last as the others do."""
    name, info, out = op.operation.name, info_of(x), info_of(op.results[0])
    if name == "mlirc.view":
        source = info_of(op.operands[0])
        return source.rank >= 3 and moved_view(op, channels_last(source).stride) is not None
    return are_images(info, out, name) and 0 not in info.stride


def is_put_back(op: Any) -> bool:
    """Whether it copies images out of channels-last order: such as the forward graph saved so."""
    if op.operation.name != "mlirc.copy":
        return False
    x, out = info_of(op.operands[0]), info_of(op.results[0])
    return x.rank >= 3 and x != out and x == channels_last(x) and x.device == out.device == "cpu"

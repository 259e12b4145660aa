"""Chooses which convolutions of a graph are channels last: all or none of a region that images pass through in one layout."""

from collections.abc import Callable
from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.symbols import Int, product
from mlirc.dialects.core.tensor_types import info_of
from mlirc.lowering.layout.channels_last import are_images, channels_last, is_put_back, is_reduction, keeps_order
from mlirc.lowering.layout.joined_images import Regions
from mlirc.lowering.layout.moved_views import moved_view

COPY = 0.25  # ns for an element, read and written


def regions_of(block: ir.Block, images_of: Callable[[Any], tuple[list[ir.Value], float]]) -> Regions:
    """The regions of a block, through the ops that spread_channels_last follows. `images_of(op)`: the images of a convolution, and the
    ns that channels last saves it; no images for another op.

    At a region's border an image is copied once in each direction. An image that comes channels last is copied if its region is not.
    """
    regions = Regions()
    images: dict[ir.Value, bool] = {}  # image -> whether an op of its region makes it
    outside: set[ir.Value] = set()  # images that an op outside of their region reads
    for op in block.operations:
        name = op.operation.name
        joined, gain = images_of(op)
        if joined:
            regions.join(joined)
            regions.add(joined[0], gain)
        elif is_put_back(op):
            images[op.results[0]] = False
        elif any(x in images for x in op.operands):
            if name == "mlirc.view" or keeps_order(op):
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
    """ns that channels last saves in copies of the image `x`; negative where it needs more copies."""
    info = info_of(x)
    copied = COPY * few(info.shape)
    gain = -copied if read_outside else 0.0
    if made_inside:
        return gain
    came_last = info == channels_last(info) or (not isinstance(x.owner, ir.Block) and is_put_back(x.owner))
    return gain + (copied if came_last else -copied)


def few(shape: tuple[Int, ...]) -> int:
    """The number of elements; a symbolic size counts as 1."""
    count = product([n for n in shape if isinstance(n, int)])
    assert isinstance(count, int)
    return count


def keeps_image(x: ir.Value, op: Any) -> bool:
    """Whether `x`, an operand or the result of `op`, may have the layout of its region."""
    name, info, out = op.operation.name, info_of(x), info_of(op.results[0])
    if name == "mlirc.view":
        source = info_of(op.operands[0])
        return source.rank >= 3 and moved_view(op, channels_last(source).stride) is not None
    return are_images(info, out, name) and 0 not in info.stride

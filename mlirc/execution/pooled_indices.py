"""Indices that a max pooling gives, for a graph that takes its gradient: others are of no pooling, and its gradient has no meaning for them."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.tensor_types import info_of
from mlirc.execution.modules import graph_of, one_thread_if_small

POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
NAMES = ("window", "stride", "padding", "dilation")


def pooled_indices(
    module: ir.Module, sizes: Mapping[str, int], generator: torch.Generator
) -> Iterator[tuple[int, torch.Tensor]]:
    """For each argument that mlirc.max_pool_backward takes for indices, its position and those of a drawn image."""
    for op in graph_of(module).regions[0].blocks[0].operations:
        if op.operation.name != "mlirc.max_pool_backward":
            continue
        index = op.operands[1]
        while not isinstance(index.owner, ir.Block) and index.owner.name == "mlirc.copy":
            index = index.owner.operands[0]
        if not isinstance(index.owner, ir.Block):
            continue
        window, *others = (list(symbols.parse_numbers(attribute_value(op.attributes[name]))) for name in NAMES)
        shape, wanted = ([symbols.evaluate(n, sizes) for n in info_of(x).shape] for x in (op.results[0], index))
        image = torch.rand(shape, generator=generator)
        with one_thread_if_small(()):  # threads of a process that is forked later would be waited for in the fork
            found = indices_of(image, wanted, window, others)
        if found is not None:
            yield index.arg_number, found


def indices_of(image: torch.Tensor, wanted: list[int], window: list[int], others: list[list[int]]) -> Any:
    """The indices of an image's pooling that have the shape `wanted`; None where they have it in neither of PyTorch's ways to count windows."""
    lead = image.dim() - len(window)
    flat = image.reshape(-1, 1, *image.shape[lead:])
    for ceil in (False, True):
        try:
            _, found = POOLS[len(window)](flat, window, *others, ceil_mode=ceil, return_indices=True)
        except RuntimeError:  # an empty image, or padding that no pooling takes
            continue
        found = found.reshape(*image.shape[:lead], *found.shape[2:])
        if list(found.shape) == wanted:
            return found
    return None

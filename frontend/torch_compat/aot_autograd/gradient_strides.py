"""Lets gradients have any strides where these say nothing: of dimensions of size 1, and of what is empty.

AOTAutograd copies a gradient that a backward graph gets into the strides that it expects, where it has others. It expects those of a view of the
result, and views have other strides in dimensions of size 1: a batch of one image would be copied in each step. Under vmap, as in
torch.autograd.grad(is_grads_batched=True), that copy raises. Where the metadata are not as expected, AOTAutograd copies as it does under
`aot_eager`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch._prims_common import make_channels_last_strides_for, make_contiguous_strides_for

from mlirc.frontend.torch_compat.dynamo.tracing_context import TracingContext


def ask_for_order_alone() -> None:
    """Changes the metadata of the graph that is being compiled."""
    tracing = TracingContext.try_get()
    for meta in getattr(getattr(tracing, "fw_metadata", None), "subclass_tangent_meta", None) or ():
        known: Any = getattr(meta, "memory_format", None)
        size, stride = getattr(known, "size", None), getattr(known, "stride", None)
        if size is None or stride is None or not all(type(n) is int for n in (*size, *stride)):
            continue
        try:
            if 0 in size or same(size, stride, make_contiguous_strides_for(size)):
                meta.memory_format = replace(known, size=None, stride=None, memory_format=torch.contiguous_format)
            elif len(size) in (4, 5) and same(size, stride, make_channels_last_strides_for(size)):
                # vmap knows no other memory format
                meta.memory_format = replace(known, stride=make_channels_last_strides_for(size))
        except (AttributeError, TypeError):
            return


def same(size: Sequence[int], stride: Sequence[int], other: Sequence[int]) -> bool:
    """Whether strides agree in all dimensions of more than one element."""
    return all(n == 1 or a == b for n, a, b in zip(size, stride, other, strict=True))

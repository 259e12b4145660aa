"""Lets gradients without elements have any strides.

AOTAutograd copies a gradient that a backward graph gets into the strides of its result, where it has others. Under vmap, as in
torch.autograd.grad(is_grads_batched=True), that copy raises. What is empty needs none: each memory format is its own. Where the
metadata are not as expected, AOTAutograd copies as it does under `aot_eager`.
"""

from dataclasses import replace
from typing import Any

import torch

from mlirc.frontend.torch_compat.dynamo.tracing_context import TracingContext


def take_empty_as_they_are() -> None:
    """Changes the metadata of the graph that is being compiled."""
    tracing = TracingContext.try_get()
    for meta in getattr(getattr(tracing, "fw_metadata", None), "subclass_tangent_meta", None) or ():
        known: Any = getattr(meta, "memory_format", None)
        size = getattr(known, "size", None)
        if size is not None and any(type(n) is int and n == 0 for n in size):
            try:
                meta.memory_format = replace(known, size=None, stride=None, memory_format=torch.contiguous_format)
            except (AttributeError, TypeError):
                return

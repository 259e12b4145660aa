"""Inputs of a graph under the names that Dynamo's guards have for them.

A tensor that is an input and another input's base (`f(a[1:], a)`) has two names, and Dynamo keeps the later one for AOTAutograd,
which makes symbols of sizes by it: `L['b']._base.size()[0]`. Nothing gives their values when a guard is checked, so that the
first guard of AOTAutograd or of ours raises IndexError or "sources must not be empty" in the user's call.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule

from mlirc.frontend.torch_compat.dynamo.tracing_context import TracingContext


def name_as_guarded(gm: GraphModule, inputs: Sequence[Any]) -> None:
    """Gives each tensor that has symbols as a graph's argument that argument's name."""
    tracing = TracingContext.try_get()
    contexts = getattr(tracing, "tensor_to_context", None)
    if contexts is None:
        return
    for node, x in zip(gm.graph.find_nodes(op="placeholder"), inputs, strict=False):
        source = getattr(node.meta.get("grapharg"), "source", None)
        context = contexts.get(x) if isinstance(x, torch.Tensor) and source is not None else None
        named = getattr(context, "tensor_source", None)
        if named is None or named == source:
            continue
        symbols = getattr(context, "shape_env_to_source_to_symbol_cache", {})
        if any(of.startswith(f"{text(source)}.") for made in symbols.values() for of in made):
            contexts[x] = replace(context, tensor_source=source)  # type: ignore[arg-type]


def text(source: Any) -> str:
    """A property since torch 2.13, before it a method."""
    return source.name if isinstance(source.name, str) else source.name()

"""Inputs of a graph under the names that Dynamo's guards have for them.

A tensor that is an input and another input's base (`f(a[1:], a)`) has two names, and Dynamo keeps the later one for AOTAutograd,
which makes symbols of sizes by it: `L['b']._base.size()[0]`. Nothing gives their values when a guard is checked, so that the
first guard of AOTAutograd or of ours raises IndexError or "sources must not be empty" in the user's call.

A size that Dynamo has found to be a number stays a number: as a symbol it gives a fake tensor whose sizes are ints and which says
that it has symbols, of which AOTAutograd's search for overlapping inputs cannot take the number of elements.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule

from mlirc.frontend.torch_compat.dynamo.tracing_context import TracingContext


def name_as_guarded(gm: GraphModule, inputs: Sequence[Any]) -> None:
    """Gives each tensor that has symbols as a graph's argument that argument's name, and numbers for the symbols that are known."""
    tracing = TracingContext.try_get()
    contexts = getattr(tracing, "tensor_to_context", None)
    if contexts is None:
        return
    env = getattr(getattr(tracing, "fake_mode", None), "shape_env", None)
    for node, x in zip(gm.graph.find_nodes(op="placeholder"), inputs, strict=False):
        context = contexts.get(x) if isinstance(x, torch.Tensor) else None
        made = getattr(context, "shape_env_to_source_to_symbol_cache", None)
        if made is None:
            continue
        changes = {} if env is None else with_numbers(context, env)
        source, named = getattr(node.meta.get("grapharg"), "source", None), getattr(context, "tensor_source", None)
        differs = None not in (source, named) and named != source
        if differs and any(of.startswith(f"{text(source)}.") for symbols in made.values() for of in symbols):
            changes["tensor_source"] = source
        if changes:
            contexts[x] = replace(context, **changes)  # type: ignore[arg-type]


def with_numbers(context: Any, env: Any) -> dict[str, Any]:
    """What changes in a context: numbers for the symbols that are known, of the tensor and of its base, which may be an input, too."""
    made = getattr(context, "shape_env_to_source_to_symbol_cache", None) or {}
    symbols = made.get(id(env), {})
    numbers = {of: n for of, s in symbols.items() if (n := env.replace(s)).is_Integer and n is not s}
    changes: dict[str, Any] = {}
    if numbers:
        changes["shape_env_to_source_to_symbol_cache"] = {**made, id(env): symbols | numbers}
    base = getattr(context, "view_base_context", None)
    if base is not None and (changes_of_base := with_numbers(base, env)):
        changes["view_base_context"] = replace(base, **changes_of_base)
    return changes


def text(source: Any) -> str:
    """A property since torch 2.13, before it a method."""
    return source.name if isinstance(source.name, str) else source.name()

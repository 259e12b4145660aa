"""Makes a result that is a view of an input by the views that eager makes, where sizes are symbols: at a call.

    ("replayed", [result, input, [["aten::slice", "Tensor", [0, "1"]]], {"s0": [input, 0]}])     from views_to_replay.py

A result that is returned twice is one object. A warm start runs this, without MLIR and the importer.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from mlirc.dialects.core import symbols

ITEM = "item"  # the step that takes one result of several


def replayer(
    outputs: Sequence[tuple[str, Any]],
) -> tuple[list[tuple[str, Any]], Callable[[list], list[tuple[list[int], Callable]]] | None]:
    """The outputs as the program has them, and what takes of a call's inputs the results that are made of them (None for none)."""
    plans = [(place, *x) for place, (kind, x) in enumerate(outputs) if kind == "replayed"]
    plain = [("result", x[0]) if kind == "replayed" else (kind, x) for kind, x in outputs]
    if not plans:
        return plain, None
    places: dict[int, list[int]] = {}
    for place, result, *_ in plans:
        places.setdefault(result, []).append(place)
    known = {result: (source, [read(step) for step in steps], names) for _, result, source, steps, names in plans}

    def take(args: list) -> list[tuple[list[int], Callable]]:
        made = []
        for result, (source, steps, names) in known.items():
            values = {
                n: args[k].shape[d] if isinstance(args[k], torch.Tensor) else args[k] for n, (k, d) in names.items()
            }
            made.append((places[result], lambda x=args[source], steps=steps, values=values: replay(x, steps, values)))
        return made

    return plain, take


def read(step: list) -> tuple[Any, list]:
    name, overload, args = step
    if name == ITEM:
        return None, args
    namespace, _, plain = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), plain)
    return getattr(packet, overload or "default"), [parsed(x) for x in args]


def parsed(x: Any) -> Any:
    return list(map(parsed, x)) if isinstance(x, list) else symbols.parse(x) if isinstance(x, str) else x


def replay(x: Any, steps: list[tuple[Any, list]], values: dict[str, int]) -> torch.Tensor:
    for call, args in steps:
        x = x[args[0]] if call is None else call(x, *(valued(arg, values) for arg in args))
    return x


def valued(x: Any, values: dict[str, int]) -> Any:
    if isinstance(x, list):
        return [valued(y, values) for y in x]
    return x if x is None or isinstance(x, bool) else symbols.evaluate(x, values)

"""Finds results that are views of inputs, and the views that eager makes of them (replayed_views.py).

    return x[1:]      ("replayed", [result, input, [["aten::slice", "Tensor", [0, "1"]]], {"s0": [input, 0]}])

AOTAutograd makes such a result anew from the user's tensor, and its gradient is that of the views it repeats. With known sizes
it has a list of them; with symbols it asks the graph's result, which must be a view of the graph's input that autograd recorded.

With gradients it takes parts of an input (`x.chunk(3)`) for new tensors, and views of those: there the graph's result is the program's.

Without gradients it takes the graph's result too where a view has a symbol, and makes the user's view by its sizes, strides and offset.
Of a view that conjugates or negates, the graph has a copy, which begins at 0 and holds the values: such a result is replayed too.
So are real numbers seen as complex ones, for which it asks that the user's tensor itself has a last dimension of 2.
"""

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from mlirc.dialects.core import symbols
from mlirc.frontend.capture.lazy_results import is_lazy_view
from mlirc.frontend.capture.replayed_views import ITEM
from mlirc.frontend.capture.result_views import seen_by
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.importer import views
from mlirc.frontend.importer.result_outputs import Outputs
from mlirc.frontend.importer.sizes import environment_of, size

PAIRED = torch.ops.aten.view_as_complex.default
CUT = (torch.ops.aten.detach.default, torch.ops.aten.view.dtype)


def with_replays(gm: GraphModule, outputs: Outputs, returned: int, gradients: bool) -> list[tuple[str, Any]]:
    """The outputs of a graph, of which some of the first `returned` become ("replayed", ...): with `gradients` each view of an input
    that AOTAutograd does not repeat itself, else those that conjugate or negate, or see real numbers as complex ones.

    Raises UnsupportedGraph where one of the latter has a view that has no text."""
    made, symbolic = list(outputs), environment_of(gm) is not None
    nodes: list[Any] = list(gm.graph.output_node().args[0])[:returned]  # type: ignore[arg-type]
    placeholders = gm.graph.find_nodes(op="placeholder")
    writes = gm.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
    own = {n: n for n in placeholders}
    inputs = own | {n.args[1]: n.args[0] for n in writes if n.args[0] in own}
    for place, (node, (kind, k)) in enumerate(zip(nodes, outputs, strict=False)):
        if kind != "result" or not isinstance(node, Node) or node.op != "call_function":
            continue
        needed = symbolic and (is_lazy_view(node) or sees_pairs(node)) and seen_by(node) in inputs
        found = steps_of(node) if gradients or needed else None
        if found is not None and found[0] in (inputs if needed else own) and (symbolic or is_part(found[1])):
            names = sources(found[1], placeholders)
            if names is not None:
                made[place] = "replayed", [k, placeholders.index(inputs[found[0]]), found[1], names]
        if needed and made[place][0] != "replayed":
            raise UnsupportedGraph(
                "a result is a view of an input that negates, conjugates or pairs its numbers, under symbolic sizes"
            )
    return made


def sees_pairs(node: Node) -> bool:
    """Whether a node views pairs of real numbers, which are computed or given, as complex ones."""
    source = seen_by(node)
    seen: Any = node
    while seen is not source and seen.target is not PAIRED:
        seen = views.viewed(seen)
    return seen is not source and node.meta["val"].is_complex() and not source.meta["val"].is_complex()


def steps_of(node: Node) -> tuple[Node, list] | None:
    """What a node is a view of at last, and the views, first one first; None where one of them has no text or no gradient."""
    steps: list = []
    try:
        while views.viewed(node) is not None:
            if node.target is operator.getitem:
                steps.append([ITEM, "", [node.args[1]]])
            elif node.target in CUT or node.kwargs or not isinstance(node.target, torch._ops.OpOverload):
                return None
            else:
                name, overload = node.target.name().partition(".")[0], node.target._overloadname
                steps.append([name, overload, list(map(text_of, node.args[1:]))])
            node = node.args[0]  # type: ignore[assignment]
    except (TypeError, UnsupportedGraph):
        return None
    return (node, steps[::-1]) if steps else None


def is_part(steps: list) -> bool:
    return any(name == ITEM for name, _, _ in steps)


def text_of(x: Any) -> Any:
    """An argument for json: sizes are texts."""
    x = x.meta["val"] if isinstance(x, Node) else x
    if isinstance(x, (list, tuple)):
        return list(map(text_of, x))
    return x if x is None or isinstance(x, bool) else str(size(x))


def sources(steps: list, placeholders: Sequence[Node]) -> dict[str, list[int]] | None:
    """Where each symbol of the steps is found: an input that is an int, or its dimension. None where one is nowhere."""
    found: dict[str, list[int]] = {}
    for k, node in enumerate(placeholders):
        fake = node.meta.get("val")
        for d, n in enumerate(fake.shape if isinstance(fake, torch.Tensor) else [fake]):
            if isinstance(n, torch.SymInt) and str(size(n)).isidentifier():
                found.setdefault(str(size(n)), [k, d])
    names = set().union(*(symbols.free_symbols(symbols.parse(x)) for x in texts(steps)))
    return {name: found[name] for name in names} if names <= found.keys() else None


def texts(steps: list) -> list[str]:
    flat = [x for name, _, args in steps if name != ITEM for y in args for x in (y if isinstance(y, list) else [y])]
    return [x for x in flat if isinstance(x, str)]

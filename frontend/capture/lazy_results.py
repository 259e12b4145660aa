"""Results that conjugate or negate what is in memory, as eager's do: a program gives the memory, and the flags are set on what it gave.

    return (x * 2).conj()     %m = mul(%x, 2);  %c = _conj(%m);  return %c      ->      return %m, and ("lazy", ["result", k, True, False, False])

A result's view that undoes an earlier one (`x.conj().conj()`) is a view of what is in memory too.
"""

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from mlirc.frontend.capture.result_views import DETACH, seen_by, value_of
from mlirc.frontend.importer import views
from mlirc.frontend.importer.result_outputs import Outputs
from mlirc.frontend.importer.storage_readers import LAZY
from mlirc.frontend.torch_compat.fake_tensors import as_traced, detect_fake_mode

Flags = dict[int, tuple[bool, bool, bool]]
"""Whether a result is conjugated, negated, and detached at last, by its place."""


def with_results_in_memory(gm: GraphModule, returned: int) -> tuple[GraphModule, Flags]:
    """A graph that returns what is in memory, and the flags of those of its first `returned` results that are views
    which conjugate or negate; the graph itself, where none has any.

    Views of inputs, and of what is written to them, stay as they are: AOTAutograd makes those anew (views_to_replay.py).
    """
    written = {node.args[1] for node in gm.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)}
    results = dict(enumerate(results_of(gm.graph)[:returned]))
    computed = {k: x for k, x in results.items() if is_lazy_view(x) and seen_by(x).op == "call_function"}
    shown = {k: x for k, x in computed.items() if seen_by(x) not in written and flags_of(x) is not None}
    flags = {k: (x.meta["val"].is_conj(), x.meta["val"].is_neg(), x.target is DETACH) for k, x in shown.items()}
    mode = detect_fake_mode([x.meta["val"] for x in shown.values()])
    if not flags or mode is None:
        return gm, {}
    graph = Graph()
    output = graph.output(graph.graph_copy(gm.graph, {}))
    made = results_of(graph)
    with as_traced(mode), graph.inserting_before(output):
        plain = [without_flags(graph, x) if k in flags else x for k, x in enumerate(made)]
    output.args = (plain,)
    output.meta = dict(gm.graph.output_node().meta)
    graph.eliminate_dead_code()
    copy = GraphModule(gm, graph)
    copy.meta = gm.meta
    return copy, flags


def results_of(graph: Graph) -> Sequence[Any]:
    return list(graph.output_node().args[0])  # type: ignore[arg-type]


def is_lazy_view(node: Any) -> bool:
    """Whether one of a node's views conjugates or negates: what another undoes is a copy in a program too."""
    while isinstance(node, Node) and node.target not in LAZY:
        node = views.viewed(node)
    return node is not None and isinstance(node, Node)


def behind(node: Node) -> Node | None:
    """What a view is taken of, one step: the list, of one of its views."""
    source = views.viewed(node)
    return node.args[0] if source is not None and node.target is operator.getitem else source  # type: ignore[return-value]


def flags_of(node: Node) -> tuple[bool, bool] | None:
    """Whether views make of what is in memory its conjugate, and its negative; None where one of them may be a copy instead."""
    source = behind(node)
    known = (False, False) if source is None else flags_of(source)
    if known is None:
        return None
    conjugated, negated = known[0] ^ (node.target is LAZY[0]), known[1] ^ (node.target is LAZY[1])
    value = value_of(node)
    seen = (value.is_conj(), value.is_neg()) if isinstance(value, torch.Tensor) else known  # a list of views
    return seen if seen == (conjugated, negated) else None


def without_flags(graph: Graph, node: Node) -> Node:
    """The views of `node` taken again of what is in memory."""
    viewed = behind(node)
    if viewed is None:
        return node
    source = without_flags(graph, viewed)
    if node.target in LAZY or source is viewed:
        return source if node.target in LAZY else node
    made = graph.node_copy(node, lambda x: source if x is viewed else x)
    values = torch.fx.map_arg((made.args, made.kwargs), value_of)
    made.meta = node.meta | {"val": made.target(*values[0], **values[1])}  # type: ignore[operator]
    return made


def with_flags(outputs: Outputs, flags: Flags) -> list[tuple[str, Any]]:
    """The outputs, of which those with flags become ("lazy", [kind, what, conjugated, negated, detached])."""
    return [("lazy", [*x, *flags[k]]) if k in flags else x for k, x in enumerate(outputs)]

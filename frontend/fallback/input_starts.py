"""Runs a graph in eager where AOTAutograd would return a view of an input that begins elsewhere in memory.

Where sizes are symbols, AOTAutograd makes a result that views an input by `as_strided`, at the offset that the view has in the
graph. Of an input that the graph writes to, the graph has a copy, which begins at its own storage's start; the input may not.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import torch
from torch.fx import GraphModule

from mlirc.frontend.fallback.unless import in_eager_unless
from mlirc.frontend.torch_compat.dynamo.trees import tree_leaves
from mlirc.frontend.torch_compat.fake_tensors import storage_id

BEGINS_LATER = "an input that is written to, and whose view is a result, does not begin at its storage's start"


def with_starts(run: Callable, gm: GraphModule, tell: Callable[[Exception], None]) -> Callable:
    """`run`; the graph in eager for inputs that begin later. `tell` hears of the first such call."""
    places = written_and_viewed(gm)
    if not places:
        return run
    return in_eager_unless(lambda args: not any(args[k].storage_offset() for k in places), run, gm, BEGINS_LATER, tell)


def written_and_viewed(gm: GraphModule) -> Sequence[int]:
    """The inputs of a graph of Dynamo's with symbols that it writes to and returns views of."""
    nodes = gm.graph.find_nodes(op="placeholder")
    values = [node.meta.get("example_value") for node in nodes]
    if not any(isinstance(x, torch.SymInt) for x in values):
        return ()
    results = [x for x in tree_leaves(gm.graph.output_node().args) if isinstance(x, torch.fx.Node)]
    fakes = [x for x in (node.meta.get("example_value") for node in results) if is_strided(x)]
    shown = {
        storage_id(x) for x in fakes if not any(x is given for given in values)
    }  # an input itself is no view of it
    return sorted(written_to(gm, {k: x for k, x in enumerate(values) if is_strided(x) and storage_id(x) in shown}))


def is_strided(x: Any) -> TypeGuard[torch.Tensor]:
    return isinstance(x, torch.Tensor) and x.layout is torch.strided


def written_to(gm: GraphModule, given: dict[int, torch.Tensor]) -> set[int]:
    """Which of the fake tensors tracing has written to; those of inference mode do not say. An operator on lists leaves the
    versions of its tensors as they are."""
    lists = [n for n in gm.graph.nodes if n.op == "call_function" and is_list_operator_in_place(n.target)]
    nodes = [x for n in lists for x in tree_leaves(list(n.args)) if isinstance(x, torch.fx.Node)]
    memory = {storage_id(x) for x in (node.meta.get("example_value") for node in nodes) if is_strided(x)}
    return {k for k, x in given.items() if x.is_inference() or x._version > 0 or storage_id(x) in memory}


def is_list_operator_in_place(target: Any) -> bool:
    name = getattr(target, "__name__", "")
    return name.startswith("_foreach_") and name.endswith("_")

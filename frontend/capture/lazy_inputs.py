"""Inputs that conjugate or negate what is in memory: a program takes what is in memory, and its graph begins with the view of that.

    %x = placeholder, conjugated;  %y = mul(%x, 2)     ->      %m = placeholder;  %x = _conj(%m);  %y = mul(%x, 2)

A write to such an input writes what is to be in its memory. A result that is the input itself, as forward graphs save inputs, is the
tensor that the call was given. Dynamo compiles anew where an input has other flags.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from mlirc.codegen.abi.lazy_tensors import in_memory, is_lazy
from mlirc.frontend.torch_compat.dynamo.lazy_graph import lazy_graph_module
from mlirc.frontend.torch_compat.fake_tensors import as_traced, detect_fake_mode

aten = torch.ops.aten
Run = Callable[[list], list]
VIEWS = {"conj": aten._conj.default, "neg": aten._neg_view.default}
VALUES = {"conj": aten.conj_physical.default, "neg": aten.neg.default}
"""What computes the same, in memory."""
Flags = dict[int, list[str]]
"""Of an input, by its place: of which of VIEWS its tensor is one."""


def lazy_inputs(gm: GraphModule) -> Flags:
    """The inputs of an ATen graph that conjugate or negate; of a backward graph those of its forward graph."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    saved = any(str(node.target).startswith("tangents") for node in placeholders)
    given = {k: x for k, x in enumerate(placeholders) if not saved or str(x.target).startswith("primals")}
    return {k: flags for k, x in given.items() if (flags := flags_of(x.meta.get("val")))}


def flags_of(x: Any) -> list[str]:
    if not isinstance(x, torch.Tensor) or x.layout is not torch.strided:
        return []
    return ["conj"] * x.is_conj() + ["neg"] * x.is_neg()


def taking_memory(gm: GraphModule, inputs: Sequence[Any], flags: Flags) -> tuple[GraphModule, list[Any]]:
    """A copy of the graph whose inputs with flags are what is in memory; and `inputs`, fake or real ones, in the same way."""
    copies: dict[Node, Node] = {}
    graph = Graph()
    graph.output(graph.graph_copy(gm.graph, copies))
    graph.output_node().meta = dict(gm.graph.output_node().meta)
    placeholders = graph.find_nodes(op="placeholder")
    first = next(node for node in graph.nodes if node.op != "placeholder")
    mode = detect_fake_mode([placeholders[k].meta["val"] for k in flags])
    assert mode is not None
    with as_traced(mode):
        for k, names in flags.items():
            with graph.inserting_before(first):
                take_memory(placeholders[k], names)
    made = lazy_graph_module(gm, graph)
    made.meta = gm.meta
    return made, [memory(x, flags[k]) if k in flags else x for k, x in enumerate(inputs)]


def take_memory(x: Node, names: Sequence[str]) -> None:
    """Rewrites the uses of a placeholder, whose value becomes what is in memory."""
    users, graph = list(x.users), x.graph
    seen, told = x.meta["val"], {key: value for key, value in x.meta.items() if key not in ("val", "tensor_meta")}
    view, value = x, memory(seen, names)
    x.meta = told | {"val": value}
    for name in names:
        view, value = graph.call_function(VIEWS[name], (view,)), VIEWS[name](value)
        view.meta = told | {"val": value}
    for user in users:
        if user.op == "output":
            continue
        if user.target is aten.clone.default and not user.kwargs and clone_in_memory(user, x, names):
            continue
        if user.target is not aten.copy_.default or user.args[0] is not x:
            user.replace_input_with(x, view)
            continue
        source: Any = user.args[1]
        with graph.inserting_before(user):
            for name in reversed(names):
                value = VALUES[name](source.meta["val"])
                source = graph.call_function(VALUES[name], (source,))
                source.meta = told | {"val": value}
        user.args = (x, source, *user.args[2:])
        user.meta = dict(user.meta) | {"val": x.meta["val"]}


def clone_in_memory(clone: Node, x: Node, names: Sequence[str]) -> bool:
    """Computes a clone, in which ATen resolves an operand's flags, where nothing but its values is another's; whether it did."""
    source, value = x, x.meta["val"]
    for name in names:
        value = VALUES[name](value)
    if value.stride() != clone.meta["val"].stride():
        return False
    value = x.meta["val"]
    with clone.graph.inserting_before(clone):
        for name in names:
            value = VALUES[name](value)
            source = clone.graph.call_function(VALUES[name], (source,))
            source.meta = dict(clone.meta) | {"val": value}
    clone.replace_all_uses_with(source)
    clone.graph.erase_node(clone)
    return True


def memory(x: Any, names: Sequence[str]) -> Any:
    """What is in the memory of a tensor with these flags; of one that lacks them, as what was saved of it may, what would be there."""
    if not isinstance(x, torch.Tensor):
        return x
    for name in names:
        x = VIEWS[name](x)
    return in_memory(x) if is_lazy(x) else x


def with_memory_taken(run: Run, gm: GraphModule, flags: Flags) -> Run:
    """The boxed callable of a graph, for inputs with their flags; `run` takes what is in memory. `gm` is the graph as it was traced."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    numbers = {placeholders[k]: k for k in flags}
    results: Any = gm.graph.output_node().args[0]
    returned = [(place, numbers[x]) for place, x in enumerate(results) if x in numbers]
    kept = sorted({k for _, k in returned})

    @functools.wraps(run)
    def call(args: list) -> list:
        given = {k: args[k] for k in kept}
        for k, names in flags.items():
            args[k] = memory(args[k], names)
        results = run(args)
        if not returned:
            return results
        results = list(results)
        for place, k in returned:
            results[place] = given[k]
        return results

    call._boxed_call = True  # type: ignore[attr-defined]
    return call

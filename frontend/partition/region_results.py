"""Makes views that calls of a shared region return where they are called, of an operand or of what the function computes.

before:  %r = invoke_subgraph(body, "name", %x, %w);  %y = %r[0]  %s = %r[1]  %t = %r[2]  %v = %r[3]
         body(a, b):  h = a @ b;  return relu(h), a, t(b), view(h, [-1])
after:   %r = invoke_subgraph(body_1, "name", %x, %w);  %y = %r[0]  users of %s use %x  %t = t(%w)  %v = view(%r[1], [-1])
         body_1(a, b):  h = a @ b;  return relu(h), h

A function has memory of its own for each result, to which those would be copied: a forward graph saves the weights of its layers so. And
AOTAutograd gives all calls of one body the same fake tensors, by which results of two calls would be taken to share memory.
"""

from collections.abc import Sequence
from operator import getitem
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from mlirc.frontend.importer.bodies import attribute, is_shared_region
from mlirc.frontend.importer.views import viewed


def separate_results(gm: GraphModule) -> None:
    """Rewrites a graph of AOTAutograd's."""
    calls: dict[int, list[Node]] = {}
    for node in gm.graph.nodes:
        if node.op == "call_function" and is_shared_region(node.target):
            calls.setdefault(id(attribute(gm, node.args[0])), []).append(node)
    for number, (_, group) in enumerate(calls.items()):
        if all(user.target is getitem for call in group for user in call.users):
            Separation(gm, group, f"separated_region_{number}").run()
    if calls:
        gm.recompile()


class Separation:
    """The calls of one body. `chains`: what each result of the old body is: the node that is shown, and the views between them."""

    def __init__(self, gm: GraphModule, calls: Sequence[Node], name: str):
        self.gm, self.calls, self.name = gm, calls, name
        self.body: GraphModule = attribute(gm, calls[0].args[0])  # type: ignore[arg-type]
        self.placeholders: list[Node] = self.body.graph.find_nodes(op="placeholder")
        results: list[Any] = list(self.body.graph.output_node().args[0])  # type: ignore[arg-type]
        used: list[Any] = sorted({int(str(user.args[1])) for call in calls for user in call.users})
        self.chains = {k: chain_of(results[k]) for k in used}
        numbers = {k: results[k] for k in used if not self.chains[k]}
        computed = [chain[0] for chain in self.chains.values() if chain and chain[0] not in self.placeholders]
        self.results: list[Any] = [*dict.fromkeys(computed), *numbers.values()]
        self.places: dict[Any, int] = {node: k for k, node in enumerate(dict.fromkeys(computed))}
        self.number_places = {k: len(self.places) + i for i, k in enumerate(numbers)}

    def run(self) -> None:
        graph, copies = Graph(), {}
        for node in self.body.graph.nodes:
            if node.op != "output":
                copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output(tuple(copies[x] if isinstance(x, Node) else x for x in self.results))
        graph.eliminate_dead_code(is_impure_node=lambda node: node.op in ("placeholder", "output") or writes(node))
        self.gm.add_module(self.name, GraphModule(self.body, graph))
        for call in self.calls:
            self.rewrite(call)

    def rewrite(self, call: Node) -> None:
        graph, users = self.gm.graph, list(call.users)
        given = dict(zip(self.placeholders, call.args[2:], strict=True))
        with graph.inserting_before(call):
            body = graph.get_attr(self.name)
            made = graph.call_function(call.target, (body, *call.args[1:]))  # type: ignore[arg-type]
        old = call.meta["val"]
        values = [fresh(x.meta["val"]) if isinstance(x, Node) else x for x in self.results]
        made.meta = {**call.meta, "val": tuple(values)}
        bases: dict[Any, Any] = dict(given)
        with graph.inserting_before(call):
            for user in users:
                position: Any = user.args[1]
                chain = self.chains[position]
                if not chain:  # None, a number or a size
                    made_item = self.item(made, self.number_places[position], {**user.meta, "val": old[position]})
                    user.replace_all_uses_with(made_item)
                    continue
                if chain[0] not in bases:
                    place = self.places[chain[0]]
                    bases[chain[0]] = self.item(made, place, {**user.meta, "val": values[place]})
                value: Any = bases[chain[0]]
                for x in chain[1:]:
                    value = self.view(x, value)
                user.replace_all_uses_with(value)
        for user in users:
            graph.erase_node(user)
        graph.erase_node(call)

    def item(self, call: Node, place: int, meta: dict[str, Any]) -> Node:
        made = self.gm.graph.call_function(getitem, (call, place))
        made.meta = meta
        return made

    def view(self, x: Node, base: Node) -> Node:
        """The view `x` of the body's, of another tensor."""
        made = self.gm.graph.node_copy(x, lambda _: base)
        args, kwargs = torch.fx.map_arg((made.args, made.kwargs), lambda n: n.meta["val"])
        with base.meta["val"].fake_mode:
            made.meta["val"] = made.target(*args, **kwargs)  # type: ignore[operator]
        return made


def chain_of(result: Any) -> list[Node]:
    """The node that a result shows, and the views between them; [] for what is no tensor. A view that takes sizes is no part of it."""
    if not isinstance(result, Node) or not isinstance(result.meta.get("val"), torch.Tensor):
        return []
    chain = [result]
    while (base := viewed(chain[0])) is not None and chain[0].all_input_nodes == [base]:
        if not isinstance(base.meta.get("val"), torch.Tensor):
            break
        chain.insert(0, base)
    return chain


def fresh(fake: Any) -> Any:
    """A fake tensor like another, in memory of its own."""
    if not isinstance(fake, torch.Tensor) or fake.layout is not torch.strided:
        return fake
    with fake.fake_mode:  # type: ignore[attr-defined]
        return torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)


def writes(node: Node) -> bool:
    target: Any = node.target
    if node.op != "call_function" or target is getitem or is_shared_region(target):
        return False
    return not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable or bool(target.tags)

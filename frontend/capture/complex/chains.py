"""Chains of operators of complex tensors, written anew with operators of real ones: what pairs.py and parts.py share."""

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node

from mlirc.frontend.torch_compat.fake_tensors import as_traced, detect_fake_mode

aten = torch.ops.aten
OWN = "no view, though its operator gives one"  # a key of a node's metadata
PART = {torch.complex64: torch.float32, torch.complex128: torch.float64}
VIEWS = {
    aten.view.default,
    aten.expand.default,
    aten.permute.default,
    aten.unsqueeze.default,
    aten.squeeze.dim,
    aten.select.int,
    aten.slice.Tensor,
}


def rewrite_chains(
    gm: GraphModule,
    has_rule: Callable[[Node], bool],
    may_be: Callable[[Node, set[Node]], bool],
    gains: Callable[[list[Node]], bool],
    rewriter: type["ChainRewriter"],
) -> None:
    """Rewrites an ATen graph in place: chains of nodes that have rules, may be one of those chosen, and gain by it."""
    found = [node for node in gm.graph.nodes if node.op == "call_function" and has_rule(node)]
    mode = detect_fake_mode([node.meta["val"] for node in found])
    if mode is None:
        return
    chosen = set(found)
    while wrong := {node for node in chosen if not may_be(node, chosen)}:
        chosen -= wrong
    gained = {node for chain in chains(chosen) if gains(chain) for node in chain}
    if gained:
        with as_traced(mode):
            rewriter(gm, gained).run()
        gm.graph.eliminate_dead_code()
        gm.recompile()


def tell_views(x: Node) -> None:
    """Gives the views of `x` fake results anew: they begin where they do in its memory."""
    from mlirc.frontend.importer import views  # which loads the dialect: a warm start does not

    for user in x.users:
        if views.viewed(user) is x or (user.target is operator.getitem and views.viewed(user) is not None):
            args, kwargs = torch.fx.map_arg((user.args, user.kwargs), lambda y: y.meta["val"])  # type: ignore[misc]
            user.meta["val"] = user.target(*args, **kwargs)  # type: ignore[operator]
            tell_views(user)


def chains(chosen: set[Node]) -> list[list[Node]]:
    """The nodes in groups that share complex values."""
    group: dict[Node, list[Node]] = {}
    for node in sorted(chosen):
        mine = group.setdefault(node, [node])
        for x in node.all_input_nodes:
            other = group.get(x)
            if other is not None and other is not mine and x.meta["val"].is_complex():
                mine += other
                group |= dict.fromkeys(other, mine)
    return list({id(one): one for one in group.values()}.values())


class ChainRewriter:
    """Writes the chosen nodes of a graph anew. `known` has what stands for a complex result within a chain."""

    def __init__(self, gm: GraphModule, chosen: set[Node]):
        self.graph, self.chosen = gm.graph, chosen
        self.known: dict[Node, Any] = {}

    def run(self) -> None:
        for node in [node for node in self.graph.nodes if node in self.chosen]:
            self.source = node
            with self.graph.inserting_before(node):
                self.one(node)

    def one(self, node: Node) -> None:
        raise NotImplementedError

    def is_read_outside(self, node: Node) -> bool:
        return any(user not in self.chosen for user in node.users)

    def give_away(self, node: Node, pairs: Node) -> None:
        """The complex tensor of these pairs, to readers outside of the chain."""
        whole = self.call(aten.view_as_complex.default, pairs)
        whole.meta[OWN] = True
        self.put(node, whole, lambda user: user not in self.chosen)

    def put(self, node: Node, made: Node, where: Callable[[Node], bool] = lambda user: True) -> None:
        """`made` in place of the node, for those users, with the node's strides."""
        old, new = node.meta["val"], made.meta["val"]
        assert (old.dtype, old.shape) == (new.dtype, new.shape), node.name
        if old.stride() != new.stride():
            made = self.row_major(made)
        node.replace_all_uses_with(made, delete_user_cb=where)
        tell_views(made)

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        """A call, with its fake result."""
        made = self.graph.call_function(target, args, kwargs)
        told = {name: x for name, x in self.source.meta.items() if name not in ("val", "tensor_meta", "original_aten")}
        values = torch.fx.map_arg((args, kwargs), lambda x: x.meta["val"])
        made.meta = told | {"val": target(*values[0], **values[1])}
        return made

    def row_major(self, x: Node) -> Node:
        return self.call(aten.clone.default, x, memory_format=torch.contiguous_format)

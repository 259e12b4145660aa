"""Gives autograd's nodes the program's order, where results of a graph are views of its inputs.

Autograd numbers nodes as they are made, and runs the backward of the last one first. It adds an input's gradients up in that order, and
the sum has the strides of the first. In

    v = a.t()
    return v, a.clone()

eager has the nodes t and clone, so the gradient of `a` has the strides of clone's. Under AOTAutograd the compiled call is one node, and
it takes the view `v` again after that call: t is the last node. Here the nodes are numbered anew: first the views that the program
takes before it computes something from the input, then the call, then the other views. In

    v = a.t()
    return v, v.clone()

eager adds two gradients of `v`, that of the result first: here `v` is an other view. In

    v = a.t()
    return v, a.sum()

the sum does not count: its gradient is one expanded number, and the first gradient with strides is that of `v`.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from mlirc.frontend.torch_compat.aot_autograd import calls
from mlirc.frontend.torch_compat.aot_autograd.sequence_numbers import numbered
from mlirc.frontend.torch_compat.dynamo.trees import tree_leaves
from mlirc.frontend.torch_compat.fake_tensors import FakeTensor, storage_id


def with_view_order(run: Callable, gm: GraphModule) -> Callable:
    """`run`, the compiled callable of Dynamo's graph `gm`, with the nodes of its results numbered in the program's order."""
    before, after = views_of_inputs(gm)
    renumber = numbered() if torch.is_grad_enabled() else None
    if renumber is None or (not before and after == sorted(after)):  # AOTAutograd's order
        return run

    @functools.wraps(run)
    def call(*args: Any) -> Any:
        results = run(*args)
        node = calls.node_of(results)
        if node is not None:
            first, last = ([n for k in places for n in calls.behind(results[k], node)] for places in (before, after))
            renumber(list(dict.fromkeys([*first, node, *last])))
        return results

    return call


def views_of_inputs(gm: GraphModule) -> tuple[list[int], list[int]]:
    """Positions of the results that are views of inputs, in two lists, each in the program's order.

    The first list has the views that are taken before something is computed from their input, the second has the others, and those that alone
    something is computed from.
    """
    order = {node: k for k, node in enumerate(gm.graph.nodes)}
    results: Sequence[Any] = gm.graph.output_node().args[0]  # type: ignore[assignment]
    chains = {k: chain for k, x in enumerate(results) if (chain := chain_of(x))}
    passed_over = {node for chain in chains.values() for node in chain} | unused(gm)
    before, after = [], []
    for k in sorted(chains, key=lambda k: order[chains[k][-1]]):
        source = chains[k][0]
        of_source = [chain for chain in chains.values() if chain[0] is source]
        computed = {
            (*chain[: step + 1], user)
            for chain in of_source
            for step, node in enumerate(chain)
            for user in node.users.keys() - passed_over
            if user.op != "output" and has_gradient(user)
        }
        last_view = max(order[chain[1]] for chain in of_source)
        if sum(order[path[1]] > last_view for path in computed) == 1:
            computed = {path for path in computed if order[path[1]] < last_view or not is_total(path)}
        (before if any(parts_later(path, chains[k], order) for path in computed) else after).append(k)
    return before, after


def parts_later(path: Sequence[Node], chain: Sequence[Node], order: dict[Node, int]) -> bool:
    """Whether a computation leaves a chain of views at a node from which it was taken later than the rest of the chain; what is computed from
    the last view is not: the gradient of that view itself comes first."""
    for ours, theirs in zip(chain, path, strict=False):
        if ours is not theirs:
            return order[ours] < order[theirs]
    return False


def chain_of(x: Any) -> list[Node]:
    """The nodes from an input to the result `x`, each a view of the one before; empty where `x` is no view of an input."""
    chain: list[Node] = []
    value = tensor_of(x)
    while value is not None:
        chain.insert(0, x)
        if x.op == "placeholder":
            return chain if len(chain) > 1 else []
        given = [
            y for y in x.all_input_nodes if (of := tensor_of(y)) is not None and storage_id(of) == storage_id(value)
        ]
        x = given[0] if len(given) == 1 else None
        value = tensor_of(x)
    return []


def unused(gm: GraphModule) -> set[Node]:
    """The nodes whose tensors are new ones that nothing reads in the end."""
    found: set[Node] = set()
    for node in reversed(gm.graph.nodes):
        if node.op != "output" and found.issuperset(node.users) and (value := tensor_of(node)) is not None:
            given = (of for y in node.all_input_nodes if (of := tensor_of(y)) is not None)
            found |= (
                set() if storage_id(value) in map(storage_id, given) else {node}
            )  # what is written in place is read
    return found


def is_total(path: Sequence[Node]) -> bool:
    """Whether the path is an input and a sum of all its elements: the gradient is one expanded number, which gives no strides to a sum with
    another gradient."""
    value = path[-1].meta.get("example_value")
    return (
        len(path) == 2 and path[1].target in ("sum", torch.sum) and isinstance(value, torch.Tensor) and value.dim() == 0
    )


def has_gradient(x: Node) -> bool:
    """Whether the node's value is a tensor with a gradient or contains one, as the pair that `max(dim)` gives."""
    return any(isinstance(y, FakeTensor) and y.requires_grad for y in tree_leaves(x.meta.get("example_value")))


def tensor_of(x: Any) -> torch.Tensor | None:
    """The node's strided tensor, or None; also None for a wrapper of torch.func, whose storage cannot be read."""
    value = x.meta.get("example_value") if isinstance(x, Node) else None
    return value if isinstance(value, FakeTensor) and value.layout == torch.strided else None

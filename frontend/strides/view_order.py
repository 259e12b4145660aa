"""The order in which autograd adds up an input's gradients, where results are views of that input.

    v = a.t();  return v, a.clone()         eager: nodes t, clone;  the gradient is clone's, plus t's, with the strides of clone's
                                            AOTAutograd: one node, the compiled call, then t, which is taken again outside of it

Autograd goes through nodes from the last one made, by their numbers. The views' nodes and the call's have their numbers in another order: views that
the program takes before it computes anything from the input come first, then the call.
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
    """`run`, the callable of Dynamo's graph `gm`, whose results have nodes in the program's order."""
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
    """The places of results that are views of inputs, in the program's order: of those taken before anything is computed from the input, and of
    the others."""
    order = {node: k for k, node in enumerate(gm.graph.nodes)}
    results: Sequence[Any] = gm.graph.output_node().args[0]  # type: ignore[assignment]
    chains = {k: chain for k, x in enumerate(results) if (chain := chain_of(x))}
    on_the_way = {node for chain in chains.values() for node in chain}
    before, after = [], []
    for k in sorted(chains, key=lambda k: order[chains[k][-1]]):
        source, first = chains[k][:2]
        same = [node for chain in chains.values() if chain[0] is source for node in chain]
        users = {user for node in same for user in node.users if user.op != "output"} - on_the_way
        computed = min((order[user] for user in users if gives_tensors(user)), default=len(order))
        (before if order[first] < computed else after).append(k)
    return before, after


def chain_of(x: Any) -> list[Node]:
    """From an input to a result that is a view of it, each node a view of the one before; empty where it is none."""
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


def gives_tensors(x: Node) -> bool:
    """Whether the node's value is a tensor, or as `max(dim)`'s has tensors in it."""
    return any(isinstance(value, FakeTensor) for value in tree_leaves(x.meta.get("example_value")))


def tensor_of(x: Any) -> torch.Tensor | None:
    """The node's strided tensor; None for what torch.func wraps, whose memory is not to be seen."""
    value = x.meta.get("example_value") if isinstance(x, Node) else None
    return value if isinstance(value, FakeTensor) and value.layout == torch.strided else None

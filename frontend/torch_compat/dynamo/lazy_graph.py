"""A graph module whose Python text is written where somebody reads or runs it."""

from collections.abc import Callable
from typing import Any

from torch.fx import Graph, GraphModule, Node

from mlirc.codegen.abi.reach import Missing, reach


def lazy_graph_module(owner: GraphModule, graph: Graph) -> GraphModule:
    return (lazy_class() or GraphModule)(owner, graph)


def written_later(gm: GraphModule) -> GraphModule:
    """The module of the same graph whose text is written where somebody reads or runs it: not at each change of the graph, nor for a copy."""
    made = lazy_graph_module(gm, gm.graph)
    made.meta = gm.meta
    return made


def forward_of(gm: GraphModule) -> Callable:
    """What calls a graph module; its `__call__`, which a first call of a lazy one goes through, prints what is raised."""
    compiled: Any = getattr(gm, "real_recompile", None)
    if compiled is not None:
        compiled()
    return gm.forward


def without_notes(gm: GraphModule) -> GraphModule:
    """A copy that holds no fake tensors, stack traces or histories."""
    made, copies = Graph(), {}
    for node in gm.graph.nodes:
        copies[node] = copy = made.node_copy(node, copies.__getitem__)
        copy.meta = {}
    return lazy_graph_module(gm, made)


@reach("lazy-graph", instead="the text of backward graphs is written at once")
def lazy_class() -> type[GraphModule]:
    """The class that AOTAutograd uses."""
    from torch.fx._lazy_graph_module import _LazyGraphModule

    graph = Graph()
    graph.output(graph.placeholder("x"))
    if _LazyGraphModule(GraphModule({}, Graph()), graph)(5) != 5:
        raise Missing("it does not run")
    return _LazyGraphModule


def copied(graph: Graph) -> Graph:
    """A copy of a graph of Dynamo's, with Dynamo's notes on the sources of inputs."""
    copies: dict[Node, Node] = {}
    made = Graph()
    made.output(made.graph_copy(graph, copies))
    for node, copy in copies.items():
        copy.__dict__ |= {name: value for name, value in vars(node).items() if name not in vars(copy)}
    return made

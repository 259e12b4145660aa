"""Nodes of FX graphs."""

from torch.fx import Node


def is_erased(node: Node) -> bool:
    """Whether the node was taken out of its graph."""
    told = getattr(node, "_erased", None)
    return all(x is not node for x in node.graph.nodes) if told is None else told

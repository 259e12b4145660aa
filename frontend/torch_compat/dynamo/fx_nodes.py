"""`torch.fx.Node._erased`, which is private. Without it the graph is searched: no reach is needed, as that always works."""

from torch.fx import Node


def is_erased(node: Node) -> bool:
    """Whether Graph.erase_node removed the node."""
    erased = getattr(node, "_erased", None)
    if erased is not None:
        return erased
    return not any(x is node for x in node.graph.nodes)

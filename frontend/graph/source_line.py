"""The user's source line of an FX node, as Dynamo recorded it; needs nothing of MLIR's."""

from torch.fx import Node


def last_line(node: Node) -> str:
    """The user's source line that a node comes from: the innermost one's file, number and function."""
    trace = node.meta.get("stack_trace") or ""
    return trace[trace.rfind("File ") :].partition("\n")[0]

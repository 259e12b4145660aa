"""The user's source line of an FX node, as an MLIR location."""

import re

from torch.fx import Node

from mlirc.dialects.bindings import ir

FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def location_of(node: Node) -> ir.Location:
    """The innermost frame of the user's stack that Dynamo recorded, or an unknown location."""
    trace = node.meta.get("stack_trace")
    frames = FRAME.findall(trace) if trace else None
    if not frames:
        return ir.Location.unknown()
    file, line = frames[-1]
    return ir.Location.file(file, int(line), 0)

"""Where an op comes from: the user's source line of an FX node, as an MLIR location and as text. And where in a block a rule began to build."""

import re
from typing import Any

from torch.fx import Node

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.lowering.module.source_lines import source_line

FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def location_of(node: Node) -> ir.Location:
    """The innermost frame of the user's stack that Dynamo recorded, or an unknown location."""
    trace = node.meta.get("stack_trace")
    frames = FRAME.findall(trace) if trace else None
    if not frames:
        return ir.Location.unknown()
    file, line = frames[-1]
    return ir.Location.file(file.encode("utf-8", "replace").decode(), int(line), 0)  # a name of bytes that are no text


def where(node: Node) -> str:
    """ "aten.add.Tensor (model.py:12)": what it calls, or its name, and from where."""
    with context():
        line = source_line(location_of(node))
    name = node.name if node.op == "placeholder" else node.target
    return str(name) if line == "unknown line" else f"{name} ({line})"


def last_operation() -> ir.Operation | None:
    operations = ir.InsertionPoint.current.block.operations
    return operations[len(operations) - 1] if len(operations) else None


def erase_after(mark: Any) -> None:
    """Erase what a rule built before it gave up: all operations after `mark` in the current block."""
    made = []
    for op in reversed(list(ir.InsertionPoint.current.block.operations)):
        if mark is not None and op.operation == mark.operation:
            break
        made.append(op)
    for op in made:
        op.operation.erase()

"""Where an op comes from: the user's source line of an FX node, as an MLIR location and as text. And where in a block a rule began to build."""

import re

from torch.fx import Node

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.lowering.module.source_lines import source_line

FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def location_of(node: Node) -> ir.Location:
    """The innermost frame of the user's stack that Dynamo recorded, or an unknown location."""
    trace = node.meta.get("stack_trace")
    frame = innermost(trace) if trace else None
    if frame is None:
        return ir.Location.unknown()
    file, line = frame
    return ir.Location.file(file.encode("utf-8", "replace").decode(), int(line), 0)  # a name of bytes that are no text


def innermost(trace: str) -> tuple[str, str] | None:
    """File and line of the last frame in the text of a stack; None where it has none."""
    end = len(trace)
    while (end := trace.rfind('File "', 0, end)) >= 0:
        if found := FRAME.match(trace, end):
            return found[1], found[2]
    return None


def where(node: Node) -> str:
    """ "aten.add.Tensor (model.py:12)": what it calls, or its name, and from where."""
    with context():
        line = source_line(location_of(node))
    name = node.name if node.op == "placeholder" else node.target
    return str(name) if line == "unknown line" else f"{name} ({line})"


def mark() -> ir.Operation:
    """An op of no meaning at the end of the current block, for who may take back what comes after it. To look for the last op instead
    would be a walk through the block for each node: MLIR's lists know no length."""
    return ir.Operation.create("builtin.unrealized_conversion_cast")


def erase_from(marked: ir.Operation) -> None:
    """Erases the mark, and what a rule built behind it before it gave up."""
    made = []
    for op in reversed(list(ir.InsertionPoint.current.block.operations)):
        made.append(op)
        if op.operation == marked:
            break
    for op in made:
        op.operation.erase()

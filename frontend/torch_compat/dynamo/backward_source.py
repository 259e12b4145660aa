"""Whether the source of a torch.autograd.Function's backward computes all of it with history, where its caller asks for one.

Dynamo traces it without history, so a graph does not tell `torch.no_grad()` or `once_differentiable` within. The nodes' stack traces do: each frame
behind the call of `apply` is of a function whose source is read. What is not certain is no.
"""

import ast
import linecache
import re
from collections.abc import Sequence
from functools import cache

from torch.fx import GraphModule, Node

Frame = tuple[str, int]
"""A file and a line."""

FRAME = re.compile(r'^  File "(.*)", line (\d+), in ', re.MULTILINE)
MODES = {"no_grad", "enable_grad", "inference_mode", "set_grad_enabled", "_set_grad_enabled", "once_differentiable"}
PLAIN = {"staticmethod", "classmethod"}
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def frames_behind(call: Node, backward: GraphModule) -> frozenset[Frame] | None:
    """The frames of a backward graph's operators, behind those of the node that calls it; None where an operator's are not known."""
    outer, found = frames_of(call), set()
    for node in backward.graph.nodes:
        if node.op.startswith("call_") and getattr(node.target, "__name__", "") != "_set_grad_enabled":
            frames = frames_of(node)
            if not outer or len(frames) <= len(outer) or frames[: len(outer)] != outer:
                return None
            found.update(frames[len(outer) :])
    return frozenset(found)


def frames_of(node: Node) -> list[Frame]:
    return [(file, int(line)) for file, line in FRAME.findall(node.stack_trace or "")]


def keeps_history(frames: Sequence[Frame] | frozenset[Frame] | None) -> bool:
    """Whether no frame is within a `with`, or in a function that is decorated or names a mode of gradients."""
    return frames is not None and all(is_plain(*frame) for frame in frames)


def is_plain(file: str, line: int) -> bool:
    tree = parsed("".join(linecache.getlines(file)))
    within = [node for node in ast.walk(tree) if spans(node, line)] if tree else []
    functions = [node for node in within if isinstance(node, Function)]
    if not functions:
        return False
    inner = max(functions, key=lambda node: node.lineno)
    names = {getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(inner)}
    decorators = {getattr(node, "id", "") for node in getattr(inner, "decorator_list", ())}
    contexts = [node for node in within if isinstance(node, ast.With | ast.AsyncWith) and node.lineno >= inner.lineno]
    return not contexts and not names & MODES and decorators <= PLAIN


def spans(node: ast.AST, line: int) -> bool:
    first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
    return first is not None and last is not None and first <= line <= last


@cache
def parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source) if source else None
    except SyntaxError:
        return None

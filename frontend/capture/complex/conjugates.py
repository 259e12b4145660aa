"""Takes out conjugates of conjugates, which are what is in memory: as flags of tensors, which kernels do not know, both would be made from Python.

before:  %c = _conj(%z);  %t = t(%c);  %d = _conj(%t);  mm(%x, %d)
after:   %t = t(%z);  mm(%x, %t)
"""

from typing import Any

import torch
from torch.fx import GraphModule, Node

from mlirc.frontend.capture.complex.chains import VIEWS
from mlirc.frontend.capture.complex.parts import is_returned
from mlirc.frontend.torch_compat.fake_tensors import as_traced, detect_fake_mode

aten = torch.ops.aten
PASSED = VIEWS | {aten.t.default, aten.transpose.int, aten.alias.default, aten.detach.default}


def cancel_conjugates(gm: GraphModule) -> None:
    """Rewrites an ATen graph in place."""
    found = [
        n for n in gm.graph.nodes if n.target is aten._conj.default and isinstance(n.meta.get("val"), torch.Tensor)
    ]
    mode = detect_fake_mode([node.meta["val"] for node in found])
    if not found or mode is None:
        return
    with as_traced(mode):
        for node in found:
            cancel(node)
    for node in reversed(gm.graph.nodes):  # all that is dead would be more: what draws random numbers, say
        if not node.users and (node.target in PASSED or node.target is aten._conj.default):
            gm.graph.erase_node(node)
    gm.recompile()


def cancel(node: Node) -> None:
    """Puts views of what is in memory in place of a conjugate that the program does not return."""
    between: list[Node] = []
    x: Any = node.args[0]
    while isinstance(x, Node) and x.target in PASSED:
        between.append(x)
        x = x.args[0]
    if not isinstance(x, Node) or x.target is not aten._conj.default or not isinstance(x.args[0], Node):
        return
    if node.meta["val"].is_conj() or is_returned(node):
        return
    made = x.args[0]
    for view in reversed(between):
        made = viewed_so(made, view, node)
    have, wanted = made.meta["val"], node.meta["val"]
    if (have.is_conj(), have.shape, have.stride()) == (False, wanted.shape, wanted.stride()):
        node.replace_all_uses_with(made)


def viewed_so(x: Node, view: Node, before: Node) -> Node:
    """The same view of `x`, with its fake result."""
    target: Any = view.target
    with view.graph.inserting_before(before):
        made = view.graph.call_function(target, (x, *view.args[1:]), view.kwargs)
    args, kwargs = torch.fx.map_arg((made.args, made.kwargs), lambda y: y.meta["val"])  # type: ignore[misc]
    told = {name: value for name, value in view.meta.items() if name not in ("val", "tensor_meta", "original_aten")}
    made.meta = told | {"val": target(*args, **kwargs)}
    return made

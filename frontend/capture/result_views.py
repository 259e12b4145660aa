"""Makes results what they are in eager beside their elements: views of one another, and zeros without memory.

    y = x + 1;  return y, y.view_as(y), y.t()

A program gives all of them as tensors on the same memory, the same tensor where they are laid out alike. A view shares its
base's version counter, which autograd looks at; a tensor object's sizes are its own. A zero tensor without memory (the gradient
of `sgn`) is one in eager too: what autograd does with it next has other strides than with zeros in memory.
"""

import operator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from mlirc.codegen.abi.lazy_tensors import is_traced_zero
from mlirc.frontend.capture.complex.chains import OWN
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.importer import views
from mlirc.frontend.importer.graph_results import storage_of
from mlirc.frontend.importer.result_outputs import Layout, Outputs
from mlirc.frontend.strides.dimension_order import is_row_major
from mlirc.frontend.torch_compat.fake_tensors import storage_id

DETACH = torch.ops.aten.detach.default
CUT = (DETACH, torch.ops.aten.view.dtype)
"""Views that have no gradient, nor has a view of them; eager's `x.view(x.dtype)` is one."""


def with_views(gm: GraphModule, outputs: Outputs, returned: int) -> list[tuple[str, Any]]:
    """The outputs, of which some become ("view", [own result, result of the base]), ("detach", ...), ("own", k) or ("zeros", k): the program's own,
    which are the first `returned`, and what is saved for a backward graph where it shares memory with one of them.

    The base is what eager takes them for views of. Where it is no result, the first of its views stands for it, and each has the base's
    layout besides ("view", [own result, the first's, layout]). AOTAutograd gives the base to a graph that takes several of its views and
    writes to one, and takes its views again by sizes of the base.
    """
    nodes: list[Any] = list(gm.graph.output_node().args[0])  # type: ignore[arg-type]
    own = {node for node in nodes[:returned] if isinstance(node, Node)}
    inputs = {
        storage_id(x) for n in gm.graph.find_nodes(op="placeholder") if isinstance(x := value_of(n), torch.Tensor)
    }
    groups: dict[int, dict[Node, int]] = {}
    made: dict[Node, tuple[str, Any]] = {}
    for node, (kind, k) in zip(nodes, outputs, strict=True):
        fake = value_of(node)
        strided = isinstance(fake, torch.Tensor) and fake.layout is torch.strided and kind == "result"
        if strided and node in own and is_traced_zero(value_of(seen_by(node))):
            made[node] = "zeros", k
        elif strided and storage_of(node) not in inputs:
            groups.setdefault(storage_of(node), {}).setdefault(node, k)
    for group in groups.values():
        for node, k in group.items() if not own.isdisjoint(group) else ():
            if OWN in node.meta:
                made[node] = "own", k
        lazy = any(value_of(node).is_conj() or value_of(node).is_neg() for node in group)
        group = {node: k for node, k in group.items() if node in own} if lazy else group
        if len(group) > 1 and not own.isdisjoint(group):
            if lazy:
                raise UnsupportedGraph("results share memory, and one is a view that negates or conjugates it")
            first: dict[Node, Node] = {}  # by what they are views of, which may be no result
            for node in group:
                base = base_of(node)
                if base is not node:
                    kind = "detach" if is_cut(node) else "view"
                    shown = base if base in group else first.setdefault(base, node)
                    layout = [] if base in group else [layout_of(base.meta["val"], group)]
                    made[node] = kind, [group[node], group[shown], *layout]
    return [made.get(node, output) for node, output in zip(nodes, outputs, strict=True)]


def layout_of(base: torch.Tensor, views: dict[Node, int]) -> Layout | None:
    """How a base that is not returned is laid out; None where its views do not tell that."""
    shape, strides, dtype = base.shape, base.stride(), str(base.dtype).removeprefix("torch.")
    offset: Any = base.storage_offset()
    if not isinstance(offset, int):
        return None
    if all(isinstance(n, int) for n in (*shape, *strides)):
        return dtype, list(shape), list(strides), offset
    if not is_row_major(shape, strides):
        return None
    told = {str(n): [k, d] for x, k in views.items() for d, n in enumerate(x.meta["val"].shape)}
    sizes = [n if isinstance(n, int) else told.get(str(n)) for n in shape]
    return (dtype, sizes, None, offset) if sizes.count(None) == 0 or (sizes.count(None) == 1 and offset == 0) else None


def base_of(node: Node) -> Node:
    """What autograd takes a view for one of: the node itself where it is none, as is the result of an `_unsafe_view`."""
    while (behind := viewed_base(node)) is not None:
        node = behind
    return node


def viewed_base(node: Node) -> Node | None:
    if OWN in node.meta:
        return None
    source = node.args[0] if node.target is operator.getitem else node
    return None if isinstance(source, Node) and source.target in views.UNMARKED else views.viewed(node)


def seen_by(node: Node) -> Node:
    """What a view is one of, at last: the node itself where it is none."""
    while (behind := views.viewed(node)) is not None:
        node = behind
    return node


def is_view(node: Node) -> bool:
    return node.target is DETACH or views.viewed(node) is not None


def is_cut(node: Node | None) -> bool:
    """Whether no gradient gets from a view to what it is one of."""
    while node is not None and node.target not in CUT:
        node = viewed_base(node)
    return node is not None


def value_of(node: Any) -> Any:
    return node.meta.get("val") if isinstance(node, Node) else None

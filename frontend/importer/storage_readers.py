"""Imports operators that read all of an operand's storage: `as_strided_scatter`, `as_strided_copy`, scatters that a later `as_strided` sees.

A scatter copies the storage as it lies. That of a computed operand is known: it is viewed flat, written, and viewed again.

    %flat = "mlirc.view"(%x)                       from the storage's start to its end
    %new  = "mlircx.aten"(%flat, %src)             as_strided_scatter
    %out  = "mlirc.view"(%new)                     as %x lies

What lies around an input only its tensor knows: ATen is called with that tensor.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, Node

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import TensorInfo
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.importer import aten_import
from mlirc.frontend.importer.sizes import size, storage_offset, tensor_info
from mlirc.frontend.importer.views import NOT_STRIDED, SCATTERS, viewed

aten = torch.ops.aten

READERS = (aten.as_strided.default, aten.as_strided_copy.default, aten.as_strided_scatter.default)
REASON = "it reads all of its operand's storage"
PARTS: dict[Any, Callable] = {
    aten.select_scatter.default: aten.select.int,
    aten.slice_scatter.default: aten.slice.Tensor,
    aten.diagonal_scatter.default: aten.diagonal.default,
}
"""What a scatter writes to, as a view of its operand."""
LAZY = (aten._conj.default, aten._neg_view.default)


def read_storages(graph: Graph) -> frozenset[Node]:
    """The scatters of which a later operator reads the storage."""
    read: set[Node] = set()
    for node in graph.nodes:
        source: Any = node.args[0] if node.target in READERS else None
        while isinstance(source, Node):
            source = owner(source)
            if source.target not in SCATTERS:
                break
            read.add(source)
            source = source.args[0]
    return frozenset(read | set(graph.find_nodes(op="call_function", target=aten.as_strided_scatter.default)))


def owner(node: Node) -> Node:
    """The node whose memory `node` is, through all views between them."""
    while (behind := viewed(node)) is not None:
        node = behind
    return node


def scatter(node: Node, args: tuple, values: dict[Node, Any], objects: list[Any]) -> ir.Value | None:
    """The result of a scatter into a copy of its operand's storage; None where ATen must be called with the operand itself."""
    x, source = node.args[:2]
    assert isinstance(x, Node)
    fake, root = x.meta["val"], owner(x)
    info, promised = tensor_info(fake), tensor_info(node.meta["val"])
    if root.op != "call_function" or not isinstance(source, Node) or 0 in info.shape or info.stride != promised.stride:
        return None  # other strides: elements share memory, and the copy is dense
    refuse_unknown_storage(node)
    shown = _behind_a_number(x)
    if shown.meta["val"].dtype != fake.dtype or any(n.target in LAZY for n in _chain(x)):
        return None
    behind = tensor_info(root.meta["val"])
    bytes_ = (begins(root) + behind.extent) * behind.dtype.itemsize
    whole = TensorInfo(info.dtype, (symbols.floordiv(bytes_, info.dtype.itemsize),), (1,), info.device)
    builder = GraphBuilder()
    flat = builder.view(values[shown], whole.shape, whole.stride, None, -begins(shown))
    part = [list(n) if isinstance(n, tuple) else n for n in _written(node, args, begins(x))]
    made = aten_import.call_aten(aten.as_strided_scatter.default, (flat, args[1], *part), {}, whole, objects)
    return builder.view(made, info.shape, info.stride, None, begins(x))


def copy(node: Node, args: tuple, values: dict[Node, Any]) -> ir.Value:
    """`as_strided_copy` where the graph knows what memory it reads."""
    refuse_unknown_storage(node)
    x = node.args[0]
    assert isinstance(x, Node)
    shown = _behind_a_number(x)
    shape, stride, start = _written(node, (*args[:1], None, *args[1:]), begins(x))
    builder = GraphBuilder()
    offset = start - begins(shown)
    return builder.copy(builder.view(values[shown], shape, stride, None, offset), tensor_info(node.meta["val"]))


def begins(node: Node) -> Int:
    """Where in its storage a tensor begins. Fake tensors of scatters, and views of them, do not know (PyTorch keeps them without)."""
    fake, source = storage_offset(node.meta["val"]), node.args[0] if node.args else None
    if is_absolute(node) or not isinstance(source, Node):
        return fake
    if viewed(node) is not None:
        known = source.meta["val"]
        return fake + begins(source) - storage_offset(known) if isinstance(known, torch.Tensor) else fake
    if node.target in SCATTERS and tensor_info(source.meta["val"]).stride == tensor_info(node.meta["val"]).stride:
        return begins(source)
    return fake


def is_absolute(node: Node) -> bool:
    """Whether a view counts from its storage's start."""
    return node.target is aten.as_strided.default and (len(node.args) > 3 or "storage_offset" in node.kwargs)


def refuse_unknown_storage(node: Node) -> None:
    """Raises UnsupportedGraph where a storage is read of which only a part was given to ATen, to see its bits as another dtype."""
    source = node.args[0]
    if not isinstance(source, Node) or owner(source).op != "call_function":
        return
    for seen in _chain(source):
        if seen.target in NOT_STRIDED and not (isinstance(seen.args[0], Node) and begins(seen.args[0]) == 0):
            raise UnsupportedGraph(f"{node.target} reads what lies around a part that is seen as another dtype")


def _behind_a_number(node: Node) -> Node:
    """The tensor that an element was taken of: a view of the element alone would repeat it."""
    while not node.meta["val"].shape and (behind := viewed(node)) is not None:
        node = behind
    return node


def _chain(node: Node) -> list[Node]:
    behind = viewed(node)
    return [node] if behind is None else [node, *_chain(behind)]


def _written(node: Node, args: tuple, start: Int) -> tuple[tuple[Int, ...], tuple[Int, ...], Int]:
    """Sizes, strides and offset in the storage of what is written, or copied."""
    if node.target in PARTS:
        meta: list[Any] = [a.meta["val"] if isinstance(a, Node) else a for a in (node.args[0], *node.args[2:])]
        part = PARTS[node.target](*meta, **node.kwargs)
        info = tensor_info(part)
        return info.shape, info.stride, start + storage_offset(part) - storage_offset(meta[0])
    _, _, shape, stride, *rest = args
    offset: Any = rest[0] if rest else node.kwargs.get("storage_offset")
    if isinstance(offset, Node):
        offset = size(offset.meta["val"])
    return tuple(shape), tuple(stride), start if offset is None else offset

"""Imports operators that read all of an operand's storage: `as_strided`, its copy and its scatter, scatters that a later `as_strided` sees.
What `set_` gives to an input is memory of ATen's: the arena does not outlive the call.

A scatter copies the storage as it lies. That of a computed operand is known: it is viewed flat, written, and viewed again.

    %flat = "mlirc.view"(%x)                       from the storage's start to its end
    %new  = "mlircx.aten"(%flat, %src)             as_strided_scatter
    %out  = "mlirc.view"(%new)                     as %x lies

What lies around an input only its tensor knows: ATen is called with that tensor.

No guard says that `as_strided` stays within its storage. Unless that is proved for all sizes, ATen is called, which raises where it does not.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx import Graph, Node

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import KERNEL_DTYPES, TensorInfo, info_of
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.importer import aten_import
from mlirc.frontend.importer.sizes import size, storage_offset, tensor_info
from mlirc.frontend.importer.views import NOT_STRIDED, SCATTERS, counts_from_storage, diagonal_start, viewed
from mlirc.lowering.verify.index_proofs import Space

aten = torch.ops.aten

STRIDED = (aten.as_strided.default, aten.as_strided_copy.default)
READERS = (*STRIDED, aten.as_strided_scatter.default)
REASON = "it reads all of its operand's storage"
GIVEN = "an input gets its memory"
BEYOND = "it may reach beyond its operand's storage"
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


def given_away(graph: Graph) -> frozenset[Node]:
    """The computed nodes whose memory an input gets, which lives as long as that tensor: `p.data = y`."""
    calls = graph.find_nodes(op="call_function", target=aten.set_.source_Tensor)
    sources: list[Any] = [call.args[1] for call in calls]
    return frozenset(found for source in sources if (found := owner(source)).op == "call_function")


def owner(node: Node) -> Node:
    """The node whose memory `node` is, through all views between them."""
    while (behind := viewed(node)) is not None:
        node = behind
    return node


def stays_within(node: Node) -> bool:
    """Whether `as_strided` or `as_strided_copy` is proved to read only what the graph knows of its operand's memory, and forwards."""
    if counts_from_storage(node):
        return False
    x, root = node.args[0], _storage_owner(node)
    assert isinstance(x, Node)
    info, whole = tensor_info(x.meta["val"]), tensor_info(root.meta["val"])
    shape, stride, start = _read(node)
    bytes_, first = info.dtype.itemsize, begins(root) * whole.dtype.itemsize
    reached = TensorInfo(info.dtype, shape, stride, info.device)
    if reached.extent == 0:
        return True
    end = first + whole.extent * whole.dtype.itemsize
    goals = [*stride, start * bytes_ - first, end - (start + reached.extent) * bytes_]
    space = Space({}, tuple(_least(root)))
    return all(space.nonnegative(goal) for goal in goals)


def checked(node: Node, args: tuple, kwargs: dict, values: dict[Node, Any]) -> tuple[tuple, dict, str]:
    """The arguments of ATen's `as_strided` or `as_strided_copy`, and why it is called: of computed memory it sees the whole storage, flat."""
    x: Any = node.args[0]
    if _storage_owner(node).op != "call_function" or counts_from_storage(node):
        return args, kwargs, BEYOND
    refuse_unknown_storage(node)
    flat = _flat(x, values)
    if flat is None:
        raise UnsupportedGraph(f"{node.target} may reach beyond the memory of a part that is seen as another dtype")
    shape, stride, start = _read(node)
    return (flat, list(shape), list(stride), start), {}, BEYOND


def scatter(node: Node, args: tuple, values: dict[Node, Any], objects: list[Any]) -> ir.Value | None:
    """The result of a scatter into a copy of its operand's storage; None where ATen must be called with the operand itself."""
    x, source = node.args[:2]
    assert isinstance(x, Node)
    fake, root = x.meta["val"], owner(x)
    info, promised = tensor_info(fake), tensor_info(node.meta["val"])
    if root.op != "call_function" or not isinstance(source, Node) or 0 in info.shape or info.stride != promised.stride:
        return None  # other strides: elements share memory, and the copy is dense
    refuse_unknown_storage(node)
    flat = _flat(x, values)
    if flat is None:
        return None
    part = [list(n) if isinstance(n, tuple) else n for n in _written(node, args, begins(x))]
    whole = _replaced(flat, args[1], *_written(node, args, begins(x)))
    if whole is not None:
        return GraphBuilder().view(whole, info.shape, info.stride, None, begins(x))
    made = aten_import.call_aten(aten.as_strided_scatter.default, (flat, args[1], *part), {}, info_of(flat), objects)
    return GraphBuilder().view(made, info.shape, info.stride, None, begins(x))


def _replaced(
    flat: ir.Value, source: Any, shape: tuple[Int, ...], stride: tuple[Int, ...], start: Int
) -> ir.Value | None:
    """The storage after a write to all of it, in its order: what was written; None where some of it stays, or no kernel copies it."""
    before, given = info_of(flat), info_of(source)
    written = TensorInfo(before.dtype, shape, device=before.device)
    if before.dtype not in KERNEL_DTYPES or start != 0:
        return None
    if stride != written.stride or (written.extent,) != before.shape:
        return None
    if (given.shape, given.dtype, given.device) != (shape, before.dtype, before.device):
        return None
    builder = GraphBuilder()
    return builder.view(builder.copy(source, written), before.shape, (1,), None, 0)


def _flat(x: Node, values: dict[Node, Any]) -> ir.Value | None:
    """The storage of a computed tensor, from its start to its end, as elements of its dtype; None where its bits are seen otherwise."""
    info, shown = tensor_info(x.meta["val"]), _behind_a_number(x)
    if shown.meta["val"].dtype != info.dtype or any(n.target in LAZY for n in _chain(x)):
        return None
    root = owner(x)
    behind = tensor_info(root.meta["val"])
    bytes_ = (begins(root) + behind.extent) * behind.dtype.itemsize
    count = symbols.floordiv(bytes_, info.dtype.itemsize)
    return GraphBuilder().view(values[shown], (count,), (1,), None, -begins(shown))


def copy(node: Node, values: dict[Node, Any]) -> ir.Value:
    """`as_strided_copy` where the graph knows what memory it reads."""
    refuse_unknown_storage(node)
    x = node.args[0]
    assert isinstance(x, Node)
    shown = _behind_a_number(x)
    shape, stride, start = _read(node)
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
        if not isinstance(known, torch.Tensor):
            return fake
        distance = fake - storage_offset(known)
        if node.target is aten.diagonal.default:
            distance = diagonal_start(distance, tensor_info(node.meta["val"]))
        return begins(source) + distance
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


def _storage_owner(node: Node) -> Node:
    """The node that made the storage of an operator's operand: a scatter's is a copy of its operand's."""
    found = owner(node.all_input_nodes[0])
    while found.target in SCATTERS and isinstance(behind := found.args[0], Node):
        found = owner(behind)
    return found


def _least(node: Node) -> Iterator[Int]:
    """What is 0 or more by the least that PyTorch's guards leave of a tensor's sizes."""
    for n in node.meta["val"].shape:
        if isinstance(n, torch.SymInt):
            least = n.node.shape_env.bound_sympy(n.node.expr).lower
            yield size(n) - (int(least) if least.is_Integer else 0)


def _read(node: Node) -> tuple[tuple[Int, ...], tuple[Int, ...], Int]:
    """Sizes, strides and offset in the storage of what `as_strided` or its copy reads."""
    number = lambda n: size(n.meta["val"]) if isinstance(n, Node) else n
    given: dict[str, Any] = dict(zip(("self", "size", "stride", "storage_offset"), node.args, strict=False)) | dict(
        node.kwargs
    )
    start, x = given.get("storage_offset"), given["self"]
    shape, stride = (tuple(number(n) for n in given[key]) for key in ("size", "stride"))
    return shape, stride, begins(x) if start is None else number(start)


def _written(node: Node, args: tuple, start: Int) -> tuple[tuple[Int, ...], tuple[Int, ...], Int]:
    """Sizes, strides and offset in the storage of what is written."""
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

"""Removes attention masks that depend on positions alone from Dynamo's graph, before AOTAutograd sees it.

    sdpa(q, k, v, attn_mask=(arange(S) >= 0)[None, None, :, None].expand(B, 1, S, S))    ->  sdpa(q, k, v)
    sdpa(q, k, v, attn_mask=arange(S)[None, :] <= arange(S)[:, None])                    ->  sdpa(q, k, v, is_causal=True)

AOTAutograd traces through the operator, and which kernel that becomes depends on the mask that it is given: with some
masks it is not attention any more but matmuls and a softmax. So what can be known of a mask is found out before
(mask_meaning.py), and kept in the disk cache.
"""

import math
import operator
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from mlirc.codegen.process.limits import with_room
from mlirc.dialects.core.symbols import Int
from mlirc.frontend.cache.answer_cache import cached_answer
from mlirc.frontend.cache.graph_text import part_text
from mlirc.frontend.errors import NoText
from mlirc.frontend.importer.sizes import size
from mlirc.frontend.torch_compat.dynamo.fx_nodes import is_erased
from mlirc.frontend.torch_compat.fake_tensors import storage_id
from mlirc.lowering.cpu.attention.coverage import uncovered

Shape = tuple[Int, ...]
SDPA = torch.nn.functional.scaled_dot_product_attention
NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
IN_PLACE = {operator.setitem, operator.iadd, operator.isub, operator.imul, operator.iand, operator.ior, operator.ixor}


def drop_known_masks(gm: GraphModule, cache: bool = False) -> int:
    """Rewrites the attention calls of a graph of Dynamo's; gives how many masks went.

    cache   whether the disk cache may be asked, and told

    A key that is hidden no longer reaches a row at all, where adding -inf to NaN would. Under a scale of 0 or less, infinite
    or not known a causal mask stays. So does every mask of a call that is left to ATen's kernel for the CPU: without a mask
    that one has 0 for a row of scores that are all NaN, with one NaN.
    """
    dropped = 0
    known: dict[tuple, bool | None] = {}  # layers share masks
    for node in list(gm.graph.nodes):
        if node.op != "call_function" or node.target is not SDPA:
            continue
        given = dict(zip(NAMES, node.args, strict=False)) | node.kwargs
        mask = given.get("attn_mask")
        if not isinstance(mask, Node) or given.get("is_causal", False) is not False:
            continue
        q, k, m = (shape_of(given[name]) for name in ("query", "key", "attn_mask"))
        if q is None or k is None or m is None or is_of_aten(given):
            continue
        if (mask, q, k) not in known:
            known[mask, q, k] = what_is_seen(gm, mask, q, k, cache)
        causal = known[mask, q, k]
        if causal is None or (causal and not hides_by_scaling(given.get("scale"))):
            continue
        node.args, node.kwargs = (), given | {"attn_mask": None, "is_causal": causal}
        erase_unused(gm.graph, mask)
        dropped += 1
    if dropped:
        gm.recompile()
    return dropped


def is_of_aten(given: dict[str, Any]) -> bool:
    """Whether ATen's kernel for the CPU computes the call, for all that is known."""
    q, k, v = (given[name].meta["example_value"] for name in NAMES[:3])
    if q.device.type != "cpu" or {x.dim() for x in (q, k, v)} != {4}:
        return False
    return uncovered(q.dtype, *(size(n) for n in (q.shape[1], k.shape[1], q.shape[3], v.shape[3]))) != ""


def hides_by_scaling(scale: Any) -> bool:
    """Whether -inf stays -inf: with `is_causal` ATen's kernels multiply it by the scale, which they do to no mask."""
    return scale is None or (isinstance(scale, int | float) and 0 < scale < math.inf)


def shape_of(node: Any) -> Shape | None:
    """The sizes of a tensor of up to four dimensions, or None."""
    value = node.meta.get("example_value") if isinstance(node, Node) else None
    return tuple(map(size, value.shape)) if isinstance(value, torch.Tensor) and value.dim() <= 4 else None


def what_is_seen(gm: GraphModule, mask: Node, q: Shape, k: Shape, cache: bool) -> bool | None:
    """False: everything; True: for each query the keys up to its own position; None: something else, or not known."""
    if len(q) != 4 or len(k) != 4:
        return None
    part = ancestors(mask)
    if part is None or is_overwritten(gm.graph, part):
        return None

    def find_out() -> bool | None:
        from mlirc.frontend.capture.mask_meaning import (
            meaning,  # needs MLIR, which a graph from the disk cache does without
        )

        return meaning(gm, part, mask, q, k)

    def find() -> bool | None:
        return with_room(find_out)

    try:
        text = f"{part_text(gm, part)}\n{part.index(mask)} {[*map(str, q + k)]}"
    except NoText:
        return find_out()
    return cached_answer("mask", text, find) if cache else find()


def ancestors(mask: Node) -> list[Node] | None:
    """What the mask is computed from, in order; None if tensors from outside are among it."""
    found: dict[Node, None] = {}
    waiting = [mask]
    while waiting:
        node = waiting.pop()
        if node in found:
            continue
        outside = node.op not in ("call_function", "call_method")
        if outside and not isinstance(node.meta.get("example_value"), torch.SymInt):
            return None
        found[node] = None
        waiting += node.all_input_nodes
    return [node for node in mask.graph.nodes if node in found]


def is_overwritten(graph: Graph, nodes: list[Node]) -> bool:
    """Whether the graph writes to the memory of one of these."""
    memory = {storage(node) for node in nodes} - {None}
    return any(
        changes_argument(node) and node.all_input_nodes and storage(node.all_input_nodes[0]) in memory
        for node in graph.nodes
    )


def storage(node: Node) -> int | None:
    value = node.meta.get("example_value")
    return storage_id(value) if isinstance(value, torch.Tensor) else None


def changes_argument(node: Node) -> bool:
    if node.op == "call_method":
        name = str(node.target)
    elif node.op == "call_function":
        # operator.and_ has an underscore because `and` is a word of Python's
        is_operator = getattr(node.target, "__module__", "") == "_operator"
        name = "" if is_operator else getattr(node.target, "__name__", "")
    else:
        return False
    written = name.endswith("_") and not name.endswith("__")
    return written or node.target in IN_PLACE or "out" in node.kwargs


def erase_unused(graph: Graph, node: Node) -> None:
    """The mask and what only it needed."""
    if node.users or node.op not in ("call_function", "call_method"):
        return
    inputs = node.all_input_nodes
    graph.erase_node(node)
    for x in inputs:
        if x.graph is graph and not is_erased(x):
            erase_unused(graph, x)

"""Gives attention on a GPU the unrepeated keys and values, where Dynamo's graph repeats them for heads that share them.

    k = x[:, :, None].expand(B, 8, 4, S, D).reshape(B, 32, S, D)
    sdpa(q, k, v)    ->  sdpa(q, x, y, enable_gqa=True)

What the forward graph saves is then a quarter, and attention's backward kernel adds up the gradients of a head itself. It is
done before AOTAutograd, which chooses the kernel, where that will be one that shares heads: flash attention or cuDNN's.
"""

import operator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from mlirc.frontend.capture.attention_masks import NAMES, SDPA, changes_argument, erase_unused, storage
from mlirc.frontend.torch_compat.dynamo.fx_nodes import is_erased

EVERYTHING = slice(None, None, None)
LARGEST_HEAD = 128  # elements; backward passes of larger ones depend on the GPU


def share_heads(gm: GraphModule) -> int:
    """Rewrites the attention calls of a graph of Dynamo's, after masks that say nothing went; gives how many."""
    shared = 0
    for node in list(gm.graph.find_nodes(op="call_function", target=SDPA)):
        given = dict(zip(NAMES, node.args, strict=False)) | node.kwargs
        repeated = [given.get("key"), given.get("value")]
        before = [before_repeat(x) for x in repeated]
        if given.get("attn_mask") is not None or given.get("enable_gqa") or None in before:
            continue
        q, k, v = (value_of(x) for x in (given.get("query"), *before))
        if q is None or k is None or v is None or k.shape[1] != v.shape[1] or not all(map(is_taken, (q, k, v))):
            continue
        if any(is_overwritten(x, y, node) for x, y in zip(before, repeated, strict=True)):
            continue
        node.args, node.kwargs = (), given | {"key": before[0], "value": before[1], "enable_gqa": True}
        for x in repeated:
            if isinstance(x, Node) and not is_erased(x):
                erase_unused(gm.graph, x)
        shared += 1
    if shared:
        gm.recompile()
    return shared


def before_repeat(x: Any) -> Node | None:
    """What [B, H*n, S, D] repeats n times along its heads: [B, H, S, D]; None for anything else."""
    if not is_method(x, "reshape") or not is_method(x.args[0], "expand"):
        return None
    wide = x.args[0]
    single = wide.args[0]
    if not isinstance(single, Node) or single.target is not operator.getitem or not isinstance(single.args[0], Node):
        return None
    index = single.args[1]
    if not isinstance(index, tuple) or index not in [(*[EVERYTHING] * 2, None, *[EVERYTHING] * k) for k in range(3)]:
        return None
    first = single.args[0]
    small, expanded, merged = (list(v.shape) if (v := value_of(node)) is not None else [] for node in (first, wide, x))
    if (len(small), len(expanded), len(merged)) != (4, 5, 4):
        return None
    if any(not isinstance(n, int) for shape in (small, expanded, merged) for n in shape[1:]):
        return None
    same = [*expanded[:2], *expanded[3:]] == small and merged == [small[0], small[1] * expanded[2], *small[2:]]
    return first if same else None


def is_overwritten(x: Any, repeated: Any, reader: Node) -> bool:
    """Whether the memory of x changes after it was repeated and before `reader`."""
    node = repeated.next
    while node is not reader:
        if changes_argument(node) and any(storage(n) == storage(x) for n in node.all_input_nodes[:1]):
            return True
        node = node.next
    return False


def is_method(x: Any, name: str) -> bool:
    return isinstance(x, Node) and x.op == "call_method" and x.target == name


def value_of(x: Any) -> torch.Tensor | None:
    value = x.meta.get("example_value") if isinstance(x, Node) else None
    return value if isinstance(value, torch.Tensor) else None


def is_taken(x: torch.Tensor) -> bool:
    """Whether flash attention and cuDNN's take such a query, key or value; both are on by default."""
    kernels = torch.backends.cuda.flash_sdp_enabled() and torch.backends.cuda.cudnn_sdp_enabled()
    size = x.shape[-1]
    fits = x.dim() == 4 and isinstance(size, int) and size % 8 == 0 and size <= LARGEST_HEAD and x.stride(-1) == 1
    if not kernels or not fits or x.device.type != "cuda" or x.dtype not in (torch.float16, torch.bfloat16):
        return False
    return not torch.cuda.is_available() or torch.cuda.get_device_capability(x.device)[0] >= 8

"""Lays out images that a forward graph saves for its backward graph channels last, where the graph convolves so.

Eager's strides would be kept otherwise, and the images copied on both sides. Nobody but the backward graph sees them:
AOTAutograd is told of their strides, and compiles the backward graph for them.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from mlirc.frontend.cuda_graphs.facts import returned_to_user, storage
from mlirc.frontend.graph.node_value import value_of
from mlirc.frontend.torch_compat.dynamo.tracing_context import TracingContext

aten = torch.ops.aten
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def save_channels_last(gm: GraphModule) -> None:
    """Rewrites a forward graph, and reports its results' strides to AOTAutograd. Called while it is compiled.

    before:  return loss, relu          after:  %saved = clone(relu, channels_last)   return loss, %saved
    """
    tracing = TracingContext.try_get()
    if tracing is None or tracing.output_strides is None:
        return
    if tracing.fw_metadata is not None and tracing.fw_metadata.tokens:
        return  # AOTAutograd looks up strides as if there were no results before those that it counts
    output = gm.graph.output_node()
    results: list[Any] = list(output.args[0])  # type: ignore[arg-type]
    strides: list[tuple[int, ...] | None] = [None] * len(results)
    convolutions = gm.graph.find_nodes(op="call_function", target=aten.convolution.default)
    on_gpu = any(convolves(node) for node in convolutions)
    regions = None
    if convolutions and not on_gpu:
        from mlirc.frontend.partition.image_regions import regions_of

        regions = regions_of(gm)
    if on_gpu or (regions is not None and any(gain > 0 for gain in regions.gains.values())):
        taken = [storage(v) for n in results if isinstance(v := value_of(n), torch.Tensor)]
        taken += [storage(n.meta["val"]) for n in gm.graph.find_nodes(op="placeholder") if is_tensor(n)]
        for k in range(returned_to_user("forward", len(results)), len(results)):
            if regions is not None and not regions.lies_last(results[k]):
                continue
            if is_image(results[k]) and taken.count(storage(value_of(results[k]))) == 1:
                with gm.graph.inserting_before(output):
                    results[k] = cloned(gm, results[k], FORMATS[value_of(results[k]).ndim])
                strides[k] = value_of(results[k]).stride()
        output.args = (type(output.args[0])(results),)  # type: ignore[call-arg,misc]
    tracing.output_strides.extend(strides)


def take_as_saved(gm: GraphModule, inputs: Sequence[Any]) -> None:
    """Rewrites a backward graph whose inputs have other strides than when it was traced.

    before:  %p = placeholder   %1 = f(%p)          after:  %p = placeholder (channels last)   %2 = clone(%p)   %1 = f(%2)
    """
    for node, given in zip(gm.graph.find_nodes(op="placeholder"), inputs, strict=True):
        if is_tensor(node) and isinstance(given, torch.Tensor) and node.meta["val"].stride() != given.stride():
            with gm.graph.inserting_after(node):
                plain = cloned(gm, node, torch.contiguous_format)
            node.replace_all_uses_with(plain, delete_user_cb=lambda user, plain=plain: user is not plain)
            node.meta["val"] = given


def cloned(gm: GraphModule, node: Node, memory_format: torch.memory_format) -> Node:
    """A node that copies `node`'s value, in another order."""
    value = node.meta["val"]
    made = gm.graph.call_function(aten.clone.default, (node,), {"memory_format": memory_format})
    made.meta = dict(node.meta)
    with value.fake_mode:
        made.meta["val"] = torch.empty_like(value, memory_format=memory_format)
    return made


def is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def convolves(node: Node) -> bool:
    """Whether it is a convolution that the pass convolve-channels-last takes."""
    value = node.meta["val"]
    return value.is_cuda and value.ndim == 4 and value.dtype.itemsize == 2


def is_image(x: Any) -> bool:
    """Whether it is computed, and has eager's order of channels, and more than one place to put them."""
    value = value_of(x)
    if not isinstance(value, torch.Tensor) or x.op != "call_function" or value.ndim not in FORMATS:
        return False
    if value.is_cuda and value.ndim != 4:
        return False
    # int64: where a max_pool found its largest elements
    saved = value.dtype == torch.int64 or (value.dtype.itemsize == 2 if value.is_cuda else value.dtype == torch.float32)
    if not saved or any(not isinstance(n, int) for n in value.shape) or not value.is_contiguous():
        return False
    return value.shape[1] > 1 and math.prod(value.shape[2:]) > 1

"""Regions of images of a CPU's graph, which lie channels last together (lowering/layout/joined_images.py)."""

import operator

import torch
from torch.fx import GraphModule, Node

from mlirc.dialects.core.symbols import symbol
from mlirc.frontend.graph.node_value import value_of
from mlirc.lowering.cpu.convolution.choice import Choice, along, choice_of_slices, wide
from mlirc.lowering.host import host_cpu
from mlirc.lowering.layout.joined_images import Regions

aten = torch.ops.aten


def regions_of(gm: GraphModule) -> Regions:
    """The regions of a CPU's graph, nearly as generate-convolutions finds them. Images, masks of the same shape, and results of pools
    belong together."""
    regions, images = Regions(), set()
    for node in gm.graph.nodes:
        if node.op != "call_function":
            continue
        if node.target == aten.convolution.default and (choice := choice_of(node)) is not None and choice.may_lie_last:
            regions.join((node.args[0], node))
            regions.add(node, choice.gain(True, [True]) + choice.gain(False, [True, True]))
            images.update((node.args[0], node))
        elif any(x in images for x in node.all_input_nodes):
            read = [x for x in node.all_input_nodes if x in images and go_together(x, node)]
            regions.join((*read, *[node] * bool(read)))
            images.update([node] * bool(read))
    return regions


def go_together(x: Node, node: Node) -> bool:
    """Whether the op gives an image that lies as `x` does: of the same shape, or a pool's."""
    before, after = value_of(x), value_of(node)
    if isinstance(before, (tuple, list)):
        return node.target is operator.getitem and isinstance(after, torch.Tensor) and after.ndim >= 3
    if isinstance(after, (tuple, list)):
        return any(isinstance(y, torch.Tensor) and y.ndim == before.ndim for y in after)
    return isinstance(after, torch.Tensor) and after.ndim == before.ndim and after.shape[:1] == before.shape[:1]


def choice_of(node: Node) -> Choice | None:
    """The choice for a convolution of float32 images on a CPU; None for any other."""
    x, w, out = value_of(node.args[0]), value_of(node.args[1]), node.meta["val"]
    if out.is_cuda or out.ndim not in (3, 4, 5) or {x.dtype, w.dtype} != {torch.float32}:
        return None
    sizes = [tuple(n if isinstance(n, int) else symbol("n") for n in y.shape) for y in (x, w, out)]
    _, _, _, stride, _, dilation, transposed, _, groups = node.args
    if out.ndim == 5:
        return choice_of_slices(*sizes, stride, dilation, transposed, groups, host_cpu())  # type: ignore[arg-type]
    stride, dilation = (along(n * (out.ndim - 2) if len(n) == 1 else n, 1) for n in (stride, dilation))  # type: ignore[arg-type, operator]
    return Choice(*map(wide, sizes), stride, dilation, transposed, groups, host_cpu())  # type: ignore[arg-type]

"""Recomputes cheap values in a backward graph on a GPU, so that the forward graph need not save them.

The partitioner between forward and backward graph recomputes elementwise operators that it knows. Others it takes for
library calls, for which everything must be there: a log-softmax over a vocabulary in float32 (1.6 GB for GPT-2, twice what
the logits take), the tanh within a GELU. So a loss is traced in parts, of which a row's largest element and the logarithm of
its sum are saved; and gradients of elementwise operators stand in the partitioner's graph as one that it knows.
"""

from collections.abc import Callable
from operator import getitem
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils.checkpoint import CheckpointPolicy

from mlirc.frontend.partition.equal_nodes import merge_equal_nodes
from mlirc.frontend.partition.random_states import STATES_ARE_TENSORS
from mlirc.frontend.torch_compat.aot_autograd.tracing import (
    config,
    get_decompositions,
    min_cut_rematerialization_partition,
)

aten = torch.ops.aten
MEAN = 1  # ATen's number of a reduction
PARTS = get_decompositions(
    [
        aten._log_softmax,
        aten._log_softmax_backward_data,
        aten.detach,  # of what an operator keeps for its gradient
    ]
)
ELEMENTWISE = {aten.sigmoid_backward.default, aten.silu_backward.default, aten.tanh_backward.default}  # (grad, x)
STOOD_FOR = "mlirc_stood_for"

COMPARES = {aten.eq.Tensor, aten.eq.Scalar, aten.ne.Tensor, aten.ne.Scalar}
MOVES = ("index", "_unsafe_index", "index_select", "gather", "cat", "clone", "copy", "flip", "roll", "constant_pad_nd")
WRITES = ("index_put", "scatter", "slice_scatter", "select_scatter", "_to_copy", "_unsafe_view")
CHOOSES = ("amax", "amin", "max", "min", "sort", "topk")
FILLS = ("full_like", "zeros_like", "ones_like", "empty_like", "new_full", "new_zeros", "new_ones", "new_empty")
SAME_AGAIN = {*MOVES, *WRITES, *CHOOSES, *FILLS}
"""Operators that give the same numbers each time, beside those of single elements and views."""


def partition(joint: GraphModule, inputs: Any, **options: Any) -> tuple[GraphModule, GraphModule]:
    """The forward and the backward graph, as the partitioner chooses them where it knows ELEMENTWISE too."""
    for node in joint.graph.find_nodes(op="call_function", target=aten.sum.dim_IntList):
        pick_instead(node)
    for node in joint.graph.find_nodes(op="call_function", target=aten._to_copy.default):
        if is_rounded_log_softmax(node):  # the logits, which a model returns, are saved in its place
            node.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE
    for node in joint.graph.nodes:
        if shows_conjugates(node):  # what it shows is saved in its place, which a program need not compute
            node.meta.setdefault("recompute", CheckpointPolicy.MUST_RECOMPUTE)
        if node.target in ELEMENTWISE and is_on_gpu(node.meta["val"]):
            node.meta[STOOD_FOR] = node.target
            node.kwargs = {"approximate": str(node.target)}  # so that no two operators are taken for the same
            node.target = aten.gelu_backward.default
    if config.cse:
        merge_equal_nodes(joint.graph)
    keep_what_reads_overwritten_inputs(joint)
    keep_what_is_compared(joint)
    with config.patch({**STATES_ARE_TENSORS, "cse": False}):
        graphs = min_cut_rematerialization_partition(joint, inputs, **options)
    for gm in graphs:
        stand_ins = [node for node in gm.graph.nodes if STOOD_FOR in node.meta]
        for node in stand_ins:
            node.target, node.kwargs = node.meta.pop(STOOD_FOR), {}
        if stand_ins:
            gm.recompile()
    return graphs


def shows_conjugates(node: Node) -> bool:
    value = node.meta.get("val")
    is_view = isinstance(node.target, OpOverload) and node.target.is_view
    return is_view and isinstance(value, torch.Tensor) and value.is_conj()


def keep_what_reads_overwritten_inputs(joint: GraphModule) -> None:
    """Has what is computed from an input that the forward graph overwrites saved, if a backward graph needs it.

    self.steps += 1;  return x * self.steps     steps + 1 is saved: when the backward graph runs, `steps` has the new value
    """
    from mlirc.frontend.importer.views import viewed  # needs MLIR, which a warm start does not import

    placeholders = joint.graph.find_nodes(op="placeholder")
    writes = joint.graph.find_nodes(op="call_function", target=aten.copy_.default)
    shown = {write.args[0] for write in writes} & set(placeholders)
    for node in joint.graph.nodes:
        if node.op == "call_function" and node not in writes and not shown.isdisjoint(node.all_input_nodes):
            if viewed(node) in shown:
                shown.add(node)
            elif isinstance(node.meta.get("val"), (torch.Tensor, tuple, list)):  # not a size
                node.meta.setdefault("recompute", CheckpointPolicy.MUST_SAVE)


def keep_what_is_compared(joint: GraphModule) -> None:
    """Has saved what would be another number in the backward graph, if that asks which of such numbers are equal to another one.

    largest = scatter_reduce(x.sum(1), "amax")     its gradient goes where x.sum(1) == largest[index], shared by how many these are
    largest = (x.exp() * 0.3).amax(1)              likewise

    Summed again, maybe in another order, none is, and the gradient is 0 / 0. Nor is a half type's product computed again: x.exp(), which
    is saved, is rounded, and the largest in the forward graph is one of what it was before. Other operators give the same numbers again.
    """
    checked: set[Node] = set()
    found = [x for node in joint.graph.nodes if node.target in COMPARES for x in node.all_input_nodes]
    while found:
        node = found.pop()
        made = node.args[0] if node.target is getitem else node
        if node in checked or not isinstance(made, Node) or not isinstance(made.target, OpOverload):
            continue
        checked.add(node)
        value, is_pointwise = node.meta.get("val"), torch.Tag.pointwise in made.target.tags
        moves = made.target.is_view or made.target.overloadpacket.__name__ in SAME_AGAIN
        if moves or (is_pointwise and not is_half(value)):
            found += made.all_input_nodes
        elif made.all_input_nodes and isinstance(value, torch.Tensor) and not is_exact(value):
            node.meta["recompute"] = CheckpointPolicy.MUST_SAVE  # within a checkpoint too


def is_half(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.dtype in (torch.float16, torch.bfloat16)


def is_exact(x: torch.Tensor) -> bool:
    return not (x.is_floating_point() or x.is_complex())


def pick_instead(node: Node) -> None:
    """The sum over classes of the gradient of a loss, which has one element that is not 0 in a row, needs no sum.

    before:  %w = where((classes == target) & counted, %value, 0)   %s = sum(%w, [1], keepdim)
    after:   %s = where((target >= 0) & (target < C) & counted, %value, 0)
    """
    casts: list[Node] = []
    x: Any = node.args[0]
    while is_call(x, aten._to_copy.default):
        casts.append(x)
        x = x.args[0]
    if node.args[1:] != ([1], True) or node.kwargs or not is_call(x, aten.where.self):
        return
    chosen, value, zero = x.args
    if (
        not is_call(chosen, aten.bitwise_and.Tensor)
        or not is_call(zero, aten.scalar_tensor.default)
        or zero.args != (0.0,)
    ):
        return
    hit, counted = chosen.args
    if not is_call(hit, aten.eq.Tensor) or not is_call(hit.args[0], aten.arange.default):
        return
    classes, target = hit.args
    (rows, size), across = x.meta["val"].shape, [n.meta["val"].shape[-1:] for n in (value, counted, target)]
    if classes.args != (size,) or any(n not in ((), (1,)) for n in across) or target.meta["val"].shape != (rows, 1):
        return
    with node.graph.inserting_before(node):
        within = call(node, aten.ge.Scalar, target, 0)
        for more in (call(node, aten.lt.Scalar, target, size), counted):
            within = call(node, aten.bitwise_and.Tensor, within, more)
        made = call(node, aten.where.self, within, value, zero)
        for cast in reversed(casts):
            made = call(node, aten._to_copy.default, made, **cast.kwargs)
    node.replace_all_uses_with(made)
    node.graph.erase_node(node)


def is_rounded_log_softmax(cast: Node) -> bool:
    """Whether it converts (x - largest) - log(sum) on a GPU."""
    x: Any = cast.args[0]
    if not is_call(x, aten.sub.Tensor) or not is_on_gpu(cast.meta["val"]):
        return False
    shifted, total = x.args[:2]
    return (
        is_call(total, aten.log.default)
        and is_call(shifted, aten.sub.Tensor)
        and is_call(shifted.args[1], aten.amax.default)
    )


def is_call(x: Any, target: OpOverload) -> bool:
    return isinstance(x, Node) and x.target is target


def call(at: Node, target: OpOverload, *args: Any, **options: Any) -> Node:
    """A new node, with the value that fake tensors give it, and what `at` knows of where it comes from."""
    made = at.graph.call_function(target, args, options)
    made.meta = {k: v for k, v in at.meta.items() if k not in ("val", "tensor_meta")}
    values = map_arg(args, lambda x: x.meta["val"])
    with at.meta["val"].fake_mode:
        made.meta["val"] = target(*values, **options)
    return made


def is_on_gpu(x: torch.Tensor) -> bool:
    return x.device.type == "cuda"


def decompositions() -> dict[OpOverload, Callable]:
    """What AOTAutograd traces in place of an operator, which stays where the function gives NotImplemented."""
    found = {op: on_gpu(parts) for op, parts in PARTS.items() if isinstance(op, OpOverload)}
    return found | {aten.nll_loss_backward.default: nll_loss_backward}


def on_gpu(parts: Callable) -> Callable:
    def decomposed(x: torch.Tensor, *args: Any, **options: Any) -> Any:
        return parts(x, *args, **options) if is_on_gpu(x) else NotImplemented

    return decomposed


def nll_loss_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: torch.Tensor,
) -> torch.Tensor:
    """-weight of the class at the target's class, 0 elsewhere, times the gradient: x [N, C] gives sizes and dtype alone."""
    if not is_on_gpu(x) or x.dim() != 2:
        return NotImplemented
    wide = torch.promote_types(x.dtype, torch.float32)
    value = -grad.to(wide)
    if reduction == MEAN:
        value = value / total_weight.to(wide)
    if value.dim() == 1:
        value = value.unsqueeze(1)
    if weight is not None:
        value = value * weight.to(wide)
    target = target.unsqueeze(1)
    classes = torch.arange(x.shape[1], dtype=target.dtype, device=x.device)
    chosen = (classes == target) & (target != ignore_index)
    return torch.where(chosen, value, 0.0).to(x.dtype)
